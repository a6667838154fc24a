// SPDX-License-Identifier: Apache-2.0
// All changes that were acknowledged and are not in the bucket yet: on the disk, in memory, and on their way.
//
// acknowledge() puts a change on the disk, shows it to readers of this mount, and sends it when its turn comes
// (send_order.h). What fails is tried again, after pauses that grow to a minute, for as long as it takes; what comes
// after it waits. Where more than `limit` bytes wait for the bucket, acknowledgements do, until there is room.
//
// Before the first file of a directory is acknowledged other mounts are told (announcements.h). A marker is made where
// `may_mark` allows it at that time: another mount's files, announced before the marker was acknowledged, may not be in
// the bucket yet.
//
// A file that another client was faster with, where that matters, is kept until it is written anew here or removed; it
// holds back what comes after it.
//
// unsent_changes.cc has acknowledgements, unsent_changes_told.cc what others are told of them,
// unsent_changes_sending.cc what is sent, unsent_changes_refused.cc what another client was faster with,
// unsent_changes_left.cc what earlier mounts have left.
//
// Ownership: the environment outlives it. Threads: all functions may be called from any thread, and return at once, but
// for open() and stop(). Nothing is called back with a lock held.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/owned_timers.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/clock.h"
#include "ckptfs/executor.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "writeback/announcements.h"
#include "writeback/body_read.h"
#include "writeback/change_log.h"
#include "writeback/change_sender.h"
#include "writeback/etag_aliases.h"
#include "writeback/given_up.h"
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
    // Keys whose change says something of what was changed before: commit markers.
    std::function<bool(const std::string& key)> is_barrier;

    // What follows is for mounts that share the bucket with others; where it is missing, nothing is asked or told.

    // Of the mount's keys.
    std::string prefix{};
    // For others that wait for this mount.
    std::string host{};
    // The file whose directory has something that is not in the bucket while this key is not; empty where no marker
    // depends on it.
    std::function<std::string(const std::string& key)> announced_as{};
    // What others have announced of a marker's directory, and below it: for UnsentChange::awaited.
    std::function<void(const std::string& key, StoreDone<std::vector<std::uint64_t>> done)> announced_by_others{};
    // Whether a marker may be made now. Called back with a failure that is retryable where that may change; else it is
    // given up.
    std::function<void(const UnsentChange& marker, std::function<void(Status)> done)> may_mark{};
    // Keys that go to the store at once: what mounts tell each other.
    std::function<bool(const std::string& key)> is_direct{};
    // Of changes that were acknowledged before, on other places of the disk: what this mount acknowledges of one of
    // these keys comes after that. Fewer each time.
    std::function<std::set<std::string, std::less<>>()> keys_elsewhere{};
    // A change of this name lets go on what waits there: it does not wait for room.
    std::function<bool(const std::string& key)> is_way_out_elsewhere{};
    // Another client was faster with what this name has, each time that this is found.
    std::function<void(const std::string& key)> refused{};
    // A marker that was acknowledged will not be made; a file will not, unless it is written anew here. On any thread.
    std::function<void(const std::string& key, const Error& why)> lost{};
    // One of those was acknowledged again, or removed.
    std::function<void(const std::string& key)> made_good{};
    // Markers that were lost; null where none are kept.
    GivenUpMarkers* given_up = nullptr;
    // Who waits for all to be sent is told of what has failed for so long. 0: waits.
    Milliseconds patience{0};
    // An object below kTemporaryPrefix is about to be acknowledged, or its removal was: what is there at the end of the
    // process is for the next mount to remove.
    std::function<void(const std::string& key, bool is_there)> note_hidden{};
    // It is on the disk, and not on its way yet: what this mount acknowledges, and at start() what earlier ones have.
    // In order, on any thread.
    std::function<void(const std::shared_ptr<const HeldChange>& held)> acknowledged{};
    // The disk is full: removes something of what is held only to be kept (acknowledged()). False where there is
    // nothing.
    std::function<bool()> make_room{};
    // What was acknowledged as this is in the bucket, under this ETag. On any thread.
    std::function<void(const ObjectInfo& acknowledged, const std::string& etag, WallTime sent)> in_bucket{};
    // Of the log; for tests.
    std::uint64_t segment_size = ChangeLog::kSegmentSize;
    // A file is being written: calls what is returned once that is over, also where the file was given up. What has not
    // been called by the end of the process is for the next mount to tell others of.
    std::function<std::function<void()>(const std::string& key)> begin_file{};
};

