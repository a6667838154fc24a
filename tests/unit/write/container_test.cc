// SPDX-License-Identifier: Apache-2.0
// Files that are written in compressed frames, and what comes in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "unit/write/writer_fixture.h"
#include "write/writer_group.h"

namespace ckptfs::testing {
namespace {

class ContainerTest : public ::testing::Test, protected WriterFixture {
protected:
    explicit ContainerTest(std::uint64_t max_memory = 64 * kMiB) : WriterFixture(max_memory, {}, "zstd:1") {}

    // Nobody else gets memory of this kind until they are let go of.
    std::vector<Buffer> take_all(MemoryUse use) {
        std::vector<Buffer> taken;
        while (std::optional<Buffer> buffer = pool->try_take(use)) {
            taken.push_back(std::move(*buffer));
        }
        return taken;
    }
    [[nodiscard]] PoolUsage usage() const { return pool->usage(); }
    [[nodiscard]] std::size_t waiting(MemoryUse use) const {
        return pool->usage().waiting[static_cast<std::size_t>(use)];
    }
    [[nodiscard]] std::size_t in_use(MemoryUse use) const {
        return pool->usage().in_use[static_cast<std::size_t>(use)];
    }
    static void relieve(const std::shared_ptr<FileWriter>& writer, Relief relief) {
        dynamic_cast<MemoryHolder&>(*writer).relieve(relief);
    }
};

TEST_F(ContainerTest, APartOfAFileThatWasStartedOverLeavesNoTrace) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, noise(4 * kMiB, 1)));
    ASSERT_TRUE(eventually([&] {
        relieve(writer, Relief::kSpillOpen);
        return in_use(MemoryUse::kWrite) == 0;
    }));
    std::vector<Buffer> memory = take_all(MemoryUse::kCommit);
    ASSERT_TRUE(write(*writer, 4 * kMiB, noise(6 * kMiB, 2)));
    ASSERT_TRUE(eventually([this] { return waiting(MemoryUse::kCommit) > 0; }));
    ASSERT_TRUE(truncate(*writer, 0));
    const std::string content = noise(2 * kMiB + 10, 3);
    ASSERT_TRUE(write(*writer, 0, content));
    memory.clear();
    ASSERT_TRUE(eventually([this] { return waiting(MemoryUse::kCommit) == 0 && in_use(MemoryUse::kCommit) == 0; }));
    ASSERT_TRUE(commit(*writer));
    EXPECT_TRUE(file("dir/file") == content) << file("dir/file").substr(0, 200);
}

TEST_F(ContainerTest, AFileThatIsGivenUpWhileItIsEncodedIsNotPublished) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, std::string(kMiB, 'a')));
    ASSERT_TRUE(write(*writer, 3, "patched"));
    std::vector<Buffer> memory = take_all(MemoryUse::kEncode);
    Answer<Result<CommittedObject>> committed;
    writer->commit(CommitReason::kClose, [&, done = committed.callback()](Result<CommittedObject> object) {
        // Before the upload hears of it.
        memory.clear();
        EXPECT_TRUE(eventually([this] { return waiting(MemoryUse::kEncode) == 0; }));
        done(std::move(object));
    });
    ASSERT_TRUE(eventually([this] { return waiting(MemoryUse::kEncode) > 0; }));
    ASSERT_TRUE(abort(*writer));
    EXPECT_FALSE(committed.get());
    // What was encoded meanwhile is given back behind that answer, where one thread has both to give.
    EXPECT_TRUE(eventually([this] { return in_use(MemoryUse::kEncode) == 0; }));
    EXPECT_FALSE(store.exists("dir/file"));
}

TEST_F(ContainerTest, ManyChangedFramesOfOnePartDoNotWaitForEver) {
    const auto writer = open();
    std::string expected(150 * kMiB, 'z');
    ASSERT_TRUE(write(*writer, 0, expected));
    Status patched;
    for (std::uint64_t offset = 5; offset < expected.size() && patched; offset += kMiB) {
        patched = write(*writer, offset, "patched");
        expected.replace(offset, 7, "patched");
    }
    if (!patched) {
        EXPECT_EQ(patched.error().errno_value, EOPNOTSUPP) << patched.error().message;
        EXPECT_NE(patched.error().message.find("--stage GLOB (in /etc/fstab: stage=GLOB)"), std::string::npos);
        return;
    }
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(file("dir/file") == expected);
}

