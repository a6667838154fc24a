// SPDX-License-Identifier: Apache-2.0
// Keeps the frames of a version that is being written in a file without a name, which gets the version's once that is
// known.
//
// Ownership: shared; a frame that waits to be written holds it. The owner outlives it.
// Threads: all functions may be called from any thread, and return at once; the rest runs on the owner's writing
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "ckptfs/file_cache.h"
#include "disk/kept_file.h"

namespace ckptfs {

class FileBeingKeptOnDisk final : public FileBeingKept, public std::enable_shared_from_this<FileBeingKeptOnDisk> {
public:
    // Which version the object became, asked on the owner's writing thread; empty if versions of the object cannot be
    // distinguished.
    using NameVersion = std::function<std::optional<KeptVersion>(const ObjectInfo&, bool is_encoded)>;

    FileBeingKeptOnDisk(KeptFileOwner& owner, NameVersion name_version)
        : owner_(owner), name_version_(std::move(name_version)) {}
    ~FileBeingKeptOnDisk() override;

    void add(std::uint64_t frame, Payload bytes) override;
    void forget(std::uint64_t begin, std::uint64_t end) override;
    void finish(const ObjectInfo& object, bool is_encoded, std::uint64_t size) override;

private:
    struct Frame {
        // Number of the last add() of the frame, and the hash of its bytes once they are written.
        std::uint64_t number = 0;
        std::uint64_t size = 0;
        std::optional<std::uint64_t> hash;
    };

    void write(std::uint64_t frame, std::uint64_t number, const Payload& bytes);
    // The file without a name, opened if it is not open yet; -1 if that fails. Only for the writing thread, which waits
    // for the disk.
    [[nodiscard]] int file();
    // Counts one frame less as waiting. Whether it was the last one of a finished version.
    [[nodiscard]] bool was_the_last();
    void give_name();
    [[nodiscard]] std::map<std::uint64_t, std::uint64_t> hashes_of(std::uint64_t size) const;

    KeptFileOwner& owner_;
    const NameVersion name_version_;

    // Bytes on the disk of the file without a name.
    std::atomic<std::int64_t> taken_{0};

    mutable Mutex mutex_;
    // Opened for the first frame; -1 if that fails.
    FileDescriptor file_ GUARDED_BY(mutex_);
    std::map<std::uint64_t, Frame> frames_ GUARDED_BY(mutex_);
    std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;
    int waiting_ GUARDED_BY(mutex_) = 0;
    struct Finished {
        ObjectInfo object;
        bool is_encoded = false;
        // Size of the file.
        std::uint64_t size = 0;
    };
    std::optional<Finished> finished_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
