// SPDX-License-Identifier: Apache-2.0
#include "journal/journal_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/file_descriptor.h"
#include "ckptfs/log.h"
#include "support/eventually.h"
#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

// A pipe that is full: a write waits until it is read, as one to a filesystem whose server is away.
class FullPipe {
public:
    FullPipe() {
        int ends[2] = {-1, -1};
        EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
        read_ = FileDescriptor(ends[0]);
        write_ = FileDescriptor(ends[1]);
        filler_ = std::string(static_cast<std::size_t>(fcntl(ends[1], F_SETPIPE_SZ, 4096)), '\n');
        EXPECT_EQ(::write(ends[1], filler_.data(), filler_.size()), static_cast<ssize_t>(filler_.size()));
    }

    [[nodiscard]] FileDescriptor writer() { return std::move(write_); }
    // What was written to it in vain, up to so many bytes.
    std::string read(std::size_t size) {
        std::string all(filler_.size() + size, '\0');
        std::size_t got = 0;
        while (got < all.size()) {
            const ssize_t more = ::read(read_.get(), all.data() + got, all.size() - got);
            if (more <= 0) {
                break;
            }
            got += static_cast<std::size_t>(more);
        }
        return all.substr(filler_.size(), got - filler_.size());
    }

private:
    FileDescriptor read_;
    FileDescriptor write_;
    std::string filler_;
};

class JournalFileTest : public ::testing::Test {
protected:
    JournalFileTest() { file_.emplace(path_, pipe_.writer(), std::chrono::milliseconds(20)); }
    [[nodiscard]] std::uint64_t warnings() const { return log_counts().warnings - warnings_before_; }

    const std::uint64_t warnings_before_ = log_counts().warnings;
    const testing::TemporaryDirectory temporary_;
    const std::string path_ = temporary_.path() / "journal";
    FullPipe pipe_;
    std::optional<JournalFile> file_;
};

TEST_F(JournalFileTest, ADirectoryThatDoesNotAnswerHoldsUpOneCall) {
    for (const char* line : {"+a\n", "+b\n", "+c\n"}) {
        file_->append(line);
        file_->settle();
    }
    EXPECT_EQ(warnings(), 1U) << "those that came later have not waited";
    EXPECT_EQ(pipe_.read(9), "+a\n+b\n+c\n");
}

TEST_F(JournalFileTest, ADirectoryThatDoesNotAnswerDoesNotHoldUpTheEnd) {
    file_->append("+a\n");
    file_.reset();
    EXPECT_EQ(warnings(), 1U);
    EXPECT_EQ(pipe_.read(3), "+a\n");
}

TEST_F(JournalFileTest, WhatWaitsForADirectoryIsBounded) {
    file_->append("+a\n");
    file_->settle();
    ASSERT_TRUE(testing::eventually([this] { return file_->size() == 0; })) << "it is being written";
    const std::string line = std::string(1023, 'b') + '\n';
    for (int i = 0; i <= 1024; ++i) {
        EXPECT_FALSE(file_->wants_rewrite()) << i;
        file_->append(line);
    }
    EXPECT_TRUE(file_->wants_rewrite());
    file_->rewrite("+c\n");
    EXPECT_FALSE(file_->wants_rewrite());
    EXPECT_EQ(file_->size(), 3U);
    EXPECT_EQ(pipe_.read(3), "+a\n");
}

}  // namespace
}  // namespace ckptfs
