// SPDX-License-Identifier: Apache-2.0
// All changes that were acknowledged and are not in the bucket yet: on the disk, in memory, and on their way.
//
// acknowledge() puts a change on the disk, shows it to readers of this mount, and sends it when its turn comes
// (send_order.h). A change that fails is tried again until it succeeds, after pauses that grow to a minute; what comes
// after it waits. While more than `limit` bytes wait for the bucket, acknowledgements wait, too.
//
// Other mounts are told before the first file of a directory is acknowledged (announcements.h). A marker is made once
// `may_mark` allows it: files that another mount announced before the marker was acknowledged may not be in the bucket
// yet.
//
// A change is refused if its condition does not hold, or the version that it takes bytes from is gone, because another
// client was faster. If it only creates a name with a few bytes, it is given up. Otherwise it is kept, and holds back
// what comes after it, until its name is written again or removed here.
//
// unsent_changes.cc has acknowledgements, unsent_changes_told.cc what other mounts are told of them,
// unsent_changes_sending.cc the sending, unsent_changes_refused.cc refused changes, unsent_changes_left.cc what earlier
// mounts have left.
//
// Ownership: the environment outlives it. Threads: all functions may be called from any thread, and return at once,
// except open() and stop(). Nothing is called back with a lock held.
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
    // The bucket's own store.
    ObjectStore& store;
    BufferPool& pool;
    Timer& timer;
    // Gives the store's time.
    const Clock& clock;
    // Runs tasks that wait for the disk.
    Executor& disk;
    // Exists, belongs to this user, and is used by this mount alone.
    std::string directory;
    // Bytes that may wait for the bucket before acknowledgements wait.
    std::uint64_t limit = 0;
    // Whether a change of the key says something about earlier changes: true for commit markers.
    std::function<bool(const std::string& key)> is_barrier;

    // The fields below are for mounts that share the bucket with others; where one is missing, nothing is asked or
    // told.

    // Prefix of the mount's keys.
    std::string prefix{};
    // This machine's name, for other mounts that wait for this one.
    std::string host{};
    // The file to announce while this key is not in the bucket; empty if no marker depends on it.
    std::function<std::string(const std::string& key)> announced_as{};
    // Calls back with what other mounts have announced in a marker's directory and below, for UnsentChange::awaited.
    std::function<void(const std::string& key, StoreDone<std::vector<std::uint64_t>> done)> announced_by_others{};
    // Calls back whether a marker may be made now. It is asked again after a failure that is retryable or ECANCELED;
    // after any other the marker is given up.
    std::function<void(const UnsentChange& marker, std::function<void(Status)> done)> may_mark{};
    // Whether the key goes to the store at once: those by which mounts tell each other something.
    std::function<bool(const std::string& key)> is_direct{};
    // Keys of unsent changes that earlier mounts left on other places of the disk: what this mount acknowledges of such
    // a key comes after them. Nothing more is acknowledged there.
    std::function<std::set<std::string, std::less<>>()> keys_elsewhere{};
    // Whether a change of the key releases a change that was refused there: it does not wait for room.
    std::function<bool(const std::string& key)> is_way_out_elsewhere{};
    // Called each time a change is refused, for its key and for the keys of what was made of it.
    std::function<void(const std::string& key)> refused{};
    // An acknowledged marker will not be made; a file will not, unless it is written again here. Called on any thread.
    std::function<void(const std::string& key, const Error& why)> lost{};
    // What was lost under this key is resolved: it was acknowledged again, or removed.
    std::function<void(const std::string& key)> made_good{};
    // Takes the markers that are given up; null if they are not remembered.
    GivenUpMarkers* given_up = nullptr;
    // when_sent() reports a failure that has lasted for so long. 0: it waits.
    Milliseconds patience{0};
    // True: an object below kTemporaryPrefix is about to be acknowledged. False: its removal was acknowledged, or it
    // was not. The next mount removes those that are there at the end of the process.
    std::function<void(const std::string& key, bool is_there)> note_hidden{};
    // A change is on the disk, and not on its way yet: one that this mount acknowledges, and at start() those that
    // earlier mounts left. Called in order, on any thread.
    std::function<void(const std::shared_ptr<const HeldChange>& held)> acknowledged{};
    // The disk is full: removes something that is held only to be kept (acknowledged()). False if there is nothing.
    std::function<bool()> make_room{};
    // The version acknowledged as `acknowledged` is in the bucket, under `etag`. Called on any thread.
    std::function<void(const ObjectInfo& acknowledged, const std::string& etag, WallTime sent)> in_bucket{};
    // Segment size of the log; for tests.
    std::uint64_t segment_size = ChangeLog::kSegmentSize;
    // A file begins to be written: the returned function is called once that is over, also if the file was given up. If
    // it was not called by the end of the process, the next mount tells others of the file.
    std::function<std::function<void()>(const std::string& key)> begin_file{};
};

