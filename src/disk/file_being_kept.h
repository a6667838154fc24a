// SPDX-License-Identifier: Apache-2.0
// The frames of a version that is being written, in a file without a name, which gets the version's once it is known.
//
// Ownership: shared; a frame that waits to be written holds it. The owner outlives it.
// Threads: all functions may be called from any thread, and return at once; the rest runs where the owner writes.
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
    // Which version it became, asked where the owner writes; null where versions of the object cannot be told apart.
    using NameVersion = std::function<std::optional<KeptVersion>(const ObjectInfo&, bool is_encoded)>;

    FileBeingKeptOnDisk(KeptFileOwner& owner, NameVersion name_version)
        : owner_(owner), name_version_(std::move(name_version)) {}
    ~FileBeingKeptOnDisk() override;

    void add(std::uint64_t frame, Payload bytes) override;
    void forget(std::uint64_t begin, std::uint64_t end) override;
    void finish(const ObjectInfo& object, bool is_encoded, std::uint64_t size) override;

private:
    struct Frame {
        // Which of those added is the frame's, and what it hashes to once it is written.
        std::uint64_t number = 0;
        std::uint64_t size = 0;
        std::optional<std::uint64_t> hash;
    };

    void write(std::uint64_t frame, std::uint64_t number, const Payload& bytes);
    // The writer's; opens and names wait for the disk.
    [[nodiscard]] int file();
    // One that waited does not any more.
    [[nodiscard]] bool was_the_last();
    void give_name();
    [[nodiscard]] std::map<std::uint64_t, std::uint64_t> hashes_of(std::uint64_t size) const;

    KeptFileOwner& owner_;
    const NameVersion name_version_;

    // Bytes on the disk that no name leads to.
    std::atomic<std::int64_t> taken_{0};

    mutable Mutex mutex_;
    // Made with the first frame; -1 stays where it cannot be made.
    FileDescriptor file_ GUARDED_BY(mutex_);
    std::map<std::uint64_t, Frame> frames_ GUARDED_BY(mutex_);
    std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;
    int waiting_ GUARDED_BY(mutex_) = 0;
    struct Finished {
        ObjectInfo object;
        bool is_encoded = false;
        // Of the file.
        std::uint64_t size = 0;
    };
    std::optional<Finished> finished_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
