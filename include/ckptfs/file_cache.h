// SPDX-License-Identifier: Apache-2.0
// File data that this node keeps beside the bucket, by version.
//
// What is kept are the file's bytes, decoded, in frames of kFrameSize. None of it is needed: a frame that is missing or
// damaged, or lies on a disk that fails, is fetched from the store as if it had never been kept.
//
// Ownership: the cache outlives its files.
// Threads: all functions may be called from any thread, and return at once. What is called back is so once, on any
// thread, also before the call returns, and must not wait.
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

// In bytes: what the first request of an open brings along is not worth a file of its own.
inline constexpr std::uint64_t kSmallestKept = std::uint64_t{256} << 10;

// One version of one file.
class KeptFile {
public:
    virtual ~KeptFile() = default;
    // Whether it is worth a read(); what only the disk knows may be there.
    [[nodiscard]] virtual bool may_have(std::uint64_t frame) const = 0;
    // Fills `target`, which is as large as the frame and stays until `done` is called: with false where the frame is
    // not there as it was kept, or the disk does not answer in time. Then nothing is written to `target`, also later.
    virtual void read(std::uint64_t frame, MutableByteSpan target, std::function<void(bool)> done) = 0;
    // A descriptor of the whole file, of which every byte was checked since the mount began and none was changed since;
    // it is open until `done` returns. -1 where there is none: then it is checked, if it is there, for the next time.
    virtual void open_checked(std::function<void(int)> done) = 0;
    // While it is held it is not removed to make room.
    [[nodiscard]] virtual std::shared_ptr<void> hold() = 0;
    // Later, and only while the disk keeps up. `bytes` are all of the frame.
    virtual void keep(std::uint64_t frame, Slice bytes) = 0;
};

// A version that is being written. What is kept of it is dropped unless it is finished.
class FileBeingKept {
public:
    virtual ~FileBeingKept() = default;
    // All bytes of the frame, as far as is known: replaces what was added of it before. As KeptFile::keep().
    virtual void add(std::uint64_t frame, Payload bytes) = 0;
    // The frames that hold bytes of this range have changed.
    virtual void forget(std::uint64_t begin, std::uint64_t end) = 0;
    // It is in the bucket. Later, once what was added is on the disk.
    virtual void finish(const ObjectInfo& object, bool is_encoded, std::uint64_t size) = 0;
};

// As it was listed, and its copy.
struct RenamedObject {
    std::string etag;
    std::uint64_t size = 0;
    // kWriteIdMetadata, where it is known.
    std::string write_id;
    std::string copy_etag;
    // Empty: that of the object.
    std::string copy_write_id;
};

class FileCache {
public:
    virtual ~FileCache() = default;
    [[nodiscard]] virtual std::shared_ptr<FileBeingKept> begin() = 0;
    // Whether it is worth a whole_size().
    [[nodiscard]] virtual bool may_have(const std::string& etag) const = 0;
    // Of the file, where all of its frames are kept.
    using Size = std::function<void(std::optional<std::uint64_t>)>;
    virtual void whole_size(const ObjectInfo& object, bool is_encoded, Size done) = 0;
    // How much of the object's file is kept: in bytes, as far as the disk answers in time.
    using Kept = std::function<void(std::uint64_t)>;
    virtual void bytes_kept(const ObjectInfo& object, Kept done) = 0;
    // Takes away what is kept of it. False where it is in use, or the disk does not answer in time.
    virtual void drop(const ObjectInfo& object, std::function<void(bool)> done) = 0;
    // The object was renamed: what is kept of it is that of its copy from now on. Later.
    virtual void renamed(const ObjectInfo& object, const ObjectInfo& copy) = 0;
    // The same for all objects of a directory that ckptfs has written.
    virtual void renamed(std::vector<RenamedObject> objects) = 0;
    // `size`: of the file. Null where versions of the object cannot be told apart.
    [[nodiscard]] virtual std::shared_ptr<KeptFile> file(const ObjectInfo& object, bool is_encoded,
                                                         std::uint64_t size) = 0;
    // Once what was to be kept by now is on the disk, or was left out. Never where the disk hangs.
    virtual void when_written(std::function<void()> done) = 0;
};

}  // namespace ckptfs
