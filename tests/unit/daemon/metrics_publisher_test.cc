// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics_publisher.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "support/inline_executor.h"
#include "support/stepped_timer.h"
#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

class HeldExecutor final : public Executor {
public:
    void post(std::function<void()> task) override { tasks.push_back(std::move(task)); }
    std::vector<std::function<void()>> tasks;
};

class MetricsPublisherTest : public ::testing::Test {
protected:
    MountFigures figures() {
        MountFigures figures;
        figures.files.files_committed = committed_;
        return figures;
    }
    [[nodiscard]] std::string text() const {
        std::ifstream stream(file_);
        return {std::istreambuf_iterator<char>(stream), {}};
    }
    std::unique_ptr<MetricsPublisher> publisher() {
        return std::make_unique<MetricsPublisher>(MetricsPublisher::Places{"", file_}, timer_, executor_,
                                                  [this] { return figures(); });
    }

    const testing::TemporaryDirectory temporary_;
    const std::filesystem::path file_ = temporary_.path() / "ckptfs.prom";
    std::uint64_t committed_ = 1;
    testing::SteppedTimer timer_;
    testing::InlineExecutor executor_;
};

TEST_F(MetricsPublisherTest, WritesTheFileAtOnceAndAgainEveryPeriod) {
    const auto publishing = publisher();
    EXPECT_NE(text().find("ckptfs_files_committed_total{mount=\"\"} 1\n"), std::string::npos) << text();
    committed_ = 2;
    EXPECT_EQ(timer_.run(), MetricsPublisher::kPeriod);
    EXPECT_NE(text().find("ckptfs_files_committed_total{mount=\"\"} 2\n"), std::string::npos) << text();
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temporary_.path()), {}), 1);
}

TEST_F(MetricsPublisherTest, LetsOthersReadTheFile) {
    const mode_t before = umask(077);
    const auto publishing = publisher();
    umask(before);
    struct stat info {};
    ASSERT_EQ(stat(file_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0644U);
}

TEST_F(MetricsPublisherTest, WritesToNothingThatSomebodyElseHasLeft) {
    const std::string unfinished = file_.string() + ".new";
    std::ofstream(temporary_.path() / "other") << "of others";
    std::filesystem::create_hard_link(temporary_.path() / "other", unfinished);
    auto publishing = publisher();
    EXPECT_NE(text(), "");
    std::filesystem::permissions(temporary_.path() / "other", std::filesystem::perms(0600));
    ASSERT_EQ(mkfifo(unfinished.c_str(), 0600), 0);
    committed_ = 2;
    EXPECT_EQ(timer_.run(), MetricsPublisher::kPeriod);
    EXPECT_NE(text().find("ckptfs_files_committed_total{mount=\"\"} 2\n"), std::string::npos) << text();
    std::ifstream other(temporary_.path() / "other");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(other), {}), "of others");
}

TEST_F(MetricsPublisherTest, OneThatHangsIsNotWaitedFor) {
    HeldExecutor held;
    auto publishing = std::make_unique<MetricsPublisher>(MetricsPublisher::Places{"", file_}, timer_, held,
                                                         [this] { return figures(); });
    EXPECT_EQ(timer_.run(), MetricsPublisher::kPeriod);
    publishing.reset();
    for (const auto& task : held.tasks) {
        task();
    }
    EXPECT_FALSE(std::filesystem::exists(file_)) << "written after the end";
}

TEST_F(MetricsPublisherTest, RemovesTheFileAtItsEnd) {
    auto publishing = publisher();
    ASSERT_TRUE(std::filesystem::exists(file_));
    publishing.reset();
    EXPECT_FALSE(std::filesystem::exists(file_));
    EXPECT_EQ(timer_.waiting(), 0U);
}

TEST_F(MetricsPublisherTest, TriesAgainUntilThePortIsFree) {
    auto other = MetricsServer::create("127.0.0.1:0", [this] { return figures(); });
    ASSERT_TRUE(other);
    const std::string address = "127.0.0.1:" + std::to_string((*other)->port());
    const MetricsPublisher publishing({address, ""}, timer_, executor_, [this] { return figures(); });
    EXPECT_FALSE(MetricsServer::create(address, [this] { return figures(); })) << "the other has it";
    other->reset();
    EXPECT_EQ(timer_.run(), MetricsPublisher::kPeriod);
    EXPECT_FALSE(MetricsServer::create(address, [this] { return figures(); })) << "ours has it";
}

}  // namespace
}  // namespace ckptfs