struct UnsentStatus {
    std::uint64_t changes = 0;
    std::uint64_t bytes = 0;
    // When the oldest of them was acknowledged.
    std::optional<WallTime> oldest;
    // Acknowledgements that wait for room.
    std::uint64_t waiting = 0;
    // The last change that was acknowledged, and the last one up to which all are in the bucket.
    std::uint64_t last_acknowledged = 0;
    std::uint64_t all_sent_up_to = 0;
    // The oldest that fails, and why; empty where none does.
    std::string failing_key;
    std::string failure;
    // GivenUpMarkers, and one of them.
    std::uint64_t given_up = 0;
    std::string given_up_key;
    // UnsentChanges::id(), of all places on the disk, the mount's own first; and changes on the others. The numbers are
    // of its own.
    std::vector<std::string> places;
    std::uint64_t changes_elsewhere = 0;
};

class UnsentChanges {
public:
    // With what earlier mounts have left, which is on its way after start().
    static Result<std::unique_ptr<UnsentChanges>> open(const WritebackEnvironment& environment);
    // As stop(). What is not in the bucket stays on the disk, for the next mount.
    ~UnsentChanges();
    UnsentChanges(const UnsentChanges&) = delete;
    UnsentChanges& operator=(const UnsentChanges&) = delete;

    // `first`: is called once others know of what was left, and calls back when it may be sent.
    void start(const std::function<void(std::function<void()>)>& first = nullptr);
    // What earlier mounts were writing was told of otherwise.
    void withdraw_left();
    // Begins to send nothing more, and answers all that waits here.
    void pause();
    // Sends nothing more. What is under way ends with the store, and is waited for.
    void stop();

    // Null where the bucket tells.
    [[nodiscard]] std::shared_ptr<const HeldChange> find(const std::string& key) const;
    [[nodiscard]] bool is_unsent(const HeldChange& change) const;
    // And it is on the disk.
    [[nodiscard]] bool is_acknowledged(const HeldChange& change) const;
    [[nodiscard]] Overlay::Changes below(const std::string& prefix) const;
    // kWriteIdMetadata of what is unsent under this name; empty where nothing is.
    [[nodiscard]] std::string write_id(const std::string& key) const;
    [[nodiscard]] std::string etag_here(const std::string& key, const std::string& etag) const;
    // What the store tells of.
    void show_as_here(ObjectInfo& object) const;
    // EtagAliases::acknowledged_at(), and of what is unsent.
    [[nodiscard]] std::optional<WallTime> acknowledged_at(const ObjectInfo& object) const;
    [[nodiscard]] std::string etag_there(const std::string& key, const std::string& etag) const;

    // A file that was being written.
    struct Announced {
        // Of begin_writing(), which has it no more; empty for none.
        std::string announcement{};
        // It was not acknowledged, and who wrote it has this one again; false where it has ended. Null where none does.
        std::function<bool(const std::string& announcement)> takes_back{};
    };
    // For a body that is larger than kMostInline.
    [[nodiscard]] Result<std::shared_ptr<BodyFile>> new_file();
    // To one of those: where the disk is full, in the place of what is only to be kept.
    [[nodiscard]] Result<BodyPiece> write(BodyFile& file, const Payload& bytes) const {
        return file.write(bytes, environment_.make_room);
    }
    // `change`: without its number. `body`: of a file, on the disk. `may`: whether it still may be;
    // asked right before. Calls back once it is on the disk.
    void acknowledge(UnsentChange change, Body body, std::function<bool()> may, Announced announced,
                     std::function<void(Status)> done);
    struct Writing {
        // Of WritebackEnvironment::begin_file; null for none.
        std::function<void()> end;
        std::string announcement;
    };
    // A file is being written, of which nothing is on the disk yet: others are told, as soon as may be. Calls back on
    // any thread.
    void begin_writing(const std::string& key, std::function<void(Writing)> begun);
    // Once, when it is over, whether or not it was acknowledged.
    void end_writing(const Writing& writing);
    // For the end of the mount: others are not told any more of directories with nothing unsent, and are told so now.
    void withdraw(std::function<void()> done);

    // This name was written anew or removed by a mount's own place on the disk: what another client is faster with
    // here, by now or later, is given up, unless another name is made of it.
    void replaced_elsewhere(const std::string& key);
    // Of all that waits for the bucket, but for what another client was faster with and is not being tried again.
    using Keys = std::set<std::string, std::less<>>;
    [[nodiscard]] Keys keys() const;
    // Of what another client was faster with, or of what was made of that.
    [[nodiscard]] bool is_way_out(const std::string& key) const EXCLUDES(mutex_);
    // Changes of this key that wait for room wait no more.
    void let_through(const std::string& key);