struct UnsentStatus {
    std::uint64_t changes = 0;
    std::uint64_t bytes = 0;
    // When the oldest unsent change was acknowledged.
    std::optional<WallTime> oldest;
    // Number of acknowledgements that wait for room.
    std::uint64_t waiting = 0;
    // Numbers of the last change that was acknowledged, and of the last one up to which all are in the bucket.
    std::uint64_t last_acknowledged = 0;
    std::uint64_t all_sent_up_to = 0;
    // The key whose change failed last, and why; empty if none fails.
    std::string failing_key;
    std::string failure;
    // The number of GivenUpMarkers, and the key of one of them; UnsentDisks sets them.
    std::uint64_t given_up = 0;
    std::string given_up_key;
    // UnsentChanges::id() of all places on the disk, the mount's own first; and the number of changes on the others.
    // `last_acknowledged` and `all_sent_up_to` are those of the own place.
    std::vector<std::string> places;
    std::uint64_t changes_elsewhere = 0;
    // Places that other mounts have left since, with something that none sends; UnsentDisks sets it.
    std::uint64_t places_left = 0;
};

class UnsentChanges {
public:
    // Takes over what earlier mounts have left, which is sent after start().
    static Result<std::unique_ptr<UnsentChanges>> open(const WritebackEnvironment& environment);
    // Calls stop(). What is not in the bucket stays on the disk, for the next mount.
    ~UnsentChanges();
    UnsentChanges(const UnsentChanges&) = delete;
    UnsentChanges& operator=(const UnsentChanges&) = delete;

    // `first` is called once other mounts know of what was left; sending begins when it calls the function that it is
    // given.
    void start(const std::function<void(std::function<void()>)>& first = nullptr);
    // Other mounts know by now of the files that earlier mounts were writing: ends the announcements held for these.
    void withdraw_left();
    // Starts no further sends, and fails what waits here with ECANCELED.
    void pause();
    // Sends nothing more. Waits for what is under way, which ends with the store.
    void stop();

    // The last unsent change of the key; null if the bucket's object counts.
    [[nodiscard]] std::shared_ptr<const HeldChange> find(const std::string& key) const;
    // Whether the change is not in the bucket yet. It may not be on the disk yet, either.
    [[nodiscard]] bool is_unsent(const HeldChange& change) const;
    // Whether the change is on the disk and not in the bucket yet.
    [[nodiscard]] bool is_acknowledged(const HeldChange& change) const;
    [[nodiscard]] Overlay::Changes below(const std::string& prefix) const;
    // kWriteIdMetadata of the unsent object with this key; empty if there is none.
    [[nodiscard]] std::string write_id(const std::string& key) const;
    // The ETag of a version as this mount knows it; `etag` if it has no alias.
    [[nodiscard]] std::string etag_here(const std::string& key, const std::string& etag) const;
    // Gives an object that the store describes the ETag that this mount knows it by.
    void show_as_here(ObjectInfo& object) const;
    // As EtagAliases::acknowledged_at(), also for unsent versions.
    [[nodiscard]] std::optional<WallTime> acknowledged_at(const ObjectInfo& object) const;
    // The ETag of a version as the store knows it; `etag` if it has no alias.
    [[nodiscard]] std::string etag_there(const std::string& key, const std::string& etag) const;