// Half of it can be compressed.
std::string half_noise(unsigned seed) {
    return noise(kMiB / 2, seed) + std::string(kMiB / 2, 'x');
}

TEST_F(ContainerTest, ItsLastPartHoldsNoMemoryThatAnEarlierOneWaitsFor) {
    const auto writer = open();
    std::string content;
    const auto write_blocks = [&](unsigned count) {
        for (unsigned number = 0; number < count; ++number) {
            const std::string more = half_noise(static_cast<unsigned>(content.size() / kMiB));
            ASSERT_TRUE(write(*writer, content.size(), more));
            content += more;
            ASSERT_TRUE(eventually([this] { return in_use(MemoryUse::kWrite) == 0; }));
        }
    };
    write_blocks(11);
    ASSERT_TRUE(eventually([&] {
        relieve(writer, Relief::kSendEarly);
        return store.calls(Operation::kUploadPart) == 1;
    }));
    // The last part: too small to leave early.
    write_blocks(6);
    ASSERT_TRUE(write(*writer, 100, "patched"));
    content.replace(100, 7, "patched");
    ASSERT_TRUE(eventually([this] { return in_use(MemoryUse::kReceive) == 0; }));
    std::vector<Buffer> others = take_all(MemoryUse::kEncode);
    Answer<Result<CommittedObject>> committed;
    writer->commit(CommitReason::kClose, committed.callback());
    EXPECT_TRUE(committed.here(kEventually));
    others.clear();
    const auto object = committed.get();
    ASSERT_TRUE(object) << object.error().message;
    EXPECT_TRUE(file("dir/file") == content) << file("dir/file").substr(0, 200);
}

class ChangedContainerTest : public ContainerTest {
protected:
    // All other memory is held by frames that wait to be encoded themselves: what is left for that is less than what
    // the file holds encoded and what encoding it anew takes.
    Result<CommittedObject> commit_changed_all_over() {
        const auto writer = open();
        write_halves(*writer, 11, content_);
        for (std::size_t offset = 5; offset < content_.size(); offset += kMiB) {
            EXPECT_TRUE(write(*writer, offset, "patched"));
            content_.replace(offset, 7, "patched");
        }
        EXPECT_TRUE(eventually([this] { return in_use(MemoryUse::kReceive) == 0; }));
        std::vector<Buffer> others = take_all(MemoryUse::kWrite);
        Answer<Result<CommittedObject>> committed;
        writer->commit(CommitReason::kClose, committed.callback());
        EXPECT_TRUE(committed.here(kEventually));
        others.clear();
        return committed.get();
    }
    void write_halves(FileWriter& writer, unsigned count, std::string& content) {
        for (unsigned number = 0; number < count; ++number) {
            const std::string more = half_noise(static_cast<unsigned>(content.size() / kMiB));
            ASSERT_TRUE(write(writer, content.size(), more));
            content += more;
            ASSERT_TRUE(eventually([this] { return in_use(MemoryUse::kReceive) == 0; }));
        }
    }

    std::string content_;
};

TEST_F(ChangedContainerTest, HoldsNothingThatItsEncodingWaitsFor) {
    const auto object = commit_changed_all_over();
    ASSERT_TRUE(object) << object.error().message;
    EXPECT_TRUE(file("dir/file") == content_);
}

TEST_F(ChangedContainerTest, FailsWhereTheDiskDoesNotTakeWhatItHolds) {
    environment.config.staging_dir = "/nonexistent";
    const auto object = commit_changed_all_over();
    ASSERT_FALSE(object);
    EXPECT_NE(object.error().message.find("/nonexistent"), std::string::npos) << object.error().message;
    EXPECT_TRUE(all_buffers_returned());
}

