// SPDX-License-Identifier: Apache-2.0
// One version of one file in the cache directory (disk_space.h): its data, and the index that says which frames are
// there.
//
// The files are opened when they are first needed, and created for the first frame that is kept. While they are open
// they are not removed. What another process keeps of the version meanwhile is seen once they are opened again.
//
// Ownership: shared; a frame that waits to be written holds its file. The owner outlives it.
// Threads: all functions may be called from any thread. Those of KeptFile return at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "ckptfs/file_cache.h"
#include "disk/checked_files.h"
#include "disk/disk_threads.h"
#include "disk/kept_index.h"

namespace ckptfs {

// The cache, as a kept file uses it.
class KeptFileOwner {
public:
    virtual ~KeptFileOwner() = default;
    [[nodiscard]] virtual const std::string& directory() const = 0;
    // Queues a write with data. False if too many wait.
    [[nodiscard]] virtual bool write_later(std::function<void()> write) = 0;
    // Queues a task after those, or drops it if too many wait.
    virtual void post_write(std::function<void()> write) = 0;
    // As DiskThreads::within().
    virtual void read_in_time(std::function<DiskThreads::Deliver()> read, std::function<void()> late) = 0;
    // The disk is not used for now.
    [[nodiscard]] virtual bool is_failing() const = 0;
    // The disk is not written to for now, or not at all.
    [[nodiscard]] virtual bool is_full() const = 0;
    // As DiskCacheConfig::is_alone.
    [[nodiscard]] virtual bool is_alone() const = 0;
    // `action`: "read", …
    virtual void failed(const char* action, const std::string& path, int errno_value) = 0;
    [[nodiscard]] virtual CheckedFiles& checked() = 0;
    // Calls check() of the file later, if checked files are wanted.
    virtual void check_later(std::shared_ptr<class KeptFileOnDisk> file) = 0;
    // Whether a check of this file is to end.
    [[nodiscard]] virtual bool ends_check(const std::string& name) const = 0;
    virtual void found_damage(const std::string& path) = 0;
    virtual void has_made(const std::string& name) = 0;
    virtual void has_opened(std::weak_ptr<class KeptFileOnDisk> file) = 0;
    virtual void count_read(std::uint64_t bytes) = 0;
    virtual void count_written(std::uint64_t bytes) = 0;
    // Files with a name take `named` bytes more; those without one `unnamed` more, or less if it is negative. May make
    // room.
    virtual void takes_room(std::uint64_t named, std::int64_t unnamed) = 0;
};

class KeptFileOnDisk final : public KeptFile, public std::enable_shared_from_this<KeptFileOnDisk> {
public:
    // `size`: of the file.
    KeptFileOnDisk(KeptFileOwner& owner, const KeptVersion& version, std::uint64_t size);
    // A file that exists and is examined, not used. `header`: that of its index.
    KeptFileOnDisk(KeptFileOwner& owner, std::string name, std::string header, std::uint64_t size);

    [[nodiscard]] bool may_have(std::uint64_t frame) const override;
    void read(std::uint64_t frame, MutableByteSpan target, std::function<void(bool)> done) override;
    void keep(std::uint64_t frame, Slice bytes) override;
    void open_checked(std::function<void(int)> done) override;
    [[nodiscard]] std::shared_ptr<void> hold() override;

    [[nodiscard]] std::string name() const { return named()->name; }
    [[nodiscard]] std::string header() const { return named()->header; }
    // What is kept here is that of this version from now on. The files are opened again when they are needed.
    void becomes(const KeptVersion& version);
    // Compares all bytes of the file with their hashes, and notes if they are right. Waits for the disk.
    void check();
    // Closes the files, which are opened again when they are needed.
    void close();
    [[nodiscard]] bool is_held() const { return holders_.load() > 0; }
    void close_if_idle() {
        if (!is_held()) {
            close();
        }
    }
    // Bytes of the frames that are there. Waits for the disk.
    [[nodiscard]] std::uint64_t bytes_kept();
    // Whether all frames are there. Waits for the disk.
    [[nodiscard]] bool is_whole();
    // Links the data to `copy`, with the hashes. False if nothing is kept here, or something is there already. Waits
    // for the disk.
    bool copy_to(KeptFileOnDisk& copy);
    // Makes this file from the open file `data`, without a name or of another name, which has the frames with these
    // hashes, by frame. False if something of the version is kept already. Waits for the disk.
    bool make_of(int data, const std::map<std::uint64_t, std::uint64_t>& hashes);

private:
    KeptFileOnDisk(KeptFileOwner& owner, std::string name, std::string header, std::uint64_t size, bool is_used);

    struct Named {
        std::string name;
        std::string header;
    };
    [[nodiscard]] std::shared_ptr<const Named> named() const EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        return named_;
    }

    struct Files {
        FileDescriptor data;
        FileDescriptor index;
    };
    using FilesPointer = std::shared_ptr<const Files>;
    enum class State : std::uint8_t { kUnknown, kAbsent, kOpen };

    // Opens the files, and creates them for writing. Null if there are none or they cannot be opened.
    [[nodiscard]] FilesPointer open(bool for_writing) EXCLUDES(mutex_);
    [[nodiscard]] FilesPointer open_now(const Named& named, bool for_writing) EXCLUDES(mutex_);
    [[nodiscard]] FileDescriptor open_index(const std::string& name, bool for_writing) const;
    [[nodiscard]] static bool check_header(const std::string& header, int index, bool& is_new);
    void load_records(int index) EXCLUDES(mutex_);
    // False if the frame is not there as it was kept.
    [[nodiscard]] bool read_now(std::uint64_t frame, MutableByteSpan target);
    // Null if the files are not those that were checked.
    [[nodiscard]] FilesPointer open_checked_now();
    [[nodiscard]] bool is_checked(const Files& files) const;
    void write(std::uint64_t frame, ByteSpan bytes);
    void read_failed(const Files& files, std::uint64_t frame, bool is_damaged);
    void forget(const Files& files, std::uint64_t frame);
    void note_use();
    void tell_last_use(const Files& files);

    KeptFileOwner& owner_;
    const std::uint64_t size_;
    // Whether opening and reading count as use.
    const bool is_used_;

    std::atomic<int> holders_{0};
    // Time of the last use in nanoseconds, by the clock of files; 0: not used since it was closed.
    std::atomic<std::int64_t> last_used_{0};

    // Held by the thread that opens the files, which waits for the disk.
    Mutex opening_;

    mutable Mutex mutex_;
    std::shared_ptr<const Named> named_ GUARDED_BY(mutex_);
    State state_ GUARDED_BY(mutex_) = State::kUnknown;
    // Null unless kOpen.
    FilesPointer files_ GUARDED_BY(mutex_);
    // Hashes of the frames that are there, by frame.
    std::unordered_map<std::uint64_t, std::uint64_t> records_ GUARDED_BY(mutex_);
    std::unordered_set<std::uint64_t> being_written_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