    // What acknowledge() takes over from the writing of a file.
    struct Announced {
        // That of begin_writing(), which no longer belongs to the writing; empty for none.
        std::string announcement{};
        // Called if the file was not acknowledged: gives the announcement back to its writer. False if the writing has
        // ended or has another one. Null if there is no writer.
        std::function<bool(const std::string& announcement)> takes_back{};
    };
    // Creates a file for a body that is larger than kMostInline.
    [[nodiscard]] Result<std::shared_ptr<BodyFile>> new_file();
    // Writes to such a file. If the disk is full, removes what is held only to be kept.
    [[nodiscard]] Result<BodyPiece> write(BodyFile& file, const Payload& bytes) const {
        return file.write(bytes, environment_.make_room);
    }
    // `change` has no number yet. `body`: a file's content, on the disk. `may`: whether the change still may be
    // acknowledged; asked right before it is appended to the log. Calls back once the change is on the disk.
    void acknowledge(UnsentChange change, Body body, std::function<bool()> may, Announced announced,
                     std::function<void(Status)> done);
    struct Writing {
        // That of WritebackEnvironment::begin_file; null for none.
        std::function<void()> end;
        std::string announcement;
    };
    // A file begins to be written, and nothing of it is on the disk yet: tells other mounts as soon as possible. Calls
    // back on any thread.
    void begin_writing(const std::string& key, std::function<void(Writing)> begun);
    // To be called once, when the writing is over, whether or not the file was acknowledged.
    void end_writing(const Writing& writing);
    // For the end of the mount: removes the announcements of directories with nothing unsent now. Calls back when that
    // is done.
    void withdraw(std::function<void()> done);

    // This key was written or removed by the mount's own place on the disk: a change of it that is refused here, by now
    // or later, is given up, unless the object of another key is made of it.
    void replaced_elsewhere(const std::string& key);
    // The keys of all changes that wait for the bucket, except refused ones that are not being tried again.
    using Keys = std::set<std::string, std::less<>>;
    [[nodiscard]] Keys keys() const;
    // Whether the key is that of a refused change, or of a change made of one.
    [[nodiscard]] bool is_way_out(const std::string& key) const EXCLUDES(mutex_);
    // Appends the changes of this key that wait for room without further waiting.
    void let_through(const std::string& key);

    // ID of the disk, as other mounts are told; empty if none are told.
    [[nodiscard]] const std::string& id() const { return id_; }
    [[nodiscard]] UnsentStatus status() const;
    // Calls back once all that is acknowledged by now is in the bucket. Fails with ECANCELED if the mount ends before;
    // with EIO once a change has failed for as long as the environment's patience, retryable if nothing was sent
    // because other mounts could not be told for that long.
    void when_sent(std::function<void(Status)> sent);

private:
    using HeldPtr = std::shared_ptr<const HeldChange>;
    // An acknowledgement that is not in the log yet.
    struct Waiting {
        std::shared_ptr<HeldChange> held;
        std::function<bool()> may;
        std::function<bool(const std::string&)> takes_back;
        std::function<void(Status)> done;
    };
    // A caller of when_sent(), which waits for all changes up to this number.
    struct Barrier {
        std::uint64_t number = 0;
        std::function<void(Status)> sent;
    };

