// SPDX-License-Identifier: Apache-2.0
#include "staged/staged_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codec/bf16.h"
#include "unit/codec/float_data.h"
#include "unit/staged/staged_file_fixture.h"

namespace ckptfs::testing {
namespace {

std::string rounded_to_bf16(const std::string& floats) {
    std::vector<std::uint16_t> rounded(floats.size() / 4);
    round_to_bf16(as_bytes(floats).data(), rounded.size(), rounded.data());
    return {reinterpret_cast<const char*>(rounded.data()), 2 * rounded.size()};
}

INSTANTIATE_TEST_SUITE_P(Codecs, StagedFileTest, ::testing::Values("none", "auto"));

TEST_P(StagedFileTest, ChangesLieOverTheBaseUntilTheCommit) {
    std::string text = bytes(12 * kMiB + 77);
    const auto staged = open_staged(save(text));
    const std::string before = text;
    for (const std::uint64_t offset : {std::uint64_t{5}, 6 * kMiB - 3, 12 * kMiB + 74}) {
        change(*staged, text, offset, "changed");
    }
    EXPECT_EQ(read(*staged).value(), text);
    EXPECT_EQ(saved(), before);
    EXPECT_TRUE(staged->dirty());
    ASSERT_TRUE(commit(*staged));
    EXPECT_FALSE(staged->dirty());
    EXPECT_EQ(saved(), text);
    EXPECT_EQ(read(*staged).value(), text);
    expect_nothing_else_is_left();
}

TEST_P(StagedFileTest, WhatComesBeforeTheFirstChangeIsCopiedInTheStore) {
    std::string text = bytes(30 * kMiB);
    const auto staged = open_staged(save(text));
    change(*staged, text, 29 * kMiB + 5, "changed");
    ASSERT_TRUE(commit(*staged));
    EXPECT_EQ(saved(), text);
    EXPECT_EQ(store.calls(Operation::kUploadPartCopy), 1);
    EXPECT_EQ(store.calls(Operation::kUploadPart), 1);
}

TEST_P(StagedFileTest, WhatLiesBetweenTwoChangesIsCopiedInTheStore) {
    std::string text = bytes(60 * kMiB + 5);
    const auto staged = open_staged(save(text), Streaming::kNever);
    change(*staged, text, 100, "changed");
    change(*staged, text, 40 * kMiB - 3, "changed");
    ASSERT_TRUE(commit(*staged));
    EXPECT_EQ(saved(), text);
    EXPECT_EQ(read(*staged).value(), text);
    EXPECT_EQ(store.calls(Operation::kUploadPartCopy), 2);
    EXPECT_EQ(store.calls(Operation::kUploadPart), GetParam() == std::string("none") ? 2 : 3);
    expect_nothing_else_is_left();
}

// A mapping that changed pages here and there: a request for each gap would be waited for before the next.
TEST_P(StagedFileTest, WhatLiesBetweenManyChangesOfAFrameIsFetchedAtOnce) {
    std::string text = bytes(20 * kMiB);
    const auto staged = open_staged(save(text), Streaming::kNever);
    constexpr std::uint64_t kPage = 4096;
    for (std::uint64_t index = 0; index < 64; ++index) {
        change(*staged, text, 8 * kMiB + index * 2 * kPage, bytes(kPage, index + 1));
    }
    store.reset_calls();
    ASSERT_TRUE(commit(*staged));
    EXPECT_TRUE(saved() == text);
    // Of five frames, and what is read ahead of them.
    EXPECT_LE(store.calls(Operation::kGet), 20);
}

// As h5py does: the header says where the file ends.
TEST_P(StagedFileTest, AFileThatGrowsBehindAChangedHeaderSendsWhatIsNew) {
    std::string text = bytes(30 * kMiB + 5);
    const auto staged = open_staged(save(text));
    for (std::uint64_t seed = 1; seed < 4; ++seed) {
        store.reset_calls();
        change(*staged, text, 40, "header" + std::to_string(seed));
        change(*staged, text, text.size(), bytes(3 * kMiB, seed));
        ASSERT_TRUE(commit(*staged));
        EXPECT_EQ(saved(), text);
        EXPECT_EQ(store.calls(Operation::kUploadPartCopy), 1);
        EXPECT_EQ(store.calls(Operation::kUploadPart), 2);
    }
}

TEST_P(StagedFileTest, IsWhatWasWrittenHoweverManyRunsAreCopied) {
    for (unsigned round = 0; round < 8; ++round) {
        std::mt19937_64 random(round);
        std::string text = bytes((20 + random() % 40) * kMiB + random() % 3, round);
        const auto staged = open_staged(save(text));
        for (int step = 0; step < 3; ++step) {
            for (std::uint64_t changes = random() % 4; changes > 0; --changes) {
                const std::uint64_t size = random() % (6 * kMiB);
                // Some of it takes less than a part would.
                change(*staged, text, random() % text.size(), random() % 2 == 0 ? bytes(size, random()) : words(size));
            }
            if (random() % 4 == 0) {
                text.resize(text.size() / 2 + random() % text.size());
                ASSERT_TRUE(truncate(*staged, text.size()));
            }
            ASSERT_TRUE(commit(*staged));
            ASSERT_TRUE(saved() == text) << "seed " << round << ", commit " << step;
        }
        expect_nothing_else_is_left();
    }
}

TEST_P(StagedFileTest, SendsWhatAStoreDoesNotCopy) {
    std::string text = bytes(40 * kMiB);
    const auto staged = open_staged(save(text), Streaming::kNever);
    change(*staged, text, 5, "changed");
    store.inject(Fault{Operation::kUploadPartCopy, "", store_error(EOPNOTSUPP, "NotImplemented", 501), 0, 100, false});
    ASSERT_TRUE(commit(*staged));
    EXPECT_TRUE(saved() == text);
    EXPECT_FALSE(staged->failed());
    EXPECT_TRUE(no_upload_left());
    expect_nothing_else_is_left();
}

// Those would be decoded from what has changed.
TEST_P(StagedFileTest, CopiesNoFramesThatReferToOthers) {
    const std::string floats(as_text(fp32(8 * kMiB, 1)));
    std::string text = rounded_to_bf16(floats) + bytes(12 * kMiB) + floats + bytes(7 * kMiB, 1);
    StillClock still_clock;
    // One after the other: which frames find others does not hang on chance.
    ThreadPool encoder{"encoder", 1};
    WriteEnvironment still{store, *pool, encoder, staging, still_clock, *codec, {}};
    const auto writer = FileWriter::create(still, kKey, std::nullopt);
    ASSERT_TRUE(write(*writer, 0, text));
    const CommittedObject base = commit(*writer).value();
    ASSERT_EQ(store.content(kKey).size() < 26 * kMiB, GetParam() == std::string("auto"));
    if (GetParam() == std::string("auto")) {
        // Who says that none refers to others is not believed.
        std::string lies = store.content(kKey);
        lies[lies.size() - 5] = static_cast<char>(0x81);
        EXPECT_NE(file(store.info(kKey), lies).find("although the table says"), std::string::npos);
    }
    const auto staged = open_staged(base, Streaming::kNever);
    store.reset_calls();
    change(*staged, text, 2 * kMiB, bytes(kMiB, 2));
    ASSERT_TRUE(commit(*staged));
    EXPECT_TRUE(saved() == text);
    change(*staged, text, 50, "once more");
    ASSERT_TRUE(commit(*staged));
    EXPECT_TRUE(saved() == text);
    // The table of a container says only whether there are any.
    EXPECT_EQ(store.calls(Operation::kUploadPartCopy) > 0, GetParam() == std::string("none"));
}

TEST_P(StagedFileTest, OpenedAndNotChangedItIsNotWritten) {
    const std::string text = bytes(3 * kMiB);
    const auto staged = open_staged(save(text));
    EXPECT_EQ(read(*staged, 5, 100).value(), text.substr(5, 100));
    EXPECT_FALSE(staged->dirty());
    const Result<CommittedObject> object = commit(*staged);
    ASSERT_TRUE(object);
    EXPECT_EQ(store.calls(Operation::kPut) + store.calls(Operation::kCreateUpload), 0);
}

TEST_P(StagedFileTest, ANewFileInOrderNeedsNoDisk) {
    const std::string text = bytes(30 * kMiB);
    const auto staged = open_staged();
    ASSERT_TRUE(write(*staged, 0, std::string_view(text).substr(0, 9 * kMiB)));
    make_staging_fail();
    ASSERT_TRUE(write(*staged, 9 * kMiB, std::string_view(text).substr(9 * kMiB)));
    EXPECT_TRUE(eventually([&] { return staged->progress().bytes_in_store > 0; }));
    EXPECT_FALSE(store.exists(kKey));
    ASSERT_TRUE(commit(*staged));
    EXPECT_EQ(saved(), text);
    expect_nothing_else_is_left();
}

TEST_P(StagedFileTest, ANewFileThatIsSmallIsOneRequest) {
    std::string text;
    const auto staged = open_staged();
    change(*staged, text, 300'000, "back");
    change(*staged, text, 10, "forth");
    EXPECT_EQ(read(*staged).value(), text);
    EXPECT_EQ(store.calls(), 0);
    ASSERT_TRUE(commit(*staged));
    EXPECT_EQ(store.calls(), 1);
    EXPECT_EQ(saved(), text);
}

TEST_P(StagedFileTest, GoesBackAfterItBeganToStream) {
    std::string text = bytes(40 * kMiB);
    const auto staged = open_staged();
    ASSERT_TRUE(write(*staged, 0, text));
    EXPECT_TRUE(eventually([&] { return store.calls(Operation::kCreateUpload) == 1; }));
    change(*staged, text, 20 * kMiB, "middle");
    EXPECT_FALSE(store.exists(kKey));
    change(*staged, text, 41 * kMiB, "behind a hole");
    EXPECT_EQ(read(*staged).value(), text);
    ASSERT_TRUE(commit(*staged));
    EXPECT_EQ(saved(), text);
    expect_nothing_else_is_left();
}

TEST_P(StagedFileTest, IsReadBackAfterItBeganToStream) {
    const std::string text = bytes(40 * kMiB);
    const auto staged = open_staged();
    ASSERT_TRUE(write(*staged, 0, text));
    EXPECT_EQ(read(*staged).value(), text);
    ASSERT_TRUE(commit(*staged));
    EXPECT_EQ(saved(), text);
    expect_nothing_else_is_left();
}

TEST_P(StagedFileTest, AppendsToTheBaseAsAStream) {
    std::string text = bytes(20 * kMiB + 3);
    const auto staged = open_staged(save(text));
    const std::string more = bytes(20 * kMiB, 7);
    ASSERT_TRUE(write(*staged, text.size(), more));
    EXPECT_TRUE(eventually([&] { return store.calls(Operation::kCreateUpload) == 1; }));
    // Of the base, without leaving the stream.
    EXPECT_EQ(read(*staged, 100, 50).value(), text.substr(100, 50));
    EXPECT_EQ(store.calls(Operation::kCompleteUpload), 0);
    ASSERT_TRUE(commit(*staged));
    EXPECT_EQ(saved(), text + more);
    expect_nothing_else_is_left();
}

TEST_P(StagedFileTest, IsCutWhileItStreams) {
    const std::string text = bytes(40 * kMiB);
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{5}, 25 * kMiB, 39 * kMiB, 45 * kMiB}) {
        const auto staged = open_staged();
        ASSERT_TRUE(write(*staged, 0, text));
        ASSERT_TRUE(truncate(*staged, size));
        EXPECT_EQ(staged->size(), size);
        std::string expected = text;
        expected.resize(size);
        EXPECT_EQ(read(*staged).value(), expected);
        ASSERT_TRUE(commit(*staged));
        EXPECT_EQ(saved(), expected);
        expect_nothing_else_is_left();
    }
}

TEST_P(StagedFileTest, IsCommittedUnderTheNameItHasByThen) {
    for (const std::uint64_t size : {kMiB, 30 * kMiB}) {
        const std::string text = bytes(size);
        const auto staged = open_staged();
        ASSERT_TRUE(write(*staged, 0, text));
        ASSERT_TRUE(staged->move_to("dir/renamed"));
        ASSERT_TRUE(commit(*staged));
        EXPECT_EQ(file("dir/renamed"), text);
        EXPECT_EQ(store.keys(), std::vector<std::string>{"dir/renamed"});
    }
}

TEST_P(StagedFileTest, GoesOnAfterACommit) {
    std::string text;
    const auto staged = open_staged();
    for (int round = 0; round < 3; ++round) {
        change(*staged, text, text.size(), bytes(10 * kMiB, static_cast<std::uint64_t>(round)));
        change(*staged, text, 3 * kMiB, std::string(5, static_cast<char>('a' + round)));
        ASSERT_TRUE(commit(*staged, CommitReason::kFsync));
        EXPECT_EQ(saved(), text);
        EXPECT_EQ(read(*staged).value(), text);
        expect_nothing_else_is_left();
    }
}

TEST_P(StagedFileTest, AFullDiskFailsTheFileAndHarmsNothing) {
    const std::string text = bytes(6 * kMiB);
    environment.config.staging_dir = "/proc/self";
    const auto staged = open_staged(save(text));
    const Status status = write(*staged, 3, "changed");
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("dir/file"), std::string::npos);
    EXPECT_NE(status.error().message.find("--staging-dir /proc/self"), std::string::npos);
    EXPECT_FALSE(write(*staged, 3, "again"));
    EXPECT_FALSE(commit(*staged));
    EXPECT_EQ(saved(), text);
}

