// SPDX-License-Identifier: Apache-2.0
// Objects as the tools read them: frame after frame, in ranges of a few MiB.
//
// Errors: kDamaged if the object's content is wrong; any other errno if the store did not return it.
// Threads: all functions block. A RunReader belongs to one thread; everything else may be used by many.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/bytes.h"
#include "ckptfs/codec.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

// The errno of Linux filesystems for a wrong checksum; no error of a store has it.
inline constexpr int kDamaged = EBADMSG;

// Requests under way at once, each with a thread that decodes what it brought: at 60 MB/s a connection, 1 GB/s.
inline constexpr int kToolThreads = 16;

// The seek table of an object, read once more: no checksum covers it, and a bit of it flipped in transit makes good
// frames look damaged. It is read when it is first asked for.
class SecondTable {
public:
    SecondTable(const Codec& codec, ObjectInfo object, std::shared_ptr<const FrameLayout> first)
        : codec_(codec), object_(std::move(object)), first_(std::move(first)) {}

    // Null if both readings say the same, or the second is no table. The store's error if it cannot be read.
    Result<std::shared_ptr<const FrameLayout>> read(ObjectStore& store);

private:
    [[nodiscard]] Result<std::shared_ptr<const FrameLayout>> fetch(ObjectStore& store) const;

    const Codec& codec_;
    const ObjectInfo object_;
    const std::shared_ptr<const FrameLayout> first_;
    // Held while the store is asked: all threads that want the table wait for it.
    Mutex mutex_;
    std::optional<Result<std::shared_ptr<const FrameLayout>>> second_ GUARDED_BY(mutex_);
};

struct OpenObject {
    ObjectInfo object;
    std::shared_ptr<const FrameLayout> layout;
    bool may_have_lost_description = false;
    std::shared_ptr<SecondTable> second_table{};
};

// A tail that looks damaged is fetched once more. The codec outlives what is opened.
Result<OpenObject> open_object(ObjectStore& store, const Codec& codec, const std::string& key);

// Frames that lie next to each other in the object.
struct FrameRun {
    // Index among all runs of the object.
    std::uint64_t index = 0;
    std::vector<Frame> frames;
};
inline constexpr std::size_t kFramesPerRun = 4;

// Hands out an object's runs, in order, to any thread that asks.
class RunQueue {
public:
    explicit RunQueue(std::shared_ptr<const FrameLayout> layout) : layout_(std::move(layout)) {}

    std::optional<FrameRun> next();
    // Hands out nothing any more.
    void stop();

private:
    const std::shared_ptr<const FrameLayout> layout_;
    Mutex mutex_;
    std::uint64_t offset_ GUARDED_BY(mutex_) = 0;
    std::uint64_t index_ GUARDED_BY(mutex_) = 0;
    bool stopped_ GUARDED_BY(mutex_) = false;
};

// Fetches runs into memory of its own, which it reuses.
class RunReader {
public:
    explicit RunReader(ObjectStore& store) : store_(store) {}

    Status fetch(const OpenObject& from, const FrameRun& run);
    // The stored bytes of a frame of the run that was fetched last.
    [[nodiscard]] ByteSpan stored(std::size_t frame) const;
    // The bytes of the file in a frame, checked. A frame that turns out to be damaged is fetched once more, and then
    // where a second reading of the table says that it lies.
    Result<ByteSpan> decode(const OpenObject& from, const FrameRun& run, std::size_t frame);

private:
    // `why`: what is wrong with the frame by the first reading of the table.
    Result<ByteSpan> decode_by_second_table(const OpenObject& from, const Frame& frame, Error why);
    [[nodiscard]] Status decode_stored(const OpenObject& from, const Frame& frame, ByteSpan stored,
                                       MutableByteSpan target);
    // The bytes of `ranges`, from earlier frames that are fetched one after the other.
    Result<Payload> read_references(const OpenObject& from, const std::vector<FileRange>& ranges);
    Status read_referenced_frame(const OpenObject& from, const Frame& frame);
    Status fetch_range(const OpenObject& from, std::uint64_t offset, MutableByteSpan target);
    [[nodiscard]] MutableByteSpan stored_memory(std::size_t frame) const;

    ObjectStore& store_;
    std::unique_ptr<std::byte[]> stored_;
    std::unique_ptr<std::byte[]> decoded_;
    // Where each frame of the run begins in stored_, and where the last one ends.
    std::vector<std::size_t> begins_;
    // The frame that was referred to last: its layout, its index, its bytes.
    std::shared_ptr<const FrameLayout> referenced_from_;
    std::uint64_t referenced_index_ = 0;
    std::vector<std::byte> referenced_;
};

}  // namespace ckptfs
