// SPDX-License-Identifier: Apache-2.0
// The concrete types behind the interfaces, put together for a mount. Commands that need no mount do this in
// cli/tool_command.cc and cli/doctor_command.cc.
//
// Everything that starts threads is made here, after the process has gone to the background. The session is made before
// the file system and destroyed after this, because late replies still need it.
// Threads: used by one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_pool.h"
#include "base/periodic.h"
#include "base/process_inspector.h"
#include "base/system_clock.h"
#include "base/timer_thread.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/codec.h"
#include "ckptfs/config.h"
#include "ckptfs/executor.h"
#include "ckptfs/status.h"
#include "daemon/heartbeat.h"
#include "daemon/leftover_watch.h"
#include "daemon/store_client.h"
#include "daemon/unsent_disks.h"
#include "disk/disk_cache.h"
#include "disk/object_recorder.h"
#include "disk/recorded_store.h"
#include "disk/recording_store.h"
#include "fs/file_system.h"
#include "fuse/session.h"
#include "journal/journal_leftovers.h"
#include "journal/lost_uploads.h"
#include "journal/mount_journal.h"
#include "journal/upload_aborts.h"
#include "read/block_cache.h"
#include "read/file_reader.h"
#include "read/keeping_behind.h"
#include "write/file_writer.h"
#include "writeback/bodies_on_disk.h"

namespace ckptfs {

// This host's name, as other mounts see it.
[[nodiscard]] std::string this_host();

class Machinery {
public:
    static Result<std::unique_ptr<Machinery>> create(const Config& config);
    // Ends what is still under way, without waiting for the store.
    ~Machinery();
    Machinery(const Machinery&) = delete;
    Machinery& operator=(const Machinery&) = delete;

    // Tries a list and, unless the mount is read-only, an upload; with --cache-only, checks that something of the
    // bucket is recorded.
    Status check_bucket();
    // Finds the mount in mountinfo, without touching it.
    Result<fs::FileSystem*> start_file_system(fs::KernelCache& kernel_cache, fs::Passthrough& passthrough);
    // The kernel reads files in --cache-dir itself from now on, once they are checked.
    void begin_passthrough();
    // Ends the uploads, and what else an earlier mount of this source at this place had begun when it was killed.
    void end_leftover_uploads();
    // Stops the session, ends uploads whose creation was not answered, tries once more to end those that could not be,
    // and removes this mount's heartbeat. Waits for the store for some seconds at most, then cancels its requests
    // (ECANCELED).
    void end(Session& session);

    [[nodiscard]] BufferPool& pool() { return *pool_; }
    [[nodiscard]] const ProcessInspector& processes() const { return processes_; }
    [[nodiscard]] const Clock& clock() const { return clock_; }
    [[nodiscard]] const StoreClient& client() const { return *client_; }
    // Valid once the file system has been started.
    [[nodiscard]] const BlockCache& cache() const { return *cache_; }
    // Null without --cache-dir.
    [[nodiscard]] const DiskCache* disk() const { return disk_.get(); }
    // Null without --ack disk.
    [[nodiscard]] const UnsentDisks* unsent() const { return unsent_.get(); }
    // For a mount that the kernel has ended: leaves what is not sent to the next mount, if that waits for it, once the
    // disk has all that it is to acknowledge. To be called repeatedly.
    void hand_over();
    // Whether hand_over() has left something to the next mount, which still waits for it.
    [[nodiscard]] bool is_handed_over() const;
    // What was handed over, as UnsentDisks::left(), if the next mount no longer waits for it; else empty.
    [[nodiscard]] std::string left_behind() const;
    void tell_of_end();
    // Written files that are not in --cache-dir yet, and will be.
    [[nodiscard]] std::uint64_t files_to_keep() const { return keeping_ != nullptr ? keeping_->waiting() : 0; }
    [[nodiscard]] Executor& executor() { return *executor_; }
    // For tasks that wait for the disk.
    [[nodiscard]] Executor& staging() { return *staging_; }
    [[nodiscard]] Timer& timer() { return *timer_; }

private:
    explicit Machinery(const Config& config) : config_(config) {}
    Status start();
    Status start_disk_cache();
    // machinery_stores.cc has these, up to acknowledging_store().
    Result<ObjectStore*> make_store();
    Status open_record();
    // `bucket`, with what it shows recorded for --cache-only; `bucket` itself without --cache-dir.
    ObjectStore& recording(ObjectStore& bucket);
    // The bucket's name in the cache directory: server and bucket.
    [[nodiscard]] std::string store_name() const;
    void open_journal(const std::vector<UnsentPlace>& disks);
    [[nodiscard]] Result<std::uint64_t> unsent_limit() const;
    [[nodiscard]] WritebackEnvironment writeback_environment(ObjectStore& bucket, std::uint64_t limit);
    Result<ObjectStore*> acknowledging_store(ObjectStore& bucket, std::vector<UnsentPlace> disks);
    void say_goodbye();
    void cancel();
    void recall_failures(std::vector<Leftovers>& leftovers);
    // Hands the intents over to lost_; true if there were any.
    bool note_intents(std::vector<Leftovers>& leftovers);
    void end_leftovers_now(std::vector<Leftovers> leftovers);
    // `others_know`: called once other mounts know of all files that these mounts were writing; null for leftovers that
    // are found later.
    void end_leftovers_of_mounts(std::vector<Leftovers> leftovers, std::function<void()> others_know);
    void end_leftovers_once_sent(const std::string& directory,
                                 const std::shared_ptr<std::vector<Leftovers>>& leftovers);
    void others_know_all();
    void release_unused_memory();
    // The cache that keeps what is read and written; null without --cache-dir.
    FileCache* start_keeping();
    void keep_behind(const std::shared_ptr<const HeldChange>& held);
    // Keeps what is still to be kept of the written files, for kKeepsFor at most.
    void keep_the_rest();