TEST_P(StagedFileTest, AbortLeavesNothingBehind) {
    const std::string text = bytes(40 * kMiB);
    for (const bool back : {false, true}) {
        const CommittedObject base = save("before");
        const auto staged = open_staged();
        ASSERT_TRUE(write(*staged, 0, text));
        if (back) {
            ASSERT_TRUE(write(*staged, 20 * kMiB, "changed"));
        }
        ASSERT_TRUE(abort(*staged));
        EXPECT_EQ(saved(), "before");
        expect_nothing_else_is_left();
        EXPECT_FALSE(commit(*staged));
        EXPECT_FALSE(read(*staged));
    }
}

TEST_P(StagedFileTest, AnAbortThatComesTooLateForTheHiddenObjectRemovesIt) {
    for (const bool back : {false, true}) {
        const auto staged = open_staged();
        store.reset_calls();
        ASSERT_TRUE(write(*staged, 0, bytes(40 * kMiB)));
        // A stream of which nothing has left is committed under its own name.
        ASSERT_TRUE(eventually([this] { return store.calls(Operation::kUploadPart) > 0; }));
        store.hold(Operation::kCompleteUpload);
        Answer<Status> changed;
        Answer<Result<CommittedObject>> committed;
        if (back) {
            staged->write(20 * kMiB, data("changed"), changed.callback());
        } else {
            staged->commit(CommitReason::kClose, committed.callback());
        }
        ASSERT_TRUE(store.wait_until_held(Operation::kCompleteUpload, 1));
        Answer<Status> aborted;
        staged->abort(Error(), aborted.callback());
        store.release(Operation::kCompleteUpload);
        EXPECT_TRUE(aborted.get());
        EXPECT_FALSE(back ? changed.get() : Status(committed.get() ? Status() : failure(EIO, "refused")));
        EXPECT_EQ(store.keys(), std::vector<std::string>());
        EXPECT_EQ(store.open_uploads(), 0);
    }
}

