// SPDX-License-Identifier: Apache-2.0
// Reading frames that refer to earlier bytes of their file.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/executors.h"
#include "read/reading.h"
#include "support/held_executor.h"

namespace ckptfs::testing {
namespace {

constexpr std::uint64_t kFrames = 8;
constexpr std::size_t kHalf = kFrameSize / 2;
constexpr std::uint64_t kShift = 300'000;

// The frames of the second half of the file begin with bytes of its first half, which are zeros in the object.
FileRange referenced_by(std::uint64_t frame) {
    return frame < kFrames ? FileRange{} : FileRange{(frame - kFrames) * kHalf + kShift, kHalf};
}

std::string referring_content() {
    std::string content = content_of(2 * kFrames * kFrameSize);
    for (std::uint64_t frame = kFrames; frame < 2 * kFrames; ++frame) {
        const FileRange range = referenced_by(frame);
        content.replace(frame * kFrameSize, range.size, content.substr(range.offset, range.size));
    }
    return content;
}

std::string stored_form(std::string content) {
    for (std::uint64_t frame = kFrames; frame < 2 * kFrames; ++frame) {
        content.replace(frame * kFrameSize, kHalf, std::string(kHalf, '\0'));
    }
    return content;
}

// A frame that says, so many times, that it refers to the one before it, as if a bit of it had flipped on its way.
struct Flipped {
    std::uint64_t frame = 0;
    std::atomic<int> times{0};
    // The one before it does not decode.
    bool follows_damage = false;
};

class ReferringLayout : public FrameLayout {
public:
    ReferringLayout(std::uint64_t size, bool chained, Flipped& flipped)
        : plain_(make_plain_layout(described(size))), chained_(chained), flipped_(flipped) {}

    [[nodiscard]] std::uint64_t size() const override { return plain_->size(); }
    [[nodiscard]] Frame frame_at(std::uint64_t offset) const override { return plain_->frame_at(offset); }
    [[nodiscard]] bool identity() const override { return false; }
    [[nodiscard]] const std::vector<FrameRecord>& records() const override { return plain_->records(); }
    [[nodiscard]] Result<std::vector<FileRange>> references(const Frame& frame, const Payload&) const override {
        if (frame.index == flipped_.frame && flipped_.times.fetch_sub(1) > 0) {
            return std::vector<FileRange>{{frame.offset - kHalf, kHalf}};
        }
        if (frame.index < kFrames) {
            return std::vector<FileRange>();
        }
        if (chained_ && frame.index == 2 * kFrames - 1) {
            return std::vector<FileRange>{{frame.offset - kHalf, kHalf}};
        }
        const FileRange range = referenced_by(frame.index);
        return std::vector<FileRange>{{range.offset, 1000}, {range.offset + 1000, kHalf - 1000}};
    }
    Status decode(const Frame& frame, const Payload& stored, const Payload& referenced,
                  MutableByteSpan target) const override {
        if (flipped_.follows_damage && frame.index + 1 == flipped_.frame) {
            return failure(EIO, "it does not decode");
        }
        if (Status copied = plain_->decode(frame, stored, {}, target); !copied) {
            return copied;
        }
        if (frame.index >= kFrames && referenced.copy_to(0, target) != kHalf) {
            return failure(EIO, "something is missing");
        }
        return frame.index < kFrames && !referenced.empty() ? failure(EIO, "it needs nothing") : Status();
    }

private:
    static ObjectInfo described(std::uint64_t size) {
        ObjectInfo object;
        object.size = size;
        return object;
    }

    const std::shared_ptr<const FrameLayout> plain_;
    const bool chained_;
    Flipped& flipped_;
};

class ReferringCodec : public PlainCodec {
public:
    Result<std::shared_ptr<const FrameLayout>> layout(const ObjectInfo& object, const Payload&) const override {
        return std::make_shared<const ReferringLayout>(object.size, chained, flipped);
    }
    bool chained = false;
    mutable Flipped flipped;
};

struct ReferringReading : Reading {
    explicit ReferringReading(std::size_t buffers = 300) : Reading(buffers) {
        store.put_object("k", stored_form(content));
    }

    std::shared_ptr<FileReader> open() {
        Awaited<std::shared_ptr<FileReader>> opened;
        FileReader::open(referring_environment, "k", "", false, opened.callback());
        return opened.get().value();
    }
    [[nodiscard]] std::uint64_t fetched() const { return cache.statistics().bytes_fetched; }