// They hold more than what the first of them waits for, and the disk takes nothing. One has to fail.
TEST_F(ChangedContainerTest, DoesNotWaitForOthersBehindItWhereTheDiskIsFull) {
    environment.config.staging_dir = "/nonexistent";
    std::vector<std::shared_ptr<FileWriter>> writers;
    std::vector<std::string> contents;
    for (const unsigned blocks : {2U, 13U, 13U, 13U}) {
        writers.push_back(open(std::nullopt, "dir/" + std::to_string(writers.size())));
        std::string content;
        write_halves(*writers.back(), blocks, content);
        for (std::size_t offset = 5; offset < std::min(content.size(), 8 * kMiB); offset += kMiB) {
            ASSERT_TRUE(write(*writers.back(), offset, "patched"));
            content.replace(offset, 7, "patched");
        }
        contents.push_back(content);
    }
    std::promise<void> go_on;
    const std::shared_future<void> may_go_on = go_on.get_future().share();
    for (int thread = 0; thread < kExecutorThreads; ++thread) {
        executor.post([may_go_on] { may_go_on.wait(); });
    }
    const Staging& queue = environment.writers.get(environment)->staging();
    std::vector<Answer<Result<CommittedObject>>> committed(writers.size());
    for (std::size_t number = 0; number < writers.size(); ++number) {
        writers[number]->commit(CommitReason::kClose, committed[number].callback());
        EXPECT_TRUE(eventually([&] { return queue.waiting() == number + 1; }));
    }
    go_on.set_value();
    std::size_t failed = 0;
    for (std::size_t number = 0; number < writers.size(); ++number) {
        const auto object = committed[number].get();
        if (object) {
            EXPECT_TRUE(file("dir/" + std::to_string(number)) == contents[number]) << number;
        } else {
            ++failed;
            EXPECT_NE(object.error().message.find("/nonexistent"), std::string::npos) << object.error().message;
        }
    }
    EXPECT_LE(failed, 1U);
    writers.clear();
    EXPECT_TRUE(all_buffers_returned());
}

TEST_F(ContainerTest, AFrameDoesNotWaitForMemoryThatTheOneBeforeItHolds) {
    const auto writer = open();
    const std::string content = half_noise(1) + half_noise(2) + "more";
    std::vector<Buffer> others = take_all(MemoryUse::kEncode);
    ASSERT_FALSE(others.empty());
    ASSERT_TRUE(write(*writer, 0, content));
    ASSERT_EQ(waiting(MemoryUse::kEncode), 2U);
    // All that can go to the disk is the unfinished frame, which comes behind the two.
    relieve(writer, Relief::kSpillOpen);
    others.pop_back();
    EXPECT_TRUE(eventually([this] { return waiting(MemoryUse::kEncode) == 0; }));
    others.clear();
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(file("dir/file") == content);
}

// The disk is slow, and answers for frames that are not there any more.
TEST_F(ContainerTest, AFrameThatIsCutWhileItGoesToTheDiskIsForgotten) {
    const auto writer = open();
    const std::string content = noise(2 * kMiB, 1);
    ASSERT_TRUE(write(*writer, 0, content));
    ASSERT_TRUE(eventually([this] { return in_use(MemoryUse::kEncode) == 0; }));
    std::promise<void> go_on;
    const std::shared_future<void> may_go_on = go_on.get_future().share();
    for (int thread = 0; thread < 2; ++thread) {
        staging.post([may_go_on] { may_go_on.wait(); });
    }
    relieve(writer, Relief::kSpillOpen);
    Answer<Status> cut;
    writer->truncate(kMiB, cut.callback());
    const std::string other = noise(kMiB, 2);
    Answer<Status> written;
    writer->write(kMiB, data(other), written.callback());
    if (written.here(std::chrono::milliseconds(200))) {
        EXPECT_TRUE(eventually([this] { return in_use(MemoryUse::kEncode) == 0; }));
    }
    go_on.set_value();
    ASSERT_TRUE(cut.get());
    ASSERT_TRUE(written.get());
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(file("dir/file") == content.substr(0, kMiB) + other);
}

// Somebody else wrote between the commit and the rename: a file of the same size, whose frames lie elsewhere.
TEST_F(ContainerTest, AppendsToTheVersionThatTheRenameFound) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, noise(7 * kMiB, 1)));
    ASSERT_TRUE(commit(*writer));
    const auto other = open(std::nullopt, "dir/renamed");
    const std::string theirs = std::string(kMiB, 'x') + noise(6 * kMiB, 2);
    ASSERT_TRUE(write(*other, 0, theirs));
    const auto copy = commit(*other);
    ASSERT_TRUE(copy);
    writer->committed_moved("dir/renamed", *copy);
    ASSERT_TRUE(write(*writer, 7 * kMiB, "more"));
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(file("dir/renamed") == theirs + "more");
}

