// SPDX-License-Identifier: Apache-2.0
#include "daemon/background.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>

#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

constexpr int kFailed = 32;

class BackgroundTest : public ::testing::Test {
protected:
    // The exit status of a process that goes to the background and then does `rest` there; its standard error goes to
    // a file.
    int exit_status_of(const std::function<void(Readiness&)>& rest) {
        const pid_t child = fork();
        if (child == 0) {
            static_cast<void>(log_to_file(output()));
            auto readiness = go_to_background(kFailed);
            if (readiness) {
                rest(*readiness);
            }
            _exit(77);
        }
        int status = 0;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

    [[nodiscard]] std::string output() const { return directory_ + "/output"; }
    [[nodiscard]] std::string text() const {
        std::ifstream file(output());
        std::stringstream all;
        all << file.rdbuf();
        return all.str();
    }

    const testing::TemporaryDirectory temporary_;
    const std::string directory_ = temporary_.path();
};

TEST_F(BackgroundTest, TheCommandReturnsOnceTheMountAnswers) {
    EXPECT_EQ(exit_status_of([](Readiness& readiness) { readiness.ready(); }), 0);
    EXPECT_EQ(text(), "");
}

TEST_F(BackgroundTest, TheJournalIsToldThatAFailureIsAnError) {
    std::ofstream(output()).close();
    struct stat file {};
    ASSERT_EQ(stat(output().c_str(), &file), 0);
    setenv("JOURNAL_STREAM", (std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino)).c_str(), 1);
    EXPECT_EQ(exit_status_of([](Readiness& readiness) { readiness.failed("ckptfs: no such bucket"); }), kFailed);
    unsetenv("JOURNAL_STREAM");
    EXPECT_EQ(text(), "<3>ckptfs: no such bucket\n");
}

TEST_F(BackgroundTest, TheJournalIsKnownByItsStream) {
    struct stat stream {};
    ASSERT_EQ(fstat(STDERR_FILENO, &stream), 0);
    const auto named = [&](ino_t inode) {
        return [text = std::to_string(stream.st_dev) + ":" + std::to_string(inode)](const char* name) {
            return std::string(name) == "JOURNAL_STREAM" ? std::optional(text) : std::nullopt;
        };
    };
    EXPECT_TRUE(is_read_by_journal(STDERR_FILENO, named(stream.st_ino)));
    EXPECT_FALSE(is_read_by_journal(STDERR_FILENO, named(stream.st_ino + 1)));
    EXPECT_FALSE(is_read_by_journal(STDERR_FILENO, [](const char*) { return std::nullopt; }));
}

TEST_F(BackgroundTest, TheCommandPrintsWhatFailed) {
    EXPECT_EQ(exit_status_of([](Readiness& readiness) { readiness.failed("ckptfs: no such bucket"); }), kFailed);
    EXPECT_EQ(text(), "ckptfs: no such bucket\n");
}

TEST_F(BackgroundTest, AWarningIsPrintedBySuccessAlone) {
    EXPECT_EQ(exit_status_of([](Readiness& readiness) {
                  readiness.warn("ckptfs: no journal");
                  readiness.ready();
              }),
              0);
    EXPECT_EQ(text(), "ckptfs: no journal\n");
    std::filesystem::remove(output());
    EXPECT_EQ(exit_status_of([](Readiness& readiness) {
                  readiness.warn("ckptfs: no journal");
                  readiness.failed("ckptfs: no such bucket");
              }),
              kFailed);
    EXPECT_EQ(text(), "ckptfs: no such bucket\n");
}

TEST_F(BackgroundTest, ADeathBeforeThatIsAFailure) {
    EXPECT_EQ(exit_status_of([](Readiness&) { _exit(0); }), kFailed);
    EXPECT_NE(text().find("ended before the mount answered"), std::string::npos);
}

TEST_F(BackgroundTest, LogFilesAreForTheirOwnerOnly) {
    EXPECT_EQ(exit_status_of([](Readiness& readiness) { readiness.ready(); }), 0);
    struct stat status {};
    ASSERT_EQ(stat(output().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    const Status refused = log_to_file(directory_ + "/none/log");
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("--log-file"), std::string::npos);
}

}  // namespace
}  // namespace ckptfs