    const std::string content = referring_content();
    ReferringCodec referring;
    ThreadPool threads{"test", 3};
    ReadEnvironment referring_environment{store, pool, threads, clock, referring, cache, {}};
};

constexpr std::size_t kFile = 2 * kFrames * kFrameSize;

TEST(ReferenceRead, BytesThatFramesReferToAreFetchedOnce) {
    ReferringReading reading;
    const auto reader = reading.open();
    const auto stream = reader->open_stream();
    for (std::size_t offset = kFile / 2; offset < kFile; offset += kFrameSize) {
        ASSERT_EQ(Reading::read(*reader, stream, offset, kFrameSize).value(),
                  reading.content.substr(offset, kFrameSize));
    }
    expect_disjoint(reading.store.ranges());
    EXPECT_LE(reading.fetched(), kFile / 2 + (kFrames / 2 + 1) * kFrameSize);
    EXPECT_TRUE(reading.comes_to_rest());
}

TEST(ReferenceRead, EveryByteOfTheFileIsItsOwn) {
    ReferringReading reading;
    const auto reader = reading.open();
    const auto stream = reader->open_stream();
    std::mt19937 random(1);
    for (int n = 0; n < 60; ++n) {
        const std::size_t offset = random() % (kFile - 3 * kMiB);
        ASSERT_TRUE(Reading::read(*reader, stream, offset, 2 * kMiB).value() ==
                    reading.content.substr(offset, 2 * kMiB));
    }
}

TEST(ReferenceRead, FramesThatWaitForOthersDoNotWaitForEachOther) {
    // A frame takes two buffers, and those that it refers to four more.
    for (const std::size_t buffers : {2U, 3U, 4U, 5U, 9U}) {
        ReferringReading reading(buffers);
        reading.store.answer_from_threads(4);
        const auto reader = reading.open();
        std::vector<std::thread> readers;
        std::atomic<int> wrong{0};
        for (std::uint32_t i = 0; i < 8; ++i) {
            readers.emplace_back([&, i] {
                std::mt19937 random(i);
                const auto stream = reader->open_stream();
                for (int n = 0; n < 12; ++n) {
                    const std::size_t offset = kFile / 2 + random() % kFrames * kFrameSize + 10;
                    const auto bytes = Reading::read(*reader, stream, offset, 1000);
                    wrong += bytes && *bytes == reading.content.substr(offset, 1000) ? 0 : 1;
                }
            });
        }
        for (std::thread& thread : readers) {
            thread.join();
        }
        EXPECT_EQ(wrong, 0) << buffers;
        EXPECT_LE(reading.pool.usage().peak_in_use, buffers);
    }
}

TEST(ReferenceRead, ReferencesAreFollowedOnce) {
    constexpr std::size_t kLast = kFile - kFrameSize;
    for (const std::size_t buffers : {2U, 300U}) {
        for (const bool cached : {false, true}) {
            ReferringReading reading(buffers);
            reading.referring.chained = true;
            const auto reader = reading.open();
            const auto stream = reader->open_stream();
            if (cached) {
                ASSERT_TRUE(Reading::read(*reader, stream, kLast - kFrameSize, kFrameSize).has_value());
            }
            const auto bytes = Reading::read(*reader, stream, kLast, 1000);
            ASSERT_FALSE(bytes);
            EXPECT_EQ(bytes.error().errno_value, EIO);
            EXPECT_NE(bytes.error().message.find("damaged"), std::string::npos) << bytes.error().message;
            // The frame in between is sound.
            EXPECT_EQ(Reading::read(*reader, stream, kLast - kFrameSize, 1000).value(),
                      reading.content.substr(kLast - kFrameSize, 1000));
        }
    }
}

TEST(ReferenceRead, AFrameThatCameWithOtherReferencesIsFetchedOnceMore) {
    constexpr std::uint64_t kLast = 2 * kFrames - 1;
    const std::uint64_t needed = referenced_by(kLast).offset / kFrameSize;
    for (const std::size_t buffers : {2U, 300U}) {
        for (const std::uint64_t frame : {kLast, needed}) {
            // One that is referred to may be in memory already.
            for (const bool read_before : {false, true}) {
                ReferringReading reading(buffers);
                reading.referring.flipped.frame = frame;
                reading.referring.flipped.times = 1;
                const auto reader = reading.open();
                const auto stream = reader->open_stream();
                if (read_before) {
                    EXPECT_EQ(Reading::read(*reader, stream, needed * kFrameSize, 1000).value(),
                              reading.content.substr(needed * kFrameSize, 1000));
                }
                const auto bytes = Reading::read(*reader, stream, kLast * kFrameSize, 1000);
                ASSERT_TRUE(bytes) << buffers << ' ' << frame << ' ' << read_before << bytes.error().message;
                EXPECT_EQ(*bytes, reading.content.substr(kLast * kFrameSize, 1000));
                EXPECT_LE(reading.referring.flipped.times, 0);
            }
        }
    }
}

// Frames that lie side by side come in one run, which waits for all of them.
TEST(ReferenceRead, AFrameDoesNotWaitForADamagedOneOfItsOwnRun) {
    constexpr std::uint64_t kDamaged = kFrames - 1;
    ReferringReading reading;
    reading.referring.flipped.frame = kDamaged + 1;
    reading.referring.flipped.times = 1000;
    reading.referring.flipped.follows_damage = true;
    const auto reader = reading.open();
    const auto stream = reader->open_stream();
    const auto begin_read = [&](std::uint64_t frame, std::size_t size) {
        auto bytes = std::make_shared<Awaited<Payload>>();
        reader->read(stream, frame * kFrameSize, size, bytes->callback());
        return bytes;
    };
    const auto both = begin_read(kDamaged, 3 * kFrameSize);
    const auto after = begin_read(kDamaged + 2, kFrameSize);
    const auto damaged = both->get();
    ASSERT_FALSE(damaged);
    EXPECT_EQ(damaged.error().errno_value, EIO);
    EXPECT_TRUE(after->get());
    for (const std::uint64_t frame : {kDamaged, kDamaged + 1}) {
        const auto bytes = Reading::read(*reader, stream, frame * kFrameSize, 1000);
        ASSERT_FALSE(bytes);
        EXPECT_EQ(bytes.error().errno_value, EIO);
    }
    EXPECT_EQ(Reading::read(*reader, stream, (kDamaged + 2) * kFrameSize, 1000).value(),
              reading.content.substr((kDamaged + 2) * kFrameSize, 1000));
    EXPECT_TRUE(reading.comes_to_rest());
}

TEST(ReferenceRead, DoesNotQueueBehindWhatIsEncoded) {
    for (const std::size_t buffers : {2U, 300U}) {
        ReferringReading reading(buffers);
        HeldExecutor executor;
        ReadEnvironment environment{reading.store,     reading.pool,  executor, reading.clock,
                                    reading.referring, reading.cache, {}};
        Awaited<std::shared_ptr<FileReader>> opened;
        FileReader::open(environment, "k", "", false, opened.callback());
        const auto reader = opened.get().value();
        EXPECT_EQ(Reading::read(*reader, reader->open_stream(), kFile - kFrameSize, 1000).value(),
                  reading.content.substr(kFile - kFrameSize, 1000));
        EXPECT_TRUE(reading.comes_to_rest());
        EXPECT_EQ(executor.ordinary(), 0U) << buffers;
    }
}

// Four reads for which there is no memory, the first of which is on its way before the others are there.
struct ReadsWithoutMemory : ReferringReading {
    // A frame takes two, so that there is none for what it refers to.
    ReadsWithoutMemory() : ReferringReading(8) {
        FileReader::open(environment, "k", "", false, opened.callback());
        reader = opened.get().value();
        store.hold(Operation::kGet);
        for (std::size_t i = 0; i < 4; ++i) {
            reader->read(reader->open_stream(), offset(i), 1000, answers[i].callback());
        }
        for (std::size_t i = 0; i < 4; ++i) {
            store.release_one(Operation::kGet);
        }
    }
    static std::size_t offset(std::size_t i) { return kFile / 2 + i * 2 * kFrameSize; }
    // The one that is under way is not answered.
    void fail_one() {
        Fault fault;
        fault.operation = Operation::kGet;
        fault.error = store_error(EIO, "InternalError", 500);
        fault.error.retryable = true;
        store.inject(fault);
        store.release_one(Operation::kGet);
    }

