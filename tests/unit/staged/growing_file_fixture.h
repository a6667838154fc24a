// SPDX-License-Identifier: Apache-2.0
// A growing file with everything it needs, and what is written to it.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "staged/growing_file.h"
#include "support/temporary_directory.h"
#include "support/unlinked_files.h"
#include "unit/staged/contents.h"
#include "unit/write/writer_fixture.h"

namespace ckptfs::testing {

inline std::string squares(std::uint64_t size) {
    std::string text;
    for (std::uint64_t word = 0; text.size() < size; ++word) {
        text += std::to_string(word * word % 100'003) + " ";
    }
    text.resize(size);
    return text;
}

class GrowingFileTest : public ::testing::TestWithParam<const char*>, protected WriterFixture {
public:
    explicit GrowingFileTest(std::uint64_t max_memory = 256 * kMiB) : WriterFixture(max_memory, {}, GetParam()) {
        environment.config.staging_dir = disk.path();
    }
    ~GrowingFileTest() override {
        staging.stop();
        executor.stop();
    }

protected:
    std::shared_ptr<FileWriter> grow(std::optional<CommittedObject> base = std::nullopt,
                                     Overwrite overwrite = Overwrite::kAllowed) {
        return make_growing_file(environment, kKey, std::move(base), overwrite);
    }
    CommittedObject save(std::string_view content) {
        const auto writer = open();
        EXPECT_TRUE(write(*writer, 0, content));
        CommittedObject object = commit(*writer).value();
        store.reset_calls();
        return object;
    }
    void add(FileWriter& file, std::string& text, const std::string& more) {
        for (std::size_t at = 0; at < more.size(); at += kMiB) {
            ASSERT_TRUE(append(file, std::string_view(more).substr(at, kMiB)));
        }
        text += more;
        EXPECT_EQ(file.size(), text.size());
    }
    static Result<CommittedObject> publish(FileWriter& file) { return commit(file, CommitReason::kPublish); }
    [[nodiscard]] std::string saved() const { return file(kKey); }
    int fetches_of_a_round(FileWriter& file, std::string& text) {
        store.reset_calls();
        add(file, text, "more");
        EXPECT_TRUE(publish(file));
        EXPECT_TRUE(saved() == text);
        return store.calls(Operation::kGet);
    }
    void expect_no_further_fetch(FileWriter& file, std::string& text) {
        // What a commit fetches goes to the disk beside it, and may come there after it.
        EXPECT_TRUE(eventually([&] { return fetches_of_a_round(file, text) == 0; })) << text.size();
        for (int round = 0; round < 3; ++round) {
            EXPECT_EQ(fetches_of_a_round(file, text), 0) << text.size();
        }
    }
    void lose(Operation operation, int times, bool after_effect = false) {
        store.inject(Fault{operation, "", store_error(EIO, "ServiceUnavailable", 503), 0, times, after_effect});
    }
    void flip_a_staged_bit() const {
        const auto files = unlinked_files(disk.path());
        ASSERT_EQ(files.size(), 1U);
        ASSERT_TRUE(flip_a_bit(files[0], 0));
    }
    void expect_nothing_else_is_left() {
        EXPECT_TRUE(no_upload_left());
        EXPECT_EQ(store.keys(), std::vector<std::string>{kKey});
    }

    const TemporaryDirectory disk;
};

}  // namespace ckptfs::testing
