// SPDX-License-Identifier: Apache-2.0
#include "cli/unmount_report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace ckptfs {
namespace {

class UnmountReportTest : public ::testing::Test {
protected:
    UnmountReportTest() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC | O_NONBLOCK), 0); }
    ~UnmountReportTest() override {
        close(ends_[0]);
        close(ends_[1]);
    }
    std::string printed() const {
        std::string text(4096, '\0');
        const ssize_t size = read(ends_[0], text.data(), text.size());
        text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
        return text;
    }
    int ends_[2] = {-1, -1};
};

TEST_F(UnmountReportTest, SilentSuccessAwayFromATerminal) {
    UnmountReport report(false, ends_[1]);
    report.on_line("progress 1 10 5");
    report.on_line("done");
    EXPECT_EQ(report.finish(), 0);
    EXPECT_EQ(printed(), "");
}

TEST_F(UnmountReportTest, ShowsProgressOnATerminal) {
    UnmountReport report(true, ends_[1]);
    report.on_line("progress 1 1048576 524288");
    EXPECT_EQ(printed(), "saving 1 file: 0.5 of 1.0 MiB in the store");
    report.on_line("done");
    EXPECT_EQ(report.finish(), 0);
}

TEST_F(UnmountReportTest, NamesEveryFileThatIsLost) {
    UnmountReport report(false, ends_[1]);
    report.on_line("lost run/a.pt");
    report.on_line("lost run/b.pt");
    report.on_line("done");
    EXPECT_EQ(report.finish(), 1);
    EXPECT_EQ(printed(), "ckptfs: not saved: run/a.pt\nckptfs: not saved: run/b.pt\n");
}

TEST_F(UnmountReportTest, ADaemonThatDiesIsAFailure) {
    UnmountReport report(false, ends_[1]);
    EXPECT_EQ(report.finish(), 1);
    EXPECT_NE(printed().find("the daemon ended"), std::string::npos);
}

}  // namespace
}  // namespace ckptfs