TEST_P(StagedFileTest, AFailureOfTheStoreIsKeptAndPublishesNothing) {
    const std::string text = bytes(40 * kMiB);
    for (const Operation operation :
         {Operation::kUploadPart, Operation::kCompleteUpload, Operation::kUploadPartCopy, Operation::kCreateUpload}) {
        const CommittedObject base = save("before");
        for (int skip = 0; skip < 3; ++skip) {
            store.inject(Fault{operation, "", store_error(EIO, "InternalError", 400), skip, 1, false});
            const auto staged = open_staged();
            static_cast<void>(write(*staged, 0, text));
            const Result<CommittedObject> object = commit(*staged);
            if (!object) {
                EXPECT_EQ(saved(), "before");
                EXPECT_FALSE(write(*staged, 0, "again"));
                EXPECT_TRUE(staged->failed());
                static_cast<void>(abort(*staged));
            } else {
                EXPECT_EQ(saved(), text);
                save("before");
            }
            store.clear_faults();
            EXPECT_TRUE(eventually([&] { return store.open_uploads() == 0; }));
            expect_nothing_else_is_left();
        }
    }
}

TEST_P(StagedFileTest, ABaseThatIsGoneFailsTheCommit) {
    for (const std::uint64_t size : {6 * kMiB, 40 * kMiB}) {
        const CommittedObject base = save(bytes(size));
        save("another version");
        const auto staged = open_staged(base);
        ASSERT_TRUE(write(*staged, 5, "changed"));
        EXPECT_FALSE(commit(*staged));
        EXPECT_EQ(saved(), "another version");
    }
}