    // Of the disk, as other mounts are told; empty where none are.
    [[nodiscard]] const std::string& id() const { return id_; }
    [[nodiscard]] UnsentStatus status() const;
    // Calls back once all that is acknowledged by now is in the bucket; with ECANCELED where the mount ends before,
    // with what has failed for as long as the environment's patience; retryable where others could not be told of it
    // for that long, so that nothing was sent.
    void when_sent(std::function<void(Status)> sent);

private:
    using HeldPtr = std::shared_ptr<const HeldChange>;
    struct Waiting {
        std::shared_ptr<HeldChange> held;
        std::function<bool()> may;
        std::function<bool(const std::string&)> takes_back;
        std::function<void(Status)> done;
    };
    struct Barrier {
        std::uint64_t number = 0;
        std::function<void(Status)> sent;
    };

    explicit UnsentChanges(const WritebackEnvironment& environment);
    // By which other mounts know who uses it; of the first mount that did.
    static Result<std::string> disk_id(const std::string& directory);
    [[nodiscard]] bool is_hidden(const std::string& key) const;
    // Empty where others need not be told of it.
    [[nodiscard]] std::string announced_as(const UnsentChange& change) const;
    void end_announcement(const std::string& announcement);
    // Others are told of it first, where they need to be. `announcement`: that it has had.
    void announce(Waiting waiting, const std::string& announcement) EXCLUDES(mutex_);
    void announce_anew(Waiting waiting) EXCLUDES(mutex_);
    // It is not acknowledged: who wrote it tells others of its failure before it ends this.
    void give_back(const Waiting& waiting, const std::string& announcement);
    // Others cannot be told of what earlier mounts have left, which waits for that.
    void left_is_not_told(const Error& why) EXCLUDES(mutex_);
    // It is announced by what is of before the last marker.
    [[nodiscard]] bool is_outdated(const HeldChange& held) const;
    // That wait for room, of before the last marker.
    [[nodiscard]] std::vector<Waiting> take_outdated() REQUIRES(mutex_);
    void admit(Waiting waiting) EXCLUDES(mutex_);
    // `last_sent`: no later, by the environment's clock.
    void take_over(std::vector<LogEntry> entries, WallTime last_sent) EXCLUDES(mutex_);
    void adopt(UnsentChange change) REQUIRES(mutex_);
    [[nodiscard]] std::vector<std::shared_ptr<BodyFile>> open_files(const UnsentChange& change) REQUIRES(mutex_);
    void find_sources(HeldChange& held) const REQUIRES(mutex_);
    void keep_bytes(HeldChange& held) const REQUIRES(mutex_);
    // Changes of this key that wait for room, in order; they do no more.
    [[nodiscard]] std::vector<Waiting> take_waiting(const std::string& key) REQUIRES(mutex_);
    [[nodiscard]] bool is_way_out_here(const std::string& key) const REQUIRES(mutex_);
    void remove_unused_files() EXCLUDES(mutex_);
    [[nodiscard]] bool has_room() const REQUIRES(mutex_);
    [[nodiscard]] Status conditions_hold(const UnsentChange& change) const REQUIRES(mutex_);
    void append(Waiting waiting) EXCLUDES(mutex_);
    void appended(const Waiting& waiting, const Status& written) EXCLUDES(mutex_);
    void resolve(UnsentChange& change) const REQUIRES(mutex_);
    void resolve_sent(UnsentChange& change) const REQUIRES(mutex_);
    [[nodiscard]] std::string sent_etag(const std::string& key, const std::string& etag) const REQUIRES(mutex_);
    // As the store is to be asked: with its ETags.
    [[nodiscard]] HeldPtr resolved(const HeldPtr& held) const REQUIRES(mutex_);
    void send_more() EXCLUDES(mutex_);
    void send(const HeldPtr& held, const HeldPtr& to_send);
    void make_where_allowed(const HeldPtr& marker, const HeldPtr& to_send);
    void make(const HeldPtr& held, const HeldPtr& to_send);
    void ended(const HeldPtr& held, const Result<std::string>& etag) EXCLUDES(mutex_);
    void note_sent(const HeldPtr& held, const SentChange& change, const std::string& etag) EXCLUDES(mutex_);
    void sent(const HeldPtr& held, const std::string& etag) EXCLUDES(mutex_);
    void failed(const HeldPtr& held, const Error& error) EXCLUDES(mutex_);
    // It will not be made.
    void give_up(const HeldPtr& held);
    void give_up_marker(const HeldPtr& held, const Error& why);
    void lose_name(const HeldPtr& held, const Error& error);
    void give_up_superseded(const std::vector<HeldPtr>& superseded);
    // By the environment: what was lost, and what has made that good.
    void tell_lost(const std::string& key, const Error& why) const;
    void acknowledged_anew(const HeldChange& held) const;
    void tell_acknowledged(const HeldPtr& held) const;
    void made_good(const std::string& key) const;
    // What another client was faster with, and what was changed here later makes superfluous; they are under way then.
    [[nodiscard]] std::vector<HeldPtr> take_superseded() REQUIRES(mutex_);
    [[nodiscard]] std::vector<HeldPtr> superseded(const HeldPtr& refused) const REQUIRES(mutex_);
    struct MadeOf {
        std::vector<HeldPtr> changes;
        // By name: whether the last change is one of those.
        std::map<std::string, bool> is_there;
    };
    // With it.
    [[nodiscard]] MadeOf all_made_of(const HeldPtr& refused) const REQUIRES(mutex_);
    // From time to time: it asks for all of them.
    void look_elsewhere() EXCLUDES(mutex_);
    // It is to look again before anything is sent.
    void forget_elsewhere() REQUIRES(mutex_);
    // In the log and by status(), until the key is in the bucket.
    void tell_of(const std::string& key, const std::string& message) REQUIRES(mutex_);
    // One call less is under way.
    void step_ended() EXCLUDES(mutex_);
    void try_again() EXCLUDES(mutex_);
    void admit_waiting() EXCLUDES(mutex_);
    [[nodiscard]] std::vector<std::function<void(Status)>> take_sent() REQUIRES(mutex_);
    // Those that have waited for this one for too long.
    [[nodiscard]] std::vector<std::function<void(Status)>> take_impatient(std::uint64_t number) REQUIRES(mutex_);