    explicit UnsentChanges(const WritebackEnvironment& environment);
    [[nodiscard]] bool is_hidden(const std::string& key) const;
    // The file to announce for a change; empty if other mounts need not be told of it.
    [[nodiscard]] std::string announced_as(const UnsentChange& change) const;
    void end_announcement(const std::string& announcement);
    // Admits the change, after other mounts were told of it if they need to be. `announcement`: the one that it has.
    void announce(Waiting waiting, const std::string& announcement) EXCLUDES(mutex_);
    void announce_anew(Waiting waiting) EXCLUDES(mutex_);
    // The change is not acknowledged: returns the announcement to its writer, who tells other mounts of the failure
    // before that ends, or ends it if there is none.
    void give_back(const Waiting& waiting, const std::string& announcement);
    // Other mounts cannot be told of what earlier mounts have left, which is not sent before that.
    void left_is_not_told(const Error& why) EXCLUDES(mutex_);
    // Whether the change's announcement was made before the last marker.
    [[nodiscard]] bool is_outdated(const HeldChange& held) const;
    // Takes the changes out of waiting_ whose announcements were made before the last marker.
    [[nodiscard]] std::vector<Waiting> take_outdated() REQUIRES(mutex_);
    void admit(Waiting waiting) EXCLUDES(mutex_);
    // `last_sent`: when the last change was sent, at the latest, by the environment's clock.
    void take_over(std::vector<LogEntry> entries, WallTime last_sent) EXCLUDES(mutex_);
    void adopt(UnsentChange change) REQUIRES(mutex_);
    [[nodiscard]] std::vector<std::shared_ptr<BodyFile>> open_files(const UnsentChange& change) REQUIRES(mutex_);
    void find_sources(HeldChange& held) const REQUIRES(mutex_);
    void keep_bytes(HeldChange& held) const REQUIRES(mutex_);
    // Takes the changes of this key out of waiting_, in order.
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
    // A copy of the change as it is sent: with the ETags that the store knows.
    [[nodiscard]] HeldPtr resolved(const HeldPtr& held) const REQUIRES(mutex_);
    void send_more() EXCLUDES(mutex_);
    void send(const HeldPtr& held, const HeldPtr& to_send);
    void make_where_allowed(const HeldPtr& marker, const HeldPtr& to_send);
    void make(const HeldPtr& held, const HeldPtr& to_send);
    void ended(const HeldPtr& held, const Result<std::string>& etag) EXCLUDES(mutex_);
    void note_sent(const HeldPtr& held, const SentChange& change, const std::string& etag) EXCLUDES(mutex_);
    void sent(const HeldPtr& held, const std::string& etag) EXCLUDES(mutex_);
    void failed(const HeldPtr& held, const Error& error) EXCLUDES(mutex_);
    // The change will not be made: notes that in the log.
    void give_up(const HeldPtr& held);
    void give_up_marker(const HeldPtr& held, const Error& why);
    static void tell_not_made(const HeldChange& held, const Error& why);
    // Until forget_given_up() is called for its number the log has a note of the marker, which the next mount takes
    // over.
    void remember_given_up(const std::string& key, std::uint64_t number, Milliseconds age) EXCLUDES(mutex_);
    void forget_given_up(std::uint64_t number) EXCLUDES(mutex_);
    void take_over_given_up(const std::vector<LogEntry>& entries) EXCLUDES(mutex_);
    // Notes that a change was made, or that it is a marker that was given up.
    void append_note(const std::string& key, const SentChange& change, std::function<void(Status)> done)
        EXCLUDES(mutex_);
    void tell_name_lost(const HeldChange& held, const Error& why) const;
    // `why`: what to say of what was made of it.
    void lose(const HeldPtr& held, const Error& why) EXCLUDES(mutex_);
    void note_lost(const HeldChange& held) REQUIRES(mutex_);
    [[nodiscard]] bool is_made_of_lost(const UnsentChange& change) const REQUIRES(mutex_);
    void give_up_superseded(const std::vector<HeldPtr>& superseded);
    // These report to the environment what was lost, acknowledged or resolved.
    void tell_lost(const std::string& key, const Error& why) const;
    void acknowledged_anew(const HeldChange& held) const;
    void tell_acknowledged(const HeldPtr& held) const;
    void made_good(const std::string& key) const;
    // Takes refused changes that are superseded by what was changed here later, with what was made of them, to be given
    // up. They count as under way then.
    [[nodiscard]] std::vector<HeldPtr> take_superseded() REQUIRES(mutex_);
    [[nodiscard]] std::vector<HeldPtr> superseded(const HeldPtr& refused) const REQUIRES(mutex_);
    // A refused change, and the changes that were made of it.
    struct MadeOf {
        std::vector<HeldPtr> changes;
        // For each of their keys: whether the last change of the key is one of `changes`.
        std::map<std::string, bool> is_there;
    };
    // Includes `refused` itself.
    [[nodiscard]] MadeOf all_made_of(const HeldPtr& refused) const REQUIRES(mutex_);
    // Asks keys_elsewhere() if that is due; not each time, as that collects all keys.
    void look_elsewhere() EXCLUDES(mutex_);
    // send_more() is to look again before anything is sent.
    void forget_elsewhere() REQUIRES(mutex_);
    // Reports a failure in the log, and in status() until the key is in the bucket.
    void tell_of(const std::string& key, const std::string& message) REQUIRES(mutex_);
    // Counts one call less as under way, and goes on with what waits.
    void step_ended() EXCLUDES(mutex_);
    void try_again() EXCLUDES(mutex_);
    void admit_waiting() EXCLUDES(mutex_);
    [[nodiscard]] std::vector<std::function<void(Status)>> take_sent() REQUIRES(mutex_);
    // Takes the barriers that wait for this change, if failures have lasted for the patience.
    [[nodiscard]] std::vector<std::function<void(Status)>> take_impatient(std::uint64_t number) REQUIRES(mutex_);