TEST_P(StagedFileTest, ACommitThatCannotCopyPublishesNothing) {
    const std::string before = bytes(40 * kMiB);
    for (const Operation operation : {Operation::kUploadPartCopy, Operation::kUploadPart, Operation::kGet}) {
        for (int skip = 0; skip < 3; ++skip) {
            std::string text = before;
            const auto staged = open_staged(save(text), Streaming::kNever);
            change(*staged, text, 5, "changed");
            change(*staged, text, 25 * kMiB, "changed");
            store.inject(Fault{operation, "", store_error(EIO, "InternalError", 400), skip, 1, false});
            const Result<CommittedObject> object = commit(*staged);
            EXPECT_TRUE(saved() == (object ? text : before));
            EXPECT_EQ(staged->failed().has_value(), !object);
            store.clear_faults();
            if (!object) {
                ASSERT_TRUE(abort(*staged));
            }
            expect_nothing_else_is_left();
        }
    }
}

class StagedFilesInLittleMemory : public ::testing::Test, protected WriterFixture {
protected:
    StagedFilesInLittleMemory() : WriterFixture(65 * kMiB, {}, "auto") {}
    ~StagedFilesInLittleMemory() override {
        staging.stop();
        executor.stop();
    }
    StagedFilesInLittleMemory(const StagedFilesInLittleMemory&) = delete;
    StagedFilesInLittleMemory& operator=(const StagedFilesInLittleMemory&) = delete;

