// SPDX-License-Identifier: Apache-2.0
// The record of a rename in the bucket, as the process that works on that rename holds it.
//
// It decides the rename: only its last writer may go on, because every write replaces exactly what that writer
// wrote before. While it is held it is written again from time to time, so that other mounts see a heartbeat. A
// holder that could not do so for half the time after which others may take over lets go by itself, so that a store
// without conditional writes is safe as long as its requests take less than the other half.
//
// Ownership: one holder at a time; the destructor stops the heartbeats and leaves the record as it is.
// Threads: used by one thread; blocks.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "fs/objects/directory_marker.h"
#include "fs/objects/marker_objects.h"

namespace ckptfs::fs {

class RenameRecord {
public:
    // `repair_after`: time without a heartbeat after which others may take over.
    RenameRecord(ObjectStore& store, const Clock& clock, Milliseconds repair_after)
        : store_(store), clock_(clock), repair_after_(repair_after) {}
    ~RenameRecord() { stop_beating(); }
    RenameRecord(const RenameRecord&) = delete;
    RenameRecord& operator=(const RenameRecord&) = delete;

    // Writes the record of a new rename.
    Status create(DirectoryMarker rename);
    // Takes over the record of a rename that sends no heartbeat; `record`: as it was read.
    Status take_over(const StoredMarker& record, MarkerState state);
    // Writes a record again for a rename that has ended, whose record is gone, and of which a slow process has left
    // something: no other may work on it meanwhile.
    Status make_anew(const DirectoryMarker& rename, MarkerState state);
    Status change_state(MarkerState state);
    // Deletes the record and the list of names.
    Status remove();

    // Whether another mount may have taken over: then nothing more may be changed on behalf of this rename.
    [[nodiscard]] bool lost() const;
    [[nodiscard]] const DirectoryMarker& rename() const { return rename_; }
    // When the record was first seen to be in the bucket.
    [[nodiscard]] SteadyTime created() const { return created_; }

private:
    struct Moment {
        SteadyTime steady;
        WallTime wall;
    };

    [[nodiscard]] Moment this_moment() const { return {clock_.now(), clock_.wall_now()}; }
    // Whether the moment is more than half of `repair_after` after the last heartbeat.
    [[nodiscard]] bool is_late(const Moment& moment) const;
    Status write_and_beat(MarkerState state, const Moment& began);
    Status write(MarkerState state, const Moment& began);
    void start_beating();
    void stop_beating();
    void beat();

    ObjectStore& store_;
    const Clock& clock_;
    const Milliseconds repair_after_;

    // Constant while the heartbeat's thread runs.
    DirectoryMarker rename_;
    SteadyTime created_{};
    // Owned by the heartbeat's thread while it runs, by the holder otherwise.
    std::string etag_;
    // These three are read by lost() at any time. When the record was last written, in ticks of SteadyTime and of
    // WallTime: the steady clock stands still while the machine is hibernated or its virtual machine is frozen.
    std::atomic<SteadyTime::rep> alive_{0};
    std::atomic<WallTime::rep> alive_by_wall_{0};
    std::atomic<bool> taken_over_ = false;

    std::thread heartbeat_;
    Mutex mutex_;
    Condition stopped_;
    bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace ckptfs::fs
