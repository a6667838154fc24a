// SPDX-License-Identifier: Apache-2.0
// Opening compressed files so large that their seek table does not fit into the first request.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/codecs.h"
#include "read/reading.h"
#include "support/held_executor.h"

namespace ckptfs::testing {
namespace {

// Of 1 TB: the table takes 12 MB, and there is room for two. A byte for each frame is enough to open it.
constexpr std::uint64_t kFrames = 1'000'000;
constexpr std::uint64_t kMaxMemory = 100'000'000;
constexpr int kOpens = 6;

class LargeTables : public ::testing::Test, protected Reading {
protected:
    using Opened = Awaited<std::shared_ptr<FileReader>>;

    void put(const std::string& key) {
        const auto encoder = files->encoder(key);
        const std::vector<FrameRecord> records(kFrames, FrameRecord{1, 0, false});
        store.put_object(key, std::string(kFrames, 'x') + encoder->tail(records, kFrames * kFrameSize).to_string(),
                         encoder->metadata(std::nullopt));
    }
    void open(ReadEnvironment& with, const std::string& key, const Opened& opened) {
        FileReader::open(with, key, "", false, opened.callback());
    }
    // Their first requests have been answered; what these lead to is held.
    std::vector<Opened> open_together(const std::vector<std::string>& keys) {
        std::vector<Opened> opened(keys.size());
        store.reset_calls();
        store.hold(Operation::kGet);
        for (std::size_t index = 0; index < keys.size(); ++index) {
            open(large, keys[index], opened[index]);
        }
        EXPECT_TRUE(store.wait_until_held(Operation::kGet, static_cast<int>(keys.size())));
        for (std::size_t index = 0; index < keys.size(); ++index) {
            store.release_one(Operation::kGet);
        }
        return opened;
    }

    std::unique_ptr<Codec> files = std::move(make_codec({"auto", {}}, kMaxMemory).value());
    ReadEnvironment large{store, pool, executor, clock, *files, cache, {}};
};

TEST_F(LargeTables, AreFetchedWhereThereIsRoomForThem) {
    std::vector<std::string> keys;
    for (int index = 0; index < kOpens; ++index) {
        keys.push_back("k" + std::to_string(index));
        put(keys.back());
    }
    std::vector<Opened> opened = open_together(keys);
    EXPECT_EQ(store.calls(Operation::kGet), kOpens + 2);
    store.release(Operation::kGet);
    std::vector<std::shared_ptr<FileReader>> readers;
    for (Opened& one : opened) {
        auto reader = one.get();
        if (reader) {
            readers.push_back(std::move(*reader));
        } else {
            EXPECT_EQ(reader.error().errno_value, ENOMEM) << reader.error().message;
        }
    }
    EXPECT_EQ(readers.size(), 2U);
}

// As the ranks of a job do: all tables but one are given back.
TEST_F(LargeTables, OfOneFileThatManyOpenAtOnceAreNotTooMany) {
    put("k");
    std::vector<Opened> opened = open_together(std::vector<std::string>(kOpens, "k"));
    EXPECT_EQ(store.calls(Operation::kGet), kOpens + 2);
    store.release(Operation::kGet);
    for (Opened& one : opened) {
        const auto reader = one.get();
        ASSERT_TRUE(reader) << reader.error().message;
        EXPECT_EQ((*reader)->size(), kFrames * kFrameSize);
    }
    // Those that waited found it open.
    EXPECT_EQ(store.calls(Operation::kGet), kOpens + 2);
}

// A container whose description was lost is read as it is stored, also beside who opened it before.
TEST_F(LargeTables, OneThatIsOpenIsNotWhatHasLostItsDescription) {
    store.make_etags_of_content();
    put("k");
    Opened described;
    open(large, "k", described);
    const auto held = described.get();
    ASSERT_TRUE(held);
    const std::string stored = store.content("k");
    store.put_object("k", stored);
    Opened bare;
    open(large, "k", bare);
    const auto reader = bare.get();
    ASSERT_TRUE(reader);
    EXPECT_EQ((*reader)->size(), stored.size());
}

TEST_F(LargeTables, ThatCannotBeFetchedGiveTheirRoomBack) {
    put("k");
    for (int round = 0; round < 3; ++round) {
        store.inject(Fault{Operation::kGet, "k", store_error(EIO, "InternalError", 400), 1, 1, false});
        Opened opened;
        open(large, "k", opened);
        const auto reader = opened.get();
        ASSERT_FALSE(reader);
        EXPECT_EQ(reader.error().errno_value, EIO) << reader.error().message;
    }
    Opened opened;
    open(large, "k", opened);
    EXPECT_TRUE(opened.get());
}

TEST_F(LargeTables, AreReadByTheExecutor) {
    put("k");
    HeldExecutor held;
    ReadEnvironment with_it{store, pool, held, clock, *files, cache, {}};
    held.hold();
    Opened opened;
    open(with_it, "k", opened);
    EXPECT_TRUE(held.wait_for(1));
    EXPECT_FALSE(opened.ready());
    // Who opens a file does not queue behind what is encoded.
    EXPECT_EQ(held.urgent(), 1U);
    held.release();
    EXPECT_TRUE(opened.get());
}

}  // namespace
}  // namespace ckptfs::testing