    const WritebackEnvironment environment_;
    PieceLoader loader_;
    std::unique_ptr<ChangeLog> log_;
    // Null where no other mount is told.
    std::unique_ptr<Announcements> announcements_;
    std::string id_;
    // Announcements of what earlier mounts have left, and what they had sent; until start().
    std::vector<std::string> left_;
    std::vector<std::pair<ObjectInfo, std::string>> sent_before_;
    WallTime last_sent_before_{};

    mutable Mutex mutex_;
    Condition idle_;
    Overlay overlay_ GUARDED_BY(mutex_);
    SendOrder order_ GUARDED_BY(mutex_);
    EtagAliases aliases_ GUARDED_BY(mutex_);
    // By key and acknowledged ETag, while the log notes that they were sent: what is appended meanwhile comes behind
    // that.
    std::map<std::pair<std::string, std::string>, std::string> being_noted_ GUARDED_BY(mutex_);
    std::deque<Waiting> waiting_ GUARDED_BY(mutex_);
    std::vector<Barrier> barriers_ GUARDED_BY(mutex_);
    // Numbers of changes under way of which it is not known whether they were made.
    std::set<std::uint64_t> unknown_ GUARDED_BY(mutex_);
    // Those that another client was faster with, by their numbers.
    std::map<std::uint64_t, HeldPtr> refused_ GUARDED_BY(mutex_);
    // Names of unsent changes that were replaced elsewhere.
    std::set<std::string> replaced_ GUARDED_BY(mutex_);
    // On the disk, or about to be.
    std::uint64_t unsent_ GUARDED_BY(mutex_) = 0;
    std::uint64_t unsent_bytes_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_acknowledged_ GUARDED_BY(mutex_) = 0;
    // Of what earlier mounts have left.
    std::uint64_t last_left_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_file_ GUARDED_BY(mutex_) = 0;
    // Of changes that the last mount of the disk has left, by number; some are gone.
    std::map<std::uint64_t, std::weak_ptr<BodyFile>> left_files_ GUARDED_BY(mutex_);
    // Sends under way, and calls to the log.
    std::uint64_t under_way_ GUARDED_BY(mutex_) = 0;
    bool sending_ GUARDED_BY(mutex_) = false;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::string failing_key_ GUARDED_BY(mutex_);
    SteadyTime failing_since_ GUARDED_BY(mutex_){};
    std::string failure_ GUARDED_BY(mutex_);
    Milliseconds pause_ GUARDED_BY(mutex_){0};
    bool retries_ GUARDED_BY(mutex_) = false;
    // WritebackEnvironment::keys_elsewhere, some time ago; absent before the first look.
    std::optional<Keys> elsewhere_ GUARDED_BY(mutex_);
    // The next look is due; it is planned; and how often what was known has been forgotten, which a look under way is
    // to notice.
    bool looks_elsewhere_ GUARDED_BY(mutex_) = true;
    bool will_look_elsewhere_ GUARDED_BY(mutex_) = false;
    std::uint64_t times_forgotten_ GUARDED_BY(mutex_) = 0;
    OwnedTimers timers_;
};

}  // namespace ckptfs
