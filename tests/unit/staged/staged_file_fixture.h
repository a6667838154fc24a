// SPDX-License-Identifier: Apache-2.0
// A staged file with everything it needs, and what is written to it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "read/block_cache.h"
#include "staged/staged_file.h"
#include "unit/staged/contents.h"
#include "unit/write/writer_fixture.h"

namespace ckptfs::testing {

inline std::string words(std::uint64_t size) {
    std::string text;
    for (std::uint64_t word = 0; text.size() < size; ++word) {
        text += std::to_string(word % 1000) + " ";
    }
    text.resize(size);
    return text;
}

class StagedFileTest : public ::testing::TestWithParam<const char*>, protected WriterFixture {
protected:
    explicit StagedFileTest(std::uint64_t max_memory = 256 * kMiB) : WriterFixture(max_memory, {}, GetParam()) {}
    // A task that has answered may still hold a file that reads through what is destroyed here.
    ~StagedFileTest() override {
        staging.stop();
        executor.stop();
    }

    std::shared_ptr<FileWriter> open_staged(std::optional<CommittedObject> base = std::nullopt,
                                            Streaming streaming = Streaming::kWhileInOrder) {
        return make_staged_file({environment, read_environment, {"", "00000000-0000-4000-8000-000000000000"}}, kKey,
                                std::move(base), streaming);
    }
    // A file that is in the bucket, as writers made it.
    CommittedObject save(std::string_view content) {
        const auto writer = open();
        EXPECT_TRUE(write(*writer, 0, content));
        CommittedObject object = commit(*writer).value();
        store.reset_calls();
        return object;
    }
    static Result<std::string> read(FileWriter& file, std::uint64_t offset = 0, std::size_t size = 100 * kMiB) {
        std::string text;
        while (text.size() < size) {
            Answer<Result<Payload>> answer;
            file.read(offset + text.size(), size - text.size(), answer.callback());
            const Result<Payload> got = answer.get();
            if (!got) {
                return failure(got.error());
            }
            if (got->empty()) {
                break;
            }
            text += got->to_string();
        }
        return text;
    }
    void change(FileWriter& staged, std::string& text, std::uint64_t offset, const std::string& more) {
        ASSERT_TRUE(write(staged, offset, more));
        text.resize(std::max<std::size_t>(text.size(), offset + more.size()), '\0');
        text.replace(offset, more.size(), more);
    }
    [[nodiscard]] std::string saved() const { return file(kKey); }
    void expect_nothing_else_is_left() const {
        EXPECT_EQ(store.keys(), std::vector<std::string>{kKey});
        EXPECT_EQ(store.open_uploads(), 0);
    }
    void lose_the_answer_of_the_next_complete() {
        Error lost = store_error(EIO, "ServiceUnavailable", 503);
        lost.outcome_unknown = true;
        store.inject(Fault{Operation::kCompleteUpload, "", std::move(lost), 0, 1, true});
    }
    void make_staging_fail() { environment.config.staging_dir = "/nonexistent"; }

    BlockCache cache{*pool, clock};
    ReadEnvironment read_environment{store, *pool, executor, clock, *codec, cache, ReadConfig{}};
};

}  // namespace ckptfs::testing
