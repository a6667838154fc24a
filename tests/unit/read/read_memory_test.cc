// SPDX-License-Identifier: Apache-2.0
// Reading with little memory: every read ends, and the cache keeps to its share.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "read/reading.h"
#include "support/large_table.h"

namespace ckptfs::testing {
namespace {

TEST(ReadMemory, ReadsThroughATinyPool) {
    for (const std::size_t buffers : {2U, 3U, 5U, 9U}) {
        Reading reading(buffers);
        const std::string content = content_of(32 * kMiB);
        reading.store.put_object("k", content);
        const auto reader = reading.open("k");
        const auto stream = reader->open_stream();
        for (std::size_t offset = 100; offset + kMiB < content.size(); offset += kMiB) {
            ASSERT_EQ(Reading::read(*reader, stream, offset, kMiB).value(), content.substr(offset, kMiB));
        }
        EXPECT_LE(reading.pool.usage().peak_in_use, buffers);
    }
}

TEST(ReadMemory, ManyReadersOfATinyPoolAllEnd) {
    Reading reading(4);
    reading.store.answer_from_threads(4);
    const std::string content = content_of(48 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    std::vector<std::thread> readers;
    std::atomic<int> wrong{0};
    for (std::uint32_t i = 0; i < 12; ++i) {
        readers.emplace_back([&, i] {
            std::mt19937 random(i);
            const auto stream = reader->open_stream();
            for (int n = 0; n < 40; ++n) {
                // Every read spans two blocks.
                const std::size_t offset = random() % 46 * kMiB + kMiB / 2;
                const auto bytes = Reading::read(*reader, stream, offset, kMiB);
                wrong += bytes && *bytes == content.substr(offset, kMiB) ? 0 : 1;
            }
        });
    }
    for (std::thread& thread : readers) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_LE(reading.pool.usage().peak_in_use, 4U);
}

// Its hook runs before each buffer is taken.
class HookedPool final : public BufferPool {
public:
    explicit HookedPool(BufferPool& pool) : pool_(pool) {}
    std::optional<Buffer> try_take(MemoryUse use) override {
        if (before_taking) {
            before_taking();
        }
        return pool_.try_take(use);
    }
    void take(MemoryUse use, Ready ready) override { pool_.take(use, std::move(ready)); }
    void recharge(Buffer buffer, MemoryUse use, Ready ready) override {
        pool_.recharge(std::move(buffer), use, std::move(ready));
    }
    bool try_recharge(Buffer& buffer, MemoryUse use) override { return pool_.try_recharge(buffer, use); }
    void add_pressure_listener(std::function<bool(MemoryUse)> relieve) override {
        pool_.add_pressure_listener(std::move(relieve));
    }
    [[nodiscard]] PoolUsage usage() const override { return pool_.usage(); }

    std::function<void()> before_taking;

private:
    void put_back(std::byte* /*data*/, MemoryUse /*use*/) override {}

    BufferPool& pool_;
};

TEST(ReadMemory, WhatIsReadAheadIsNotLeftToARequestThatAnotherHasGivenUp) {
    const std::unique_ptr<MemoryPool> memory = equal_pool(20);
    HookedPool pool(*memory);
    ManualClock clock;
    BlockCache cache(pool, clock);
    ObjectInfo object;
    object.key = "k";
    object.size = 8 * kMiB;
    const auto version = cache.version(object, PlainCodec().layout(object, {}).value());
    int taken = 0;
    pool.before_taking = [&] {
        if (++taken == 2) {
            cache.abandon(*version, {0, 1});
        }
    };
    const BlockCache::Claim claim = cache.claim_ahead(*version, {0, 4}, 4);
    ASSERT_EQ(claim.runs.size(), 2U);
    EXPECT_TRUE(claim.runs[0]->abandoned);
    EXPECT_EQ(claim.runs[0]->blocks.size(), 1U);
    EXPECT_FALSE(claim.runs[1]->abandoned);
    EXPECT_EQ(claim.runs[1]->blocks.size(), 3U);
    for (const auto& run : claim.runs) {
        cache.finish(*run, std::nullopt);
    }
}

// A copy loses the description of a container, and another brings it back: with the same bytes, and the same ETag.
TEST(ReadMemory, AnotherLayoutIsAnotherVersion) {
    Reading reading;
    ObjectInfo object;
    object.key = "k";
    object.etag = "\"same\"";
    object.size = 3 * kMiB;
    const auto plain = PlainCodec().layout(object, {}).value();
    const auto version = reading.cache.version(object, plain);
    EXPECT_EQ(reading.cache.version(object, plain), version);
    ObjectInfo described = object;
    described.size = 5 * kMiB;
    EXPECT_NE(reading.cache.version(object, PlainCodec().layout(described, {}).value()), version);
}

TEST(CachedVersion, IsAskedForByAllThatTellsItFromOthers) {
    ObjectInfo object;
    object.key = "k";
    object.etag = "\"one\"";
    object.size = 3 * kMiB;
    object.last_modified = WallTime(std::chrono::seconds(1'640'995'200));
    const GetRequest request =
        CachedVersion(object, PlainCodec().layout(object, {}).value()).request(ByteRange{kMiB, 10, false});
    EXPECT_EQ(request.key, object.key);
    EXPECT_EQ(request.if_match, object.etag);
    EXPECT_EQ(request.if_size, object.size);
    EXPECT_EQ(request.if_modified, object.last_modified);
}

TEST(ReadMemory, GivesUpWhatNoReadHasAskedForLately) {
    Reading reading;
    const std::string content = content_of(24 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    for (std::size_t offset = 0; offset < 12 * kMiB; offset += kMiB) {
        ASSERT_TRUE(Reading::read(*reader, stream, offset, kMiB).has_value());
    }
    ASSERT_TRUE(reading.comes_to_rest());
    const SteadyTime then = reading.clock.now() + std::chrono::seconds(5);
    // What an answer holds is not given up.
    Awaited<Payload> held;
    reader->read(stream, 3 * kMiB, kMiB, held.callback());
    const Payload payload = held.get().value();
    reading.clock.move(std::chrono::seconds(10));
    ASSERT_EQ(Reading::read(*reader, stream, 11 * kMiB, kMiB).value(), content.substr(11 * kMiB, kMiB));
    EXPECT_GT(reading.cache.statistics().blocks_held, 10U);
    reading.cache.forget_unused(then);
    ASSERT_TRUE(reading.comes_to_rest());
    const std::uint64_t held_now = reading.cache.statistics().blocks_held;
    EXPECT_GE(held_now, 2U);
    EXPECT_LE(held_now, 6U);
    EXPECT_EQ(reading.pool.usage().free_buffers + held_now, reading.pool.usage().total_buffers);
    EXPECT_EQ(payload.to_string(), content.substr(3 * kMiB, kMiB));
    // It is fetched again.
    ASSERT_EQ(Reading::read(*reader, stream, kMiB, kMiB).value(), content.substr(kMiB, kMiB));
}

// Of compressed files; two have room.
class SeekTables : public ::testing::Test {
protected:
    SeekTables() {
        const LargeTable table = large_table();
        for (const char* key : {"a", "b", "c"}) {
            reading.store.put_object(key, table.content, table.metadata);
        }
    }
    Result<std::shared_ptr<FileReader>> open(const std::string& key) {
        Awaited<std::shared_ptr<FileReader>> opened;
        FileReader::open(environment, key, "", false, opened.callback());
        return opened.get();
    }

    Reading reading;
    const std::unique_ptr<Codec> codec = make_codec({"auto", {}}, kMemoryForTwoTables).value();
    ReadEnvironment environment{
        reading.store, reading.pool, reading.executor, reading.clock, *codec, reading.cache, {}};
};

TEST_F(SeekTables, OfClosedFilesMakeRoomForOthers) {
    codec->when_tables_are_short([this] { reading.cache.forget_closed(); });
    for (const char* key : {"a", "b", "c", "a"}) {
        const auto reader = open(key);
        ASSERT_TRUE(reader) << key << ": " << reader.error().message;
    }
    // The end of the object and the rest of its table.
    EXPECT_EQ(reading.store.requests_for_open(), 4 * 2);
}

TEST_F(SeekTables, OfOpenFilesLeaveRoomForNoneButTheirOwn) {
    codec->when_tables_are_short([this] { reading.cache.forget_closed(); });
    auto first = open("a");
    const auto second = open("b");
    ASSERT_TRUE(first);
    ASSERT_TRUE(second);
    EXPECT_EQ(open("c").error().errno_value, ENOMEM);
    EXPECT_TRUE(open("a"));
    first = failure(ENOENT, "closed");
    EXPECT_TRUE(open("c"));
}

TEST_F(SeekTables, AreGivenUpWhenNobodyHasReadLately) {
    for (const char* key : {"a", "b", "c"}) {
        ASSERT_TRUE(open(key)) << key;
        reading.clock.move(std::chrono::seconds(60));
        reading.cache.forget_unused(reading.clock.now() - std::chrono::seconds(30));
    }
}

TEST(ReadMemory, StaysWithinItsBlocks) {
    Reading reading(300, 32);
    const std::string content = content_of(100 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    for (std::size_t offset = 0; offset < content.size(); offset += kMiB) {
        ASSERT_TRUE(Reading::read(*reader, stream, offset, kMiB).has_value());
        EXPECT_LE(reading.cache.statistics().blocks_held, 32U);
    }
    expect_disjoint(reading.store.ranges());
}

TEST(ReadMemory, WhatAClosedHandleHadReadAheadMakesRoomForOthers) {
    Reading reading(300, 6);
    const std::string content = content_of(64 * kMiB);
    reading.store.put_object("closed", content);
    reading.store.put_object("k", content);
    const auto first = reading.open("closed");
    {
        const auto stream = first->open_stream();
        ASSERT_TRUE(Reading::read(*first, stream, 0, 10).has_value());
        ASSERT_TRUE(reading.comes_to_rest());
    }
    const std::uint64_t before = reading.cache.statistics().bytes_fetched;
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    Awaited<Payload> kept;
    reader->read(stream, 0, 10, kept.callback());
    const Payload payload = kept.get().value();
    ASSERT_TRUE(reading.comes_to_rest());
    EXPECT_EQ(reading.cache.statistics().bytes_fetched - before, (1 + ReadWindow::kFirstWindow) * kMiB);
    EXPECT_GE(reading.cache.statistics().bytes_wasted, 3 * kMiB);
}

TEST(ReadMemory, CacheGivesWayToWriters) {
    Reading reading(16);
    const std::string content = content_of(64 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    Awaited<Payload> kept;
    reader->read(stream, 0, kMiB, kept.callback());
    const Payload payload = kept.get().value();
    for (std::size_t offset = kMiB; offset < 64 * kMiB; offset += kMiB) {
        static_cast<void>(Reading::read(*reader, stream, offset, kMiB));
    }
    // All but the block that an answer still refers to.
    std::vector<Buffer> taken;
    for (int i = 0; i < 15; ++i) {
        reading.pool.take(MemoryUse::kWrite, [&](Buffer buffer) { taken.push_back(std::move(buffer)); });
    }
    EXPECT_EQ(taken.size(), 15U);
    EXPECT_EQ(payload.to_string(), content.substr(0, kMiB));
}

TEST(ReadMemory, BlockThatBecomesIdleGoesToTheWriterThatWaits) {
    Reading reading(2);
    reading.store.put_object("k", content_of(4 * kMiB));
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    Awaited<Payload> first;
    Awaited<Payload> second;
    reader->read(stream, 0, 10, first.callback());
    reader->read(stream, kMiB, 10, second.callback());
    auto one = std::make_unique<Payload>(first.get().value());
    const Payload two = second.get().value();
    bool got = false;
    reading.pool.take(MemoryUse::kWrite, [&](Buffer) { got = true; });
    EXPECT_FALSE(got);
    one.reset();
    EXPECT_TRUE(got);
}

TEST(ReadMemory, BlockThatBecomesIdleGoesToTheReadThatWaits) {
    Reading reading(2);
    const std::string content = content_of(4 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    Awaited<Payload> first;
    Awaited<Payload> second;
    reader->read(stream, 0, 10, first.callback());
    reader->read(stream, kMiB, 10, second.callback());
    auto one = std::make_unique<Payload>(first.get().value());
    const Payload two = second.get().value();
    Awaited<Payload> third;
    reader->read(stream, 2 * kMiB, 10, third.callback());
    EXPECT_FALSE(third.ready());
    one.reset();
    EXPECT_EQ(third.get().value().to_string(), content.substr(2 * kMiB, 10));
}

// A pool in which writers and readers have shares.
std::unique_ptr<MemoryPool> shared_pool(std::size_t total, MemoryShare write, MemoryShare read) {
    MemoryShares shares;
    shares.total = total;
    shares.of[static_cast<std::size_t>(MemoryUse::kWrite)] = write;
    shares.of[static_cast<std::size_t>(MemoryUse::kRead)] = read;
    return MemoryPool::create(shares, nullptr, nullptr).value();
}

TEST(ReadMemory, WriterAtItsCapDoesNotEmptyTheCache) {
    Reading reading(shared_pool(16, MemoryShare{2, 4}, MemoryShare{2, 12}));
    reading.store.put_object("k", content_of(10 * kMiB));
    const auto reader = reading.open("k");
    ASSERT_TRUE(Reading::read(*reader, reader->open_stream(), 0, 8 * kMiB).has_value());
    const std::uint64_t held = reading.cache.statistics().blocks_held;
    std::vector<Buffer> taken;
    for (int i = 0; i < 5; ++i) {
        reading.pool.take(MemoryUse::kWrite, [&](Buffer buffer) { taken.push_back(std::move(buffer)); });
    }
    EXPECT_EQ(taken.size(), 4U);
    EXPECT_EQ(reading.cache.statistics().blocks_held, held);
    std::exchange(taken, {}).clear();
    EXPECT_EQ(taken.size(), 1U);
}

TEST(ReadMemory, CacheKeepsItsReserve) {
    Reading reading(shared_pool(16, MemoryShare{2, 16}, MemoryShare{4, 14}));
    reading.store.put_object("k", content_of(13 * kMiB));
    const auto reader = reading.open("k");
    ASSERT_TRUE(Reading::read(*reader, reader->open_stream(), 0, 12 * kMiB).has_value());
    std::vector<Buffer> taken;
    for (int i = 0; i < 14; ++i) {
        reading.pool.take(MemoryUse::kWrite, [&](Buffer buffer) { taken.push_back(std::move(buffer)); });
    }
    EXPECT_EQ(taken.size(), 12U);
    EXPECT_EQ(reading.cache.statistics().blocks_held, 4U);
    // The two that wait get theirs from these.
    std::exchange(taken, {}).clear();
    EXPECT_EQ(taken.size(), 2U);
}

TEST(ReadMemory, ReadThatFindsNoMemoryWaitsForIt) {
    Reading reading(2);
    const std::string content = content_of(4 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    std::vector<Buffer> taken;
    for (int i = 0; i < 2; ++i) {
        reading.pool.take(MemoryUse::kWrite, [&](Buffer buffer) { taken.push_back(std::move(buffer)); });
    }
    ASSERT_EQ(taken.size(), 2U);
    Awaited<Payload> first;
    Awaited<Payload> second;
    reader->read(stream, kMiB / 2, kMiB, first.callback());
    reader->read(stream, 2 * kMiB, 10, second.callback());
    taken.pop_back();
    EXPECT_FALSE(first.ready());
    EXPECT_FALSE(second.ready());
    taken.clear();
    EXPECT_EQ(first.get().value().to_string(), content.substr(kMiB / 2, kMiB));
    EXPECT_EQ(second.get().value().to_string(), content.substr(2 * kMiB, 10));
}

// Six reads in memory for two, the store held.
struct ReadsInTheQueue : Reading {
    ReadsInTheQueue() : Reading(2) {
        store.put_object("k", content);
        reader = open("k");
        store.hold(Operation::kGet);
        const auto stream = reader->open_stream();
        for (std::size_t i = 0; i < answers.size(); ++i) {
            reader->read(stream, i * kMiB, 10, answers[i].callback());
        }
    }
    void fail_one() {
        ASSERT_TRUE(store.wait_until_held(Operation::kGet, 2));
        Fault fault;
        fault.operation = Operation::kGet;
        fault.error = store_error(EIO, "ServiceUnavailable", 503);
        fault.error.retryable = true;
        store.inject(fault);
        store.release_one(Operation::kGet);
    }
    void expect_answer(std::size_t i) {
        EXPECT_EQ(answers[i].get().value().to_string(), content.substr(i * kMiB, 10)) << i;
    }

    const std::string content = content_of(8 * kMiB);
    std::shared_ptr<FileReader> reader;
    std::array<Awaited<Payload>, 6> answers;
};

// Else each would ask for as long as requests are retried, one after the other.
TEST(ReadMemory, AFetchThatTheStoreDoesNotAnswerFailsReadsThatHaveWaitedAsLong) {
    ReadsInTheQueue reading;
    reading.fail_one();
    reading.fail_one();
    EXPECT_FALSE(reading.answers[0].get());
    EXPECT_FALSE(reading.answers[1].get());
    reading.fail_one();
    EXPECT_FALSE(reading.answers[2].get());
    // The fifth was the next to be served, with the memory that the third had.
    const Error error = reading.answers[5].get().error();
    EXPECT_EQ(error.errno_value, EIO);
    EXPECT_TRUE(error.message.starts_with("k: waiting for memory: ")) << error.message;
    reading.store.release(Operation::kGet);
    reading.expect_answer(3);
    reading.expect_answer(4);
}

// Between the one that is next, which has to stay, and those that came since.
TEST(ReadMemory, ReadsThatFailBetweenOthersLeaveThoseWhereTheyAre) {
    ReadsInTheQueue reading;
    reading.fail_one();
    EXPECT_FALSE(reading.answers[0].get());
    std::array<Awaited<Payload>, 6> later;
    const auto stream = reading.reader->open_stream();
    for (std::size_t i = 0; i < later.size(); ++i) {
        reading.reader->read(stream, i * kMiB + kMiB / 2, 10, later[i].callback());
    }
    reading.fail_one();
    EXPECT_FALSE(reading.answers[1].get());
    // It began when the first had failed.
    reading.fail_one();
    EXPECT_FALSE(reading.answers[2].get());
    reading.store.release(Operation::kGet);
    for (std::size_t i = 3; i < 6; ++i) {
        static_cast<void>(reading.answers[i].get());
    }
    for (std::size_t i = 0; i < later.size(); ++i) {
        EXPECT_EQ(later[i].get().value().to_string(), reading.content.substr(i * kMiB + kMiB / 2, 10)) << i;
    }
    EXPECT_TRUE(
        eventually([&] { return reading.pool.usage().waiting[static_cast<std::size_t>(MemoryUse::kRead)] == 0; }));
}

TEST(ReadMemory, ReadsThatCameLaterThanAFetchThatFailedAskThemselves) {
    ReadsInTheQueue reading;
    reading.fail_one();
    EXPECT_FALSE(reading.answers[0].get());
    reading.store.release(Operation::kGet);
    for (std::size_t i = 1; i < 6; ++i) {
        reading.expect_answer(i);
    }
}

}  // namespace
}  // namespace ckptfs::testing
