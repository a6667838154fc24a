// SPDX-License-Identifier: Apache-2.0
// All changes that were acknowledged and are not in the bucket yet: on the disk, in memory, and on their way.
//
// acknowledge() puts a change on the disk, shows it to readers of this mount, and sends it when its turn comes
// (send_order.h). What fails is tried again, after pauses that grow to a minute, for as long as it takes; what comes
// after it waits. Where more than `limit` bytes wait for the bucket, acknowledgements do, until there is room.
//
// unsent_changes_left.cc has what earlier mounts have left.
//
// Ownership: the environment outlives it. Threads: all functions may be called from any thread, and return at once, but
// for open() and stop(). Nothing is called back with a lock held.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/owned_timers.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/clock.h"
#include "ckptfs/executor.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "writeback/body_read.h"
#include "writeback/change_log.h"
#include "writeback/change_sender.h"
#include "writeback/etag_aliases.h"
#include "writeback/overlay.h"
#include "writeback/send_order.h"

namespace ckptfs {

struct WritebackEnvironment {
    // Of what is in the bucket.
    ObjectStore& store;
    BufferPool& pool;
    Timer& timer;
    // The store's time.
    const Clock& clock;
    // For tasks that wait for the disk.
    Executor& disk;
    // This user's, there already, and used by this mount alone.
    std::string directory;
    // In bytes.
    std::uint64_t limit = 0;
    // Keys whose change says something of what was changed before: commit markers, and what mounts tell each other.
    std::function<bool(const std::string& key)> is_barrier;
};

struct UnsentStatus {
    std::uint64_t changes = 0;
    std::uint64_t bytes = 0;
    // When the oldest of them was acknowledged.
    std::optional<WallTime> oldest;
    // Acknowledgements that wait for room.
    std::uint64_t waiting = 0;
    // The oldest that fails, and why; empty where none does.
    std::string failing_key;
    std::string failure;
};

class UnsentChanges {
public:
    // With what earlier mounts have left, which is on its way after start().
    static Result<std::unique_ptr<UnsentChanges>> open(const WritebackEnvironment& environment);
    // As stop(). What is not in the bucket stays on the disk, for the next mount.
    ~UnsentChanges();
    UnsentChanges(const UnsentChanges&) = delete;
    UnsentChanges& operator=(const UnsentChanges&) = delete;

    void start();
    // Sends nothing more. What is under way ends with the store, and is waited for.
    void stop();

    // Null where the bucket tells.
    [[nodiscard]] std::shared_ptr<const HeldChange> find(const std::string& key) const;
    [[nodiscard]] bool is_unsent(const HeldChange& change) const;
    // And it is on the disk.
    [[nodiscard]] bool is_acknowledged(const HeldChange& change) const;
    [[nodiscard]] Overlay::Changes below(const std::string& prefix) const;
    [[nodiscard]] std::string etag_here(const std::string& key, const std::string& etag) const;
    [[nodiscard]] std::string etag_there(const std::string& key, const std::string& etag) const;

    // For a body that is larger than kMostInline.
    [[nodiscard]] Result<std::shared_ptr<BodyFile>> new_file();
    // `change`: without its number. `body`: of a file, on the disk. `may`: whether it still may be;
    // asked right before. Calls back once it is on the disk.
    void acknowledge(UnsentChange change, Body body, std::function<bool()> may, std::function<void(Status)> done);

    [[nodiscard]] UnsentStatus status() const;
    // Calls back once all that is acknowledged by now is in the bucket; with ECANCELED where the mount ends before.
    void when_sent(std::function<void(Status)> sent);

private:
    using HeldPtr = std::shared_ptr<const HeldChange>;
    struct Waiting {
        UnsentChange change;
        Body body;
        std::function<bool()> may;
        std::function<void(Status)> done;
    };
    struct Barrier {
        std::uint64_t number = 0;
        std::function<void(Status)> sent;
    };

    explicit UnsentChanges(const WritebackEnvironment& environment);
    void take_over(std::vector<LogEntry> entries) EXCLUDES(mutex_);
    void adopt(UnsentChange change) REQUIRES(mutex_);
    [[nodiscard]] std::vector<std::shared_ptr<BodyFile>> open_files(const UnsentChange& change) REQUIRES(mutex_);
    void find_sources(HeldChange& held) const REQUIRES(mutex_);
    void remove_unused_files() EXCLUDES(mutex_);
    [[nodiscard]] bool has_room() const REQUIRES(mutex_);
    [[nodiscard]] Status conditions_hold(const UnsentChange& change) const REQUIRES(mutex_);
    void append(Waiting waiting) EXCLUDES(mutex_);
    void appended(const HeldPtr& held, const Status& written, const std::function<void(Status)>& done) EXCLUDES(mutex_);
    void resolve(UnsentChange& change) const REQUIRES(mutex_);
    void resolve_sent(UnsentChange& change) const REQUIRES(mutex_);
    // As the store is to be asked: with its ETags.
    [[nodiscard]] HeldPtr resolved(const HeldPtr& held) const REQUIRES(mutex_);
    void send_more() EXCLUDES(mutex_);
    void ended(const HeldPtr& held, const Result<std::string>& etag) EXCLUDES(mutex_);
    void note_sent(const HeldPtr& held, const SentChange& change, const std::string& etag) EXCLUDES(mutex_);
    void sent(const HeldPtr& held, const std::string& etag) EXCLUDES(mutex_);
    void failed(const HeldPtr& held, const Error& error) EXCLUDES(mutex_);
    // In the log and by status(), until the key is in the bucket.
    void tell_of(const std::string& key, const std::string& message) REQUIRES(mutex_);
    // One call less is under way.
    void step_ended() EXCLUDES(mutex_);
    void try_again() EXCLUDES(mutex_);
    void admit_waiting() EXCLUDES(mutex_);
    [[nodiscard]] std::vector<std::function<void(Status)>> take_sent() REQUIRES(mutex_);

    const WritebackEnvironment environment_;
    PieceLoader loader_;
    std::unique_ptr<ChangeLog> log_;

    mutable Mutex mutex_;
    Condition idle_;
    Overlay overlay_ GUARDED_BY(mutex_);
    SendOrder order_ GUARDED_BY(mutex_);
    EtagAliases aliases_ GUARDED_BY(mutex_);
    std::deque<Waiting> waiting_ GUARDED_BY(mutex_);
    std::vector<Barrier> barriers_ GUARDED_BY(mutex_);
    // Numbers of changes under way of which it is not known whether they were made.
    std::set<std::uint64_t> unknown_ GUARDED_BY(mutex_);
    // On the disk, or about to be.
    std::uint64_t unsent_ GUARDED_BY(mutex_) = 0;
    std::uint64_t unsent_bytes_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_acknowledged_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_file_ GUARDED_BY(mutex_) = 0;
    // Sends under way, and calls to the log.
    std::uint64_t under_way_ GUARDED_BY(mutex_) = 0;
    bool sending_ GUARDED_BY(mutex_) = false;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::string failing_key_ GUARDED_BY(mutex_);
    std::string failure_ GUARDED_BY(mutex_);
    Milliseconds pause_ GUARDED_BY(mutex_){0};
    bool retries_ GUARDED_BY(mutex_) = false;
    OwnedTimers timers_;
};

}  // namespace ckptfs