    const WritebackEnvironment environment_;
    const GivenUpMarkers::Forget forget_given_up_ = [this](std::uint64_t number) { forget_given_up(number); };
    PieceLoader loader_;
    std::unique_ptr<ChangeLog> log_;
    // Null if other mounts are not told.
    std::unique_ptr<Announcements> announcements_;
    std::string id_;
    // Until start(): announcements of what earlier mounts have left; what they had sent, with the store's ETags, and
    // when they sent the last of it, at the latest.
    std::vector<std::string> left_;
    std::vector<std::pair<ObjectInfo, std::string>> sent_before_;
    WallTime last_sent_before_{};

    mutable Mutex mutex_;
    Condition idle_;
    Overlay overlay_ GUARDED_BY(mutex_);
    SendOrder order_ GUARDED_BY(mutex_);
    EtagAliases aliases_ GUARDED_BY(mutex_);
    // The store's ETags by key and acknowledged ETag, while the log notes that these versions were sent: changes
    // appended meanwhile come after that note.
    std::map<std::pair<std::string, std::string>, std::string> being_noted_ GUARDED_BY(mutex_);
    std::deque<Waiting> waiting_ GUARDED_BY(mutex_);
    std::vector<Barrier> barriers_ GUARDED_BY(mutex_);
    // Numbers of changes that may have been made: the outcome of a request was unknown.
    std::set<std::uint64_t> unknown_ GUARDED_BY(mutex_);
    // Refused changes by number.
    std::map<std::uint64_t, HeldPtr> refused_ GUARDED_BY(mutex_);
    // Versions that were given up, by key and acknowledged ETag: the last kMostLost.
    std::deque<std::pair<std::string, std::string>> lost_ GUARDED_BY(mutex_);
    // Keys of unsent changes that were replaced elsewhere.
    std::set<std::string> replaced_ GUARDED_BY(mutex_);
    // The number of changes that are on the disk or about to be, and their bytes there.
    std::uint64_t unsent_ GUARDED_BY(mutex_) = 0;
    std::uint64_t unsent_bytes_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_acknowledged_ GUARDED_BY(mutex_) = 0;
    // The last number of what earlier mounts have left.
    std::uint64_t last_left_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_file_ GUARDED_BY(mutex_) = 0;
    // Files of changes that earlier mounts left, by file number; some have expired.
    std::map<std::uint64_t, std::weak_ptr<BodyFile>> left_files_ GUARDED_BY(mutex_);
    // The number of sends under way and of calls to the log.
    std::uint64_t under_way_ GUARDED_BY(mutex_) = 0;
    // Numbers of the markers that are remembered as given up.
    std::set<std::uint64_t> given_up_ GUARDED_BY(mutex_);
    bool sending_ GUARDED_BY(mutex_) = false;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::string failing_key_ GUARDED_BY(mutex_);
    SteadyTime failing_since_ GUARDED_BY(mutex_){};
    std::string failure_ GUARDED_BY(mutex_);
    Milliseconds pause_ GUARDED_BY(mutex_){0};
    bool retries_ GUARDED_BY(mutex_) = false;
    // What keys_elsewhere() returned last; empty before the first look and after forget_elsewhere().
    std::optional<Keys> elsewhere_ GUARDED_BY(mutex_);
    // Whether the next look is due; whether a timer is set for it; and how often elsewhere_ was forgotten, which a look
    // under way must notice.
    bool looks_elsewhere_ GUARDED_BY(mutex_) = true;
    bool will_look_elsewhere_ GUARDED_BY(mutex_) = false;
    std::uint64_t times_forgotten_ GUARDED_BY(mutex_) = 0;
    OwnedTimers timers_;
};

}  // namespace ckptfs
