// SPDX-License-Identifier: Apache-2.0
#include "read/file_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "read/reading.h"
#include "read/tail_request.h"

namespace ckptfs::testing {
namespace {

// --- open

TEST(OpenFile, SmallFileIsOneRequest) {
    Reading reading;
    const std::string content = content_of(4096);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    EXPECT_EQ(reader->size(), content.size());
    EXPECT_EQ(reader->object().etag, reading.store.info("k").etag);
    const auto stream = reader->open_stream();
    EXPECT_EQ(Reading::read(*reader, stream, 0, 8192).value(), content);
    EXPECT_EQ(Reading::read(*reader, stream, 100, 50).value(), content.substr(100, 50));
    EXPECT_EQ(reading.store.calls(), 1);
}

TEST(OpenFile, ZipDirectoryAtTheEndNeedsNoSecondRequest) {
    Reading reading;
    const std::string content = content_of(5 * kMiB + 12345);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    for (const std::size_t back : {22U, 42U, 98U, 4096U, 200'000U}) {
        EXPECT_EQ(Reading::read(*reader, stream, content.size() - back, back).value(),
                  content.substr(content.size() - back));
    }
    EXPECT_EQ(Reading::read(*reader, stream, content.size() - 5000, 10).value(),
              content.substr(content.size() - 5000, 10));
    EXPECT_EQ(reading.store.calls(), 1);
}

TEST(OpenFile, EmptyObjects) {
    Reading reading;
    reading.store.put_object("k", "");
    EXPECT_EQ(reading.open("k")->size(), 0U);
    reading.store.refuse_suffix_ranges = true;
    const auto reader = reading.open("k");
    EXPECT_EQ(reader->size(), 0U);
    EXPECT_EQ(Reading::read(*reader, reader->open_stream(), 0, 100).value(), "");
}

TEST(OpenFile, KnownEmptyNeedsNoRequest) {
    Reading reading;
    reading.store.put_object("k", "");
    const auto reader = reading.try_open("k", reading.store.info("k").etag, true).value();
    EXPECT_EQ(reader->size(), 0U);
    EXPECT_EQ(reading.store.calls(), 0);
}

// Else its first bytes would be taken for its last.
TEST(OpenFile, WhatHasGrownSinceItsSizeWasAskedForIsAnotherVersion) {
    Reading reading;
    reading.store.refuse_suffix_ranges = true;
    reading.store.describe_without_etags();
    reading.store.put_object("k", content_of(100));
    reading.store.hold(Operation::kGet);
    Awaited<std::shared_ptr<FileReader>> opened;
    FileReader::open(reading.environment, "k", "", false, opened.callback());
    ASSERT_TRUE(reading.store.wait_until_held(Operation::kGet, 1));
    reading.store.put_object("k", content_of(500, 2));
    reading.store.release(Operation::kGet);
    EXPECT_EQ(opened.get().error().errno_value, ESTALE);
}

TEST(OpenFile, StoreWithoutSuffixRangesIsAskedForTheSize) {
    Reading reading;
    reading.store.refuse_suffix_ranges = true;
    const std::string content = content_of(3 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    EXPECT_EQ(Reading::read(*reader, reader->open_stream(), content.size() - 100, 100).value(),
              content.substr(content.size() - 100));
    EXPECT_EQ(reading.store.calls(Operation::kHead), 1);
    EXPECT_EQ(reading.store.ranges().size(), 2U);
    EXPECT_EQ(reading.store.requests_for_open(), 2);
}

TEST(OpenFile, MissingObject) {
    Reading reading;
    EXPECT_EQ(reading.try_open("k").error().errno_value, ENOENT);
    EXPECT_EQ(reading.try_open("k", "\"gone\"").error().errno_value, ESTALE);
    reading.store.refuse_suffix_ranges = true;
    EXPECT_EQ(reading.try_open("k").error().errno_value, ENOENT);
}

TEST(OpenFile, OtherVersionIsStale) {
    Reading reading;
    reading.store.put_object("k", "one");
    const std::string etag = reading.store.info("k").etag;
    reading.store.put_object("k", "two");
    EXPECT_EQ(reading.try_open("k", etag).error().errno_value, ESTALE);
    EXPECT_TRUE(reading.try_open("k", reading.store.info("k").etag).has_value());
    reading.store.refuse_suffix_ranges = true;
    reading.store.put_object("k", "");
    EXPECT_EQ(reading.try_open("k", etag).error().errno_value, ESTALE);
}

TEST(OpenFile, FailureOfTheStoreIsReturned) {
    Reading reading;
    reading.store.put_object("k", "one");
    reading.store.inject(Fault{Operation::kGet, "", store_error(EACCES, "AccessDenied", 403)});
    EXPECT_EQ(reading.try_open("k").error().errno_value, EACCES);
    // Half of the answer is no answer.
    reading.store.inject(Fault{Operation::kGet, "", store_error(EIO, "", 0), 0, 1, true});
    EXPECT_EQ(reading.try_open("k").error().errno_value, EIO);
    EXPECT_TRUE(reading.try_open("k").has_value());
}

TEST(OpenFile, VersionReadBeforeIsServedFromMemory) {
    Reading reading;
    const std::string content = content_of(8 * kMiB);
    reading.store.put_object("k", content);
    {
        const auto reader = reading.open("k");
        EXPECT_EQ(Reading::read(*reader, reader->open_stream(), 0, 8 * kMiB).value(), content);
    }
    reading.store.reset_calls();
    const auto reader = reading.open("k");
    EXPECT_EQ(Reading::read(*reader, reader->open_stream(), 0, 8 * kMiB).value(), content);
    EXPECT_EQ(reading.store.calls(), 1);
}

// --- read

TEST(ReadFile, EndOfFile) {
    Reading reading;
    const std::string content = content_of(2 * kMiB + 10);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    EXPECT_EQ(Reading::read(*reader, stream, 2 * kMiB, 100).value(), content.substr(2 * kMiB));
    EXPECT_EQ(Reading::read(*reader, stream, kMiB + 5, 2 * kMiB).value(), content.substr(kMiB + 5));
    EXPECT_EQ(Reading::read(*reader, stream, content.size(), 100).value(), "");
    EXPECT_EQ(Reading::read(*reader, stream, content.size() + kMiB, 100).value(), "");
    EXPECT_EQ(Reading::read(*reader, stream, 0, 0).value(), "");
}

TEST(ReadFile, SequentialReadFetchesEachBlockOnceInFewRequests) {
    Reading reading;
    const std::string content = content_of(128 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    for (std::size_t offset = 0; offset < content.size(); offset += 128 << 10) {
        ASSERT_EQ(Reading::read(*reader, stream, offset, 128 << 10).value(), content.substr(offset, 128 << 10));
    }
    expect_disjoint(reading.store.ranges());
    // The store answers inline here, so the window has no reason to grow: at most one request a block.
    EXPECT_LE(reading.store.calls(), 130);
    EXPECT_LE(reading.cache.statistics().bytes_fetched, 128 * kMiB);
    EXPECT_EQ(reading.cache.statistics().bytes_wasted, 0U);
}

TEST(ReadFile, ReadAheadFillsTheLinkWhileTheReaderWaits) {
    constexpr std::size_t kBlocks = 96;
    Reading reading(300, kBlocks);
    const std::string content = content_of(200 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    std::uint64_t most_in_flight = 0;
    for (std::size_t offset = 0; offset < content.size(); offset += kMiB) {
        reading.store.hold(Operation::kGet);
        Awaited<Payload> answer;
        reader->read(stream, offset, kMiB, answer.callback());
        most_in_flight = std::max(most_in_flight, reading.cache.statistics().requests_in_flight);
        if (!answer.ready()) {
            reading.store.release(Operation::kGet);
        }
        ASSERT_EQ(answer.get().value().to_string(), content.substr(offset, kMiB));
    }
    reading.store.release(Operation::kGet);
    expect_disjoint(reading.store.ranges());
    // Three quarters of the blocks, by four.
    EXPECT_GE(most_in_flight, 18U);
    EXPECT_LE(reading.store.calls(), 80);
    EXPECT_EQ(reading.cache.statistics().bytes_wasted, 0U);
}

TEST(CacheLimits, HoldAsManyBlocksAsKeepTheRequestsBusy) {
    EXPECT_EQ(BlockCache::Limits::for_requests(48).blocks, 256U);
    EXPECT_EQ(BlockCache::Limits::for_requests(48).requests_ahead, 48U);
    EXPECT_EQ(BlockCache::Limits::for_requests(144).blocks, 768U);
    EXPECT_EQ(BlockCache::Limits::for_requests(1).blocks, 256U);
    EXPECT_EQ(BlockCache::Limits::for_requests(0).requests_ahead, 1U);
}

TEST(ReadFile, MoreRequestsAreAheadWhereThereAreMoreConnections) {
    const BlockCache::Limits limits = BlockCache::Limits::for_requests(60);
    Reading reading(equal_pool(400), limits.blocks, limits.requests_ahead);
    const std::string content = content_of(350 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    std::uint64_t most_in_flight = 0;
    for (std::size_t offset = 0; offset < content.size() && most_in_flight < 58; offset += kMiB) {
        reading.store.hold(Operation::kGet);
        Awaited<Payload> answer;
        reader->read(stream, offset, kMiB, answer.callback());
        most_in_flight = std::max(most_in_flight, reading.cache.statistics().requests_in_flight);
        if (!answer.ready()) {
            reading.store.release(Operation::kGet);
        }
        ASSERT_TRUE(answer.get());
    }
    reading.store.release(Operation::kGet);
    EXPECT_GE(most_in_flight, 58U);
}

TEST(ReadFile, EightReadersShareEachFetch) {
    Reading reading;
    reading.store.answer_from_threads(4);
    const std::string content = content_of(64 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    std::vector<std::thread> readers;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 8; ++i) {
        readers.emplace_back([&] {
            const auto stream = reader->open_stream();
            for (std::size_t offset = 0; offset < content.size(); offset += kMiB) {
                const auto bytes = Reading::read(*reader, stream, offset, kMiB);
                wrong += bytes && *bytes == content.substr(offset, kMiB) ? 0 : 1;
            }
        });
    }
    for (std::thread& thread : readers) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0);
    expect_disjoint(reading.store.ranges());
    EXPECT_LE(reading.cache.statistics().bytes_fetched, 64 * kMiB);
}

TEST(ReadFile, IsAnsweredAsSoonAsItsBytesAreThere) {
    Reading reading;
    reading.store.set_body_piece(64 << 10);
    const std::string content = content_of(8 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    reading.store.hold(Operation::kGet);
    // Answered inline by the first bytes of the block, before the whole block is there.
    std::uint64_t held_when_answered = 0;
    Awaited<Payload> answer;
    reader->read(stream, 4 * kMiB, 4096, [&](Result<Payload> payload) {
        held_when_answered = reading.cache.statistics().requests_in_flight;
        answer.callback()(std::move(payload));
    });
    EXPECT_FALSE(answer.ready());
    reading.store.release(Operation::kGet);
    EXPECT_EQ(answer.get().value().to_string(), content.substr(4 * kMiB, 4096));
    EXPECT_EQ(held_when_answered, 1U);
}

TEST(ReadFile, TorchLoadTakesFewRequests) {
    // 4 KiB at the head, the directory at the end, then members in order: a small read and a large one each.
    Reading reading;
    const std::string content = content_of(40 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    static_cast<void>(Reading::read(*reader, stream, 0, 4096));
    for (const std::size_t back : {4096U, 22U, 42U, 98U, 60'000U}) {
        static_cast<void>(Reading::read(*reader, stream, content.size() - back, back));
    }
    for (std::size_t member = 4096; member + 3 * kMiB < content.size(); member += 3 * kMiB) {
        static_cast<void>(Reading::read(*reader, stream, member, 4096));
        for (std::size_t piece = 0; piece < 3; ++piece) {
            const std::size_t offset = member + 4096 + piece * kMiB;
            ASSERT_EQ(Reading::read(*reader, stream, offset, kMiB).value(), content.substr(offset, kMiB));
        }
    }
    expect_disjoint(reading.store.ranges());
    EXPECT_LE(reading.store.calls(), 41);
    EXPECT_LE(reading.cache.statistics().misses, 5U);
}

// --- failures

TEST(ReadFile, ReplacedVersionIsStaleAndStaysSo) {
    Reading reading;
    const std::string content = content_of(64 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    EXPECT_TRUE(Reading::read(*reader, stream, 40 * kMiB, 10).has_value());
    reading.store.put_object("k", content_of(64 * kMiB, 2));
    EXPECT_EQ(Reading::read(*reader, stream, 20 * kMiB, 10).error().errno_value, ESTALE);
    reading.store.reset_calls();
    EXPECT_EQ(Reading::read(*reader, stream, 10 * kMiB, 10).error().errno_value, ESTALE);
    EXPECT_EQ(reading.store.calls(), 0);
    // What is in memory is still that version.
    EXPECT_EQ(Reading::read(*reader, stream, 40 * kMiB, 10).value(), content.substr(40 * kMiB, 10));
}

// By a store whose answers to GetObject carry neither ETag nor time.
TEST(ReadFile, BytesOfAVersionThatIsKnownAtTheEndAloneAreHeldBack) {
    Reading reading;
    reading.store.put_object("k", content_of(64 * kMiB));
    const auto reader = reading.open("k");
    reading.store.tells_versions_last = true;
    const auto stream = reader->open_stream();
    EXPECT_EQ(Reading::read(*reader, stream, 20 * kMiB, 10).error().errno_value, ESTALE);
}

TEST(ReadFile, RemovedObjectIsStale) {
    Reading reading;
    reading.store.put_object("k", content_of(64 * kMiB));
    const auto reader = reading.open("k");
    reading.store.remove("k", [](Status) {});
    EXPECT_EQ(Reading::read(*reader, reader->open_stream(), 20 * kMiB, 10).error().errno_value, ESTALE);
}

TEST(ReadFile, FailedFetchFailsItsReadersAndCanBeTriedAgain) {
    Reading reading;
    const std::string content = content_of(8 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    reading.store.inject(Fault{Operation::kGet, "", store_error(EIO, "InternalError", 500)});
    const Error error = Reading::read(*reader, stream, 4 * kMiB, 100).error();
    EXPECT_EQ(error.errno_value, EIO);
    EXPECT_EQ(error.request_id, "FAKE");
    EXPECT_EQ(Reading::read(*reader, stream, 4 * kMiB, 100).value(), content.substr(4 * kMiB, 100));
}

TEST(ReadFile, TruncatedAnswerFailsOnlyWhatDidNotArrive) {
    Reading reading;
    const std::string content = content_of(8 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    reading.store.inject(Fault{Operation::kGet, "", store_error(EIO, "", 0), 0, 1, true});
    // The answer breaks off after 512 KiB of the block.
    EXPECT_EQ(Reading::read(*reader, stream, 4 * kMiB, 1000).value(), content.substr(4 * kMiB, 1000));
    reading.store.inject(Fault{Operation::kGet, "", store_error(EIO, "", 0), 0, 1, true});
    EXPECT_EQ(Reading::read(*reader, stream, 6 * kMiB, kMiB).error().errno_value, EIO);
    EXPECT_EQ(Reading::read(*reader, stream, 4 * kMiB, kMiB).value(), content.substr(4 * kMiB, kMiB));
    EXPECT_EQ(Reading::read(*reader, stream, 6 * kMiB, kMiB).value(), content.substr(6 * kMiB, kMiB));
}

// --- memory

TEST(ReadFile, ClosingAHandleEndsItsReadAhead) {
    Reading reading;
    reading.store.put_object("k", content_of(64 * kMiB));
    const auto reader = reading.open("k");
    auto stream = reader->open_stream();
    reading.store.hold(Operation::kGet);
    Awaited<Payload> answer;
    reader->read(stream, 0, 10, answer.callback());
    ASSERT_TRUE(reading.store.wait_until_held(Operation::kGet, 5));
    stream.reset();
    reading.store.release(Operation::kGet);
    EXPECT_TRUE(answer.get().has_value());
    EXPECT_TRUE(reading.comes_to_rest());
    // Only the block that was asked for has come.
    EXPECT_EQ(reading.cache.statistics().bytes_fetched, kMiB);
}

TEST(ReadFile, AbandonedReadAheadIsFetchedAgainWhenWanted) {
    Reading reading;
    const std::string content = content_of(64 * kMiB);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
    auto stream = reader->open_stream();
    reading.store.hold(Operation::kGet);
    Awaited<Payload> answer;
    reader->read(stream, 0, 10, answer.callback());
    ASSERT_TRUE(reading.store.wait_until_held(Operation::kGet, 5));
    stream.reset();
    Awaited<Payload> again;
    reader->read(reader->open_stream(), 2 * kMiB, 10, again.callback());
    reading.store.release(Operation::kGet);
    EXPECT_EQ(again.get().value().to_string(), content.substr(2 * kMiB, 10));
}

}  // namespace
}  // namespace ckptfs::testing