    ReadEnvironment environment{store, pool, executor, clock, referring, cache, {}};
    Awaited<std::shared_ptr<FileReader>> opened;
    std::shared_ptr<FileReader> reader;
    std::array<Awaited<Payload>, 4> answers;
};

TEST(ReferenceRead, WhatCameLaterThanOneThatTheStoreDoesNotAnswerAsksItself) {
    ReadsWithoutMemory reading;
    reading.fail_one();
    EXPECT_EQ(reading.answers[0].get().error().errno_value, EIO);
    ASSERT_TRUE(reading.store.wait_until_held(Operation::kGet, 1));
    reading.store.release(Operation::kGet);
    for (std::size_t i = 1; i < 4; ++i) {
        EXPECT_EQ(reading.answers[i].get().value().to_string(),
                  reading.content.substr(ReadsWithoutMemory::offset(i), 1000));
    }
}

// Else each would ask for as long as requests are retried, one after the other.
TEST(ReferenceRead, OneThatTheStoreDoesNotAnswerFailsThoseThatWaitedAsLong) {
    ReadsWithoutMemory reading;
    reading.fail_one();
    ASSERT_TRUE(reading.store.wait_until_held(Operation::kGet, 1));
    reading.store.reset_calls();
    reading.fail_one();
    for (Awaited<Payload>& each : reading.answers) {
        EXPECT_EQ(each.get().error().errno_value, EIO);
    }
    EXPECT_EQ(reading.store.calls(), 0) << "those that waited have not asked";
}

TEST(ReferenceRead, WhatTheStoreDoesNotGiveIsAnError) {
    for (const std::size_t buffers : {2U, 300U}) {
        ReferringReading reading(buffers);
        const auto reader = reading.open();
        const auto stream = reader->open_stream();
        Fault fault;
        fault.operation = Operation::kGet;
        fault.skip = 1;
        fault.error = store_error(EIO, "InternalError", 500);
        reading.store.inject(fault);
        const auto bytes = Reading::read(*reader, stream, kFile - kFrameSize, 1000);
        ASSERT_FALSE(bytes) << buffers;
        EXPECT_EQ(bytes.error().errno_value, EIO);
        EXPECT_EQ(Reading::read(*reader, stream, kFile - kFrameSize, 1000).value(),
                  reading.content.substr(kFile - kFrameSize, 1000));
    }
}

}  // namespace
}  // namespace ckptfs::testing