    const Config config_;
    SystemClock clock_;
    ProcInspector processes_;
    // Members are destroyed from the last to the first.
    std::unique_ptr<TimerThread> timer_;
    std::unique_ptr<Executor> executor_;
    std::unique_ptr<Executor> blocking_;
    std::unique_ptr<Executor> staging_;
    std::unique_ptr<Executor> gate_threads_;
    // Null without --ack disk.
    std::unique_ptr<Executor> unsent_threads_;
    std::unique_ptr<Executor> marker_threads_;
    std::unique_ptr<MemoryPool> pool_;
    // Locks of the disks of --ack disk. Released after the journal, which says what is left: the next mount takes them
    // over then.
    std::vector<std::shared_ptr<const FileDescriptor>> place_locks_;
    // The journal and lost_answers_ are notified of uploads until the client has stopped.
    std::unique_ptr<MountJournal> journal_;
    std::vector<Leftovers> leftovers_;
    LostAnswers lost_answers_;
    // Null without --cache-dir. Notified until the client has stopped.
    std::unique_ptr<ObjectRecorder> recorder_;
    std::unique_ptr<StoreClient> client_;
    std::unique_ptr<LostUploads> lost_;
    std::unique_ptr<UploadAborts> aborts_;
    std::unique_ptr<ObjectStore> journaled_;
    // Null without --cache-dir.
    std::unique_ptr<RecordingStore> recording_;
    // Null without --cache-only.
    std::unique_ptr<RecordedStore> recorded_;
    // Directories (UnsentPlace) that other mounts have left; without this mount's own.
    std::vector<std::string> other_disks_;
    // Null without --ack disk.
    std::unique_ptr<GivenUpMarkers> given_up_;
    std::unique_ptr<UnsentDisks> unsent_;
    bool has_told_of_end_ = false;
    bool is_handed_over_ = false;
    std::unique_ptr<fs::DiskAcknowledgement> acknowledging_;
    std::unique_ptr<Codec> codec_;
    // Null without --cache-dir.
    std::unique_ptr<DiskCache> disk_;
    std::unique_ptr<BlockCache> cache_;
    // Null without --ack disk.
    std::unique_ptr<BodiesOnDisk> bodies_;
    std::unique_ptr<BlockCache> body_cache_;
    std::unique_ptr<ReadEnvironment> read_bodies_;
    std::unique_ptr<KeepingBehind> keeping_;
    std::unique_ptr<WriteEnvironment> write_;
    std::unique_ptr<ReadEnvironment> read_;
    std::unique_ptr<fs::FileSystem> fs_;
    std::unique_ptr<Heartbeat> heartbeat_;
    std::unique_ptr<Periodic> memory_watch_;
    // Bytes of the heap that were free after the last trim, or fewer since: names and requests free what they needed.
    std::atomic<std::size_t> free_after_trim_ = 0;
    // Place of an earlier mount that has not ended, if there is one.
    std::optional<LeftoverWatch::Place> living_place_;
    std::unique_ptr<LeftoverWatch> leftover_watch_;
};

}  // namespace ckptfs
