// SPDX-License-Identifier: Apache-2.0
// Changes of directories whose caller was killed: they take effect later, beside what others then do below them.
#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

constexpr pid_t kOther = 200;

template <class T>
class Later {
public:
    explicit Later(const std::function<void(Reply<T>)>& start) {
        start([promise = promise_](Result<T> result) { promise->set_value(std::move(result)); });
    }
    [[nodiscard]] bool is_there() const {
        return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }
    Result<T> get() {
        if (future_.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
            return failure(ETIMEDOUT, "no answer");
        }
        return future_.get();
    }

private:
    const std::shared_ptr<std::promise<Result<T>>> promise_ = std::make_shared<std::promise<Result<T>>>();
    std::future<Result<T>> future_ = promise_->get_future();
};

// "d" is renamed to "e", and the copy of its file does not come to an end before it is released.
class LeftRename : public FileSystemTest {
protected:
    LeftRename() {
        store.put_object("p/d/", "");
        store.put_object("p/d/f", "whole");
        directory = lookup("d")->node;
        file = lookup("f", directory)->node;
        store.hold(Operation::kCopy);
        renamed.emplace([this](const Reply<void>& reply) {
            Caller caller{kProcess, 0, 0};
            caller.has_left = has_left;
            fs->rename(kRootNode, "d", kRootNode, "e", 0, caller, reply);
        });
        EXPECT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    }
    ~LeftRename() override { store.release(Operation::kCopy); }
    void end_rename() {
        store.release(Operation::kCopy);
        EXPECT_TRUE(renamed->get());
    }

    NodeId directory = 0;
    NodeId file = 0;
    const std::shared_ptr<std::atomic<bool>> has_left = std::make_shared<std::atomic<bool>>(false);
    std::optional<Later<void>> renamed;
};

TEST_F(LeftRename, IsWaitedForByWhatIsOpenedBelowIt) {
    *has_left = true;
    Later<OpenedFile> rewrites([&](const auto& reply) {
        fs->open(file, O_WRONLY | O_TRUNC, Caller{kOther, 0, 0}, reply);
    });
    Later<OpenedFile> changes([&](const auto& reply) { fs->open(file, O_RDWR, Caller{kOther, 0, 0}, reply); });
    Later<CreatedFile> makes([&](const auto& reply) {
        fs->create_file(directory, "new", O_WRONLY | O_CREAT, Caller{kOther, 0, 0}, reply);
    });
    AttributeChange cut;
    cut.size = 2;
    Later<Attributes> cuts([&](const auto& reply) { fs->setattr(file, std::nullopt, cut, reply); });
    Later<Entry> makes_directory([&](const auto& reply) { fs->mkdir(directory, "sub", reply); });
    EXPECT_FALSE(rewrites.is_there() || changes.is_there() || makes.is_there() || cuts.is_there() ||
                 makes_directory.is_there());
    EXPECT_TRUE(open(file, O_RDONLY)) << "readers do not wait";
    end_rename();
    // The kernel looks the path up once more.
    EXPECT_EQ(errno_of(rewrites.get()), ESTALE);
    EXPECT_EQ(errno_of(changes.get()), ESTALE);
    EXPECT_EQ(errno_of(makes.get()), ESTALE);
    EXPECT_EQ(errno_of(cuts.get()), ESTALE);
    EXPECT_EQ(errno_of(makes_directory.get()), ESTALE);
    EXPECT_EQ(store.content("p/e/f"), "whole");
    EXPECT_EQ(store.keys(), (std::vector<std::string>{"p/e/", "p/e/f"}));
}

TEST_F(LeftRename, ThatFailsLetsThemGoOn) {
    *has_left = true;
    store.inject({Operation::kCopy, "", store_error(EACCES, "AccessDenied", 403), 0, 100, false});
    Later<OpenedFile> rewrites([&](const auto& reply) {
        fs->open(file, O_WRONLY | O_TRUNC, Caller{kOther, 0, 0}, reply);
    });
    Later<CreatedFile> makes([&](const auto& reply) {
        fs->create_file(directory, "new", O_WRONLY | O_CREAT, Caller{kOther, 0, 0}, reply);
    });
    EXPECT_FALSE(rewrites.is_there() || makes.is_there());
    store.release(Operation::kCopy);
    EXPECT_FALSE(renamed->get());
    const auto rewritten = rewrites.get();
    const auto made = makes.get();
    ASSERT_TRUE(rewritten && made);
    EXPECT_TRUE(close(rewritten->handle) && close(made->opened.handle));
    EXPECT_EQ(store.content("p/d/f"), "");
    EXPECT_TRUE(store.exists("p/d/new"));
}

// Copying may take long; and what is written in a directory goes with it.
TEST_F(LeftRename, WhoseCallerLivesIsNotWaitedFor) {
    const Result<CreatedFile> made = create("new", O_WRONLY, directory);
    ASSERT_TRUE(made);
    end_rename();
    EXPECT_TRUE(close(made->opened.handle));
    EXPECT_TRUE(store.exists("p/e/new"));
}

TEST_F(LeftRename, LeavesNoNameBehindInTheKernel) {
    *has_left = true;
    const Result<Entry> found = lookup("d");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->valid_for, Milliseconds(0));
    EXPECT_GT(lookup("f", directory)->valid_for, Milliseconds(0));
    end_rename();
    EXPECT_EQ(errno_of(lookup("d")), ENOENT);
    EXPECT_GT(lookup("e")->valid_for, Milliseconds(0));
}

TEST_F(FileSystemTest, TheKernelKeepsANameThatItHasMade) {
    const Result<Entry> directory = mkdir("d");
    ASSERT_TRUE(directory);
    EXPECT_EQ(directory->valid_for, Milliseconds(1000));
    const auto link = answer<Entry>([&](auto reply) { fs->symlink(kRootNode, "s", "d", Caller{kOther, 0, 0}, reply); });
    ASSERT_TRUE(link);
    EXPECT_EQ(link->valid_for, Milliseconds(1000));
}

TEST_F(FileSystemTest, AFileIsNotHiddenByADirectoryWhoseMakerWasKilled) {
    store.hold(Operation::kPut);
    Later<Entry> directory([&](const auto& reply) { fs->mkdir(kRootNode, "x", reply); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    Later<CreatedFile> file([&](const auto& reply) {
        fs->create_file(kRootNode, "x", O_WRONLY | O_CREAT, Caller{kOther, 0, 0}, reply);
    });
    EXPECT_FALSE(file.is_there());
    store.release(Operation::kPut);
    EXPECT_TRUE(directory.get());
    EXPECT_EQ(errno_of(file.get()), EISDIR);
}

}  // namespace
}  // namespace ckptfs::fs