TEST_F(ContainerTest, PatchesGoToTheDiskAndComeBack) {
    for (const std::uint64_t size : {3 * kMiB, 20 * kMiB}) {
        const std::string key = "dir/" + std::to_string(size);
        const auto writer = open(std::nullopt, key);
        std::string expected = noise(size, 1);
        ASSERT_TRUE(write(*writer, 0, expected));
        const auto patch = [&](std::uint64_t offset, const std::string& text) {
            const Status patched = write(*writer, offset, text);
            ASSERT_TRUE(patched) << patched.error().message;
            expected.replace(offset, text.size(), text);
        };
        const auto spill = [&] {
            ASSERT_TRUE(eventually([&] {
                relieve(writer, Relief::kSpillKept);
                relieve(writer, Relief::kSpillOpen);
                return in_use(MemoryUse::kWrite) == 0 && in_use(MemoryUse::kEncode) == 0;
            }));
        };
        patch(100, "a header of some length");
        patch(kMiB - 300'000, noise(600'000, 2));
        spill();
        patch(105, "in the middle");
        patch(110, "of what was staged");
        spill();
        patch(90, "over its beginning and on");
        patch(kMiB + 1, "x");
        const auto committed = commit(*writer);
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_TRUE(file(key) == expected) << size;
    }
}

// Each of so many files, in turn.
class ManyContainersTest : public ContainerTest {
protected:
    static constexpr std::size_t kFiles = 40;

    void open_all() {
        for (std::size_t number = 0; number < kFiles; ++number) {
            writers_.push_back(open(std::nullopt, "dir/file" + std::to_string(number)));
        }
        expected_.resize(kFiles);
    }
    bool append_to_all(std::uint64_t size, std::size_t piece, unsigned seed) {
        for (std::size_t number = 0; number < kFiles; ++number) {
            std::string text =
                noise(size / 2, seed + static_cast<unsigned>(number)) + std::string(size - size / 2, 'x');
            const Status written = write(*writers_[number], expected_[number].size(), text, piece);
            if (!written) {
                ADD_FAILURE() << number << ": " << written.error().message;
                return false;
            }
            expected_[number] += text;
        }
        return true;
    }
    bool patch_all() {
        for (std::size_t number = 0; number < kFiles; ++number) {
            const Status written = write(*writers_[number], 100, "patched");
            if (!written) {
                ADD_FAILURE() << number << ": " << written.error().message;
                return false;
            }
            expected_[number].replace(100, 7, "patched");
        }
        return true;
    }
    void commit_all() {
        for (std::size_t number = 0; number < kFiles; ++number) {
            const auto committed = commit(*writers_[number]);
            ASSERT_TRUE(committed) << number << committed.error().message;
            ASSERT_TRUE(file("dir/file" + std::to_string(number)) == expected_[number]) << number;
        }
    }

    std::vector<std::shared_ptr<FileWriter>> writers_;
    std::vector<std::string> expected_;
};

TEST_F(ManyContainersTest, GoOnAfterAllWerePatched) {
    open_all();
    ASSERT_TRUE(append_to_all(2 * kMiB, kMiB, 1));
    ASSERT_TRUE(patch_all());
    ASSERT_TRUE(append_to_all(kMiB, kMiB, 2));
    ASSERT_TRUE(patch_all());
    ASSERT_TRUE(append_to_all(kMiB, kMiB, 3));
    commit_all();
}

// Nothing of them is left in memory but the room behind the last frame.
TEST_F(ManyContainersTest, GoOnAfterAllSentAPart) {
    open_all();
    for (std::size_t number = 0; number < kFiles; ++number) {
        const std::string half = noise(kMiB / 2, static_cast<unsigned>(number)) + std::string(kMiB / 2, 'x');
        const int before = store.calls(Operation::kUploadPart);
        for (int block = 0; block < 11; ++block) {
            ASSERT_TRUE(write(*writers_[number], expected_[number].size(), half));
            expected_[number] += half;
        }
        ASSERT_TRUE(eventually([&] {
            relieve(writers_[number], Relief::kSendEarly);
            return store.calls(Operation::kUploadPart) > before;
        }));
    }
    ASSERT_TRUE(append_to_all(kMiB, kMiB, 2));
    commit_all();
}

}  // namespace
}  // namespace ckptfs::testing
