// SPDX-License-Identifier: Apache-2.0
// File data that this node keeps besides the bucket, by version.
//
// The file's bytes are kept decoded, in frames of kFrameSize. None of them is needed: a frame that is missing or
// damaged, or lies on a disk that fails, is fetched from the store as if it had never been kept.
//
// Ownership: the cache outlives its files.
// Threads: all functions may be called from any thread, and return at once. A callback is called once, on any thread,
// perhaps before the call returns, and must not wait.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/bytes.h"
#include "ckptfs/object_store.h"

namespace ckptfs {

// In bytes: only larger files are kept, because the first request of an open brings smaller ones along.
inline constexpr std::uint64_t kSmallestKept = std::uint64_t{256} << 10;

// One version of one file.
class KeptFile {
public:
    virtual ~KeptFile() = default;
    // False if the frame is known not to be kept; true also if only the disk knows.
    [[nodiscard]] virtual bool may_have(std::uint64_t frame) const = 0;
    // Fills `target`, which has the size of the frame and stays valid until `done` is called. `done` gets false if the
    // frame is not there as it was kept, or if the disk does not answer in time; then nothing is written to `target`,
    // now or later.
    virtual void read(std::uint64_t frame, MutableByteSpan target, std::function<void(bool)> done) = 0;
    // Passes a descriptor of the whole file, every byte of which was checked since the mount began and has not changed
    // since; it is open until `done` returns. -1 if there is none: the file, if it is there, is then checked for the
    // next time.
    virtual void open_checked(std::function<void(int)> done) = 0;
    // While the result exists, the file is not removed to make room.
    [[nodiscard]] virtual std::shared_ptr<void> hold() = 0;
    // Keeps a frame, of which `bytes` are all bytes: asynchronously, and only while the disk keeps up.
    virtual void keep(std::uint64_t frame, Slice bytes) = 0;
};

// A version that is being written. What is kept of it is dropped unless finish() is called.
class FileBeingKept {
public:
    virtual ~FileBeingKept() = default;
    // Adds the frame's bytes, all of them as far as is known, in place of what was added for it before. Asynchronous,
    // like KeptFile::keep().
    virtual void add(std::uint64_t frame, Payload bytes) = 0;
    // Drops the frames that hold bytes of [begin, end): these bytes have changed.
    virtual void forget(std::uint64_t begin, std::uint64_t end) = 0;
    // The version is in the bucket as `object`. Takes effect once what was added is on the disk. `size`: of the file.
    virtual void finish(const ObjectInfo& object, bool is_encoded, std::uint64_t size) = 0;
};

// An object that was renamed, as it was listed, and its copy.
struct RenamedObject {
    std::string etag;
    std::uint64_t size = 0;
    // The object's kWriteIdMetadata, if it is known.
    std::string write_id;
    std::string copy_etag;
    // The copy's kWriteIdMetadata; empty: that of the object.
    std::string copy_write_id;
};

class FileCache {
public:
    virtual ~FileCache() = default;
    [[nodiscard]] virtual std::shared_ptr<FileBeingKept> begin() = 0;
    // Whether a whole_size() is worth its wait for the disk.
    [[nodiscard]] virtual bool may_have(const std::string& etag) const = 0;
    // The size of the file if all of its frames are kept.
    using Size = std::function<void(std::optional<std::uint64_t>)>;
    virtual void whole_size(const ObjectInfo& object, bool is_encoded, Size done) = 0;
    // How many bytes of the object's file are kept; 0 if the disk does not answer in time.
    using Kept = std::function<void(std::uint64_t)>;
    virtual void bytes_kept(const ObjectInfo& object, Kept done) = 0;
    // Removes what is kept of the object. Passes false if it is in use, or if the disk does not answer in time.
    virtual void drop(const ObjectInfo& object, std::function<void(bool)> done) = 0;
    // The object was renamed: what is kept of it is that of its copy from now on. Asynchronous.
    virtual void renamed(const ObjectInfo& object, const ObjectInfo& copy) = 0;
    // The same for the objects of a renamed directory that ckptfs has written.
    virtual void renamed(std::vector<RenamedObject> objects) = 0;
    // `size`: of the file. Null if versions of the object cannot be told apart.
    [[nodiscard]] virtual std::shared_ptr<KeptFile> file(const ObjectInfo& object, bool is_encoded,
                                                         std::uint64_t size) = 0;
    // Calls `done` once all that was to be kept so far is on the disk, or was left out; never if the disk hangs.
    virtual void when_written(std::function<void()> done) = 0;
};

}  // namespace ckptfs