    BlockCache cache{*pool, clock};
    ReadEnvironment read_environment{store, *pool, executor, clock, *codec, cache, ReadConfig{}};
};

// What is changed of each takes more than a part may, once it compresses and once it refers to others.
TEST_F(StagedFilesInLittleMemory, AreCommittedTogether) {
    const std::string floats(as_text(fp32(8 * kMiB, 1)));
    const std::string changed = rounded_to_bf16(floats) + words(5 * kMiB) + floats;
    std::vector<std::string> texts;
    std::vector<std::shared_ptr<FileWriter>> files;
    for (std::uint64_t index = 0; index < 6; ++index) {
        const std::string key = "dir/file" + std::to_string(index);
        std::string text = bytes(45 * kMiB, index);
        const auto writer = open(std::nullopt, key);
        ASSERT_TRUE(write(*writer, 0, text));
        const CommittedObject base = commit(*writer).value();
        files.push_back(make_staged_file({environment, read_environment, {"", "00000000-0000-4000-8000-000000000000"}},
                                         key, base, Streaming::kNever));
        text.replace(index * kMiB, changed.size(), changed);
        ASSERT_TRUE(write(*files.back(), index * kMiB, changed));
        texts.push_back(std::move(text));
    }
    store.reset_calls();
    std::vector<Answer<Result<CommittedObject>>> answers(files.size());
    for (std::size_t index = 0; index < files.size(); ++index) {
        files[index]->commit(CommitReason::kClose, answers[index].callback());
    }
    for (std::size_t index = 0; index < files.size(); ++index) {
        const auto object = answers[index].get();
        ASSERT_TRUE(object) << object.error().message;
        EXPECT_TRUE(file("dir/file" + std::to_string(index)) == texts[index]);
    }
    EXPECT_GE(store.calls(Operation::kUploadPartCopy), 6);
}

}  // namespace
}  // namespace ckptfs::testing
