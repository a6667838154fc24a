// SPDX-License-Identifier: Apache-2.0
// Where this mount's changes are acknowledged (--ack disk), and what mounts of the same source have left on this disk.
//
// CACHE-DIR/unsent/HASH-N/ belongs to one mount at a time of one server, bucket and prefix (HASH): the one that holds
// its lock. A mount takes the first that is free, with what is in it, and sends what is in the others that are free.
//
// Ownership: what is passed in outlives it. Threads: open(), start(), stop() and the destructor on one thread; the
// rest from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "ckptfs/status.h"
#include "writeback/write_through.h"
#include "writeback/writeback_store.h"

namespace ckptfs {

// One of these directories, as long as it is locked.
struct UnsentPlace {
    std::string directory;
    // Until the last copy is gone.
    std::shared_ptr<const FileDescriptor> lock;
};
// The first is for this mount; the others have something that was left. Waits for those of mounts that are about to
// end. `source`: "https://HOST/BUCKET/PREFIX"
Result<std::vector<UnsentPlace>> lock_unsent_places(const std::string& cache_dir, const std::string& source);

class UnsentDisks {
public:
    // `common`: without directory, and without what the rest makes of the disk's ID.
    struct Environment {
        WritebackEnvironment common;
        std::function<void(const std::string& key, const std::string& disk, StoreDone<std::vector<std::uint64_t>> done)>
            announced_by_others;
        std::function<void(const UnsentChange& marker, const std::string& disk, std::function<void(Status)> done)>
            may_mark;
    };
    static Result<std::unique_ptr<UnsentDisks>> open(const Environment& environment, std::vector<UnsentPlace> places);

    // That acknowledges.
    [[nodiscard]] WritebackStore& store() const { return *disks_.front().store; }
    // As it sees the bucket, with changes that are made there.
    [[nodiscard]] ObjectStore& bucket() const { return *through_; }
    [[nodiscard]] const std::string& id() const { return store().unsent().id(); }
    // Begins to send, first what was left by mounts whose disk this one does not use.
    void start() const;
    // Others know of what the last mount of this disk was writing.
    void withdraw_left() const;
    // The mount is gone, or about to be: the next one may ask for what is left, and waits for the end of this one.
    void tell_of_end() const;
    // By a mount that waits for it.
    [[nodiscard]] bool are_wanted() const;
    // Begins to send nothing more, and answers all that waits for that.
    void pause() const;
    // Sends nothing more, and waits for what is under way, which ends with the store.
    void stop() const;
    // As UnsentChanges.
    void when_sent(const std::function<void(Status)>& sent) const;
    void withdraw(const std::function<void()>& done) const;
    // Of the disk in this directory alone; with a failure where that could not be opened.
    void when_sent_from(const std::string& directory, const std::function<void(Status)>& sent) const;
    // As UnsentChanges, of whichever knows.
    [[nodiscard]] std::optional<WallTime> acknowledged_at(const ObjectInfo& object) const;
    [[nodiscard]] std::string write_id(const std::string& key) const;
    // Of what cannot be sent on the others this is the way out. Nothing before the end of start(): what is told of then
    // was left, and may be older.
    void acknowledged_here(const std::string& key) const;
    // Of all: the numbers of changes are this mount's.
    [[nodiscard]] UnsentStatus status() const;
    // In bytes.
    [[nodiscard]] std::uint64_t limit() const { return limit_; }
    // For people, at the end: what is not in the bucket and not for the next mount to send; empty where all is.
    [[nodiscard]] std::string left(bool is_handed_over) const;

private:
    struct Disk {
        UnsentPlace place;
        std::unique_ptr<WritebackStore> store;
    };
    // Not for what cannot be sent: it may wait for what the first has.
    static void when_tried(UnsentChanges& unsent, const std::function<void()>& tried);
    // `is_own`: it acknowledges; the others have been left. `all` outlives it.
    static Result<std::unique_ptr<WritebackStore>> open_store(const Environment& environment,
                                                              const std::string& directory, const UnsentDisks& all,
                                                              bool is_own);
    // Of all that is unsent on places that are not this mount's own.
    [[nodiscard]] UnsentChanges::Keys keys_elsewhere() const;
    [[nodiscard]] bool is_way_out_elsewhere(const std::string& key) const;

    std::uint64_t limit_ = 0;
    GivenUpMarkers* given_up_ = nullptr;
    // The first is this mount's own.
    std::vector<Disk> disks_;
    std::unique_ptr<WriteThrough> through_;
    mutable std::atomic<bool> has_started_ = false;
};

}  // namespace ckptfs
