// SPDX-License-Identifier: Apache-2.0
#include "writeback/unsent_changes.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "ckptfs/log.h"
#include "writeback/disk_id.h"
#include "writeback/store_rules.h"

namespace ckptfs {
namespace {

// Each takes a few hundred bytes of memory, and up to kMostInline for its body.
constexpr std::uint64_t kMostUnsent = 16'384;

bool names_file(const UnsentChange& change, std::uint64_t number) {
    return std::any_of(change.body.begin(), change.body.end(), [number](const BodyPiece& piece) {
        return piece.place == BodyPiece::Place::kFile && piece.file == number;
    });
}

}  // namespace

UnsentChanges::UnsentChanges(const WritebackEnvironment& environment)
    : environment_(environment),
      loader_(environment.disk, environment.pool, environment.timer),
      timers_(environment.timer) {}

Result<std::unique_ptr<UnsentChanges>> UnsentChanges::open(const WritebackEnvironment& environment) {
    std::unique_ptr<UnsentChanges> changes(new UnsentChanges(environment));
    Result<ChangeLog::Opened> opened =
        ChangeLog::open(environment.directory, environment.segment_size, environment.make_room);
    if (!opened) {
        return failure(std::move(opened.error()));
    }
    changes->log_ = std::move(opened->log);
    if (environment.announced_as) {
        Result<std::string> id =
            disk_id(environment.directory, {environment.host, this_boot()}, has_unsent(opened->entries));
        if (!id) {
            return failure(std::move(id.error()));
        }
        changes->id_ = std::move(*id);
        changes->announcements_ = std::make_unique<Announcements>(Announcements::Environment{
            environment.store, environment.timer, environment.clock, environment.prefix, changes->id_, environment.host,
            [told = changes.get()](const Error& why) { told->left_is_not_told(why); }});
    }
    changes->take_over_given_up(opened->entries);
    const auto ago = std::chrono::system_clock::now() - opened->last_written;
    changes->take_over(std::move(opened->entries),
                       environment.clock.wall_now() - std::chrono::duration_cast<WallTime::duration>(ago));
    changes->remove_unused_files();
    return changes;
}

UnsentChanges::~UnsentChanges() {
    stop();
}

void UnsentChanges::start(const std::function<void(std::function<void()>)>& first) {
    for (const auto& [object, etag] : std::exchange(sent_before_, {})) {
        if (environment_.in_bucket) {
            environment_.in_bucket(object, etag, last_sent_before_);
        }
    }
    std::vector<HeldPtr> left;
    {
        const MutexLock lock(mutex_);
        left = order_.all();
    }
    for (const HeldPtr& held : left) {
        tell_acknowledged(held);
    }
    const auto send = [this] {
        {
            const MutexLock lock(mutex_);
            sending_ = !stopping_;
            failing_key_.clear();
            failure_.clear();
        }
        send_more();
    };
    const auto begin = [first, send] {
        if (first) {
            first(send);
        } else {
            send();
        }
    };
    if (announcements_ == nullptr) {
        begin();
        return;
    }
    announcements_->take_over(std::exchange(left_, {}), begin);
}

void UnsentChanges::pause() {
    std::deque<Waiting> waiting;
    std::vector<Barrier> barriers;
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
        sending_ = false;
        waiting.swap(waiting_);
        barriers.swap(barriers_);
    }
    for (const Barrier& each : barriers) {
        each.sent(failure(ECANCELED, "the mount ends"));
    }
    for (const Waiting& each : waiting) {
        give_back(each, each.held->change.announcement);
        each.done(failure(ECANCELED, each.held->key() + ": the mount ends"));
    }
}

void UnsentChanges::stop() {
    timers_.stop();
    pause();
    if (announcements_ != nullptr) {
        announcements_->stop();
    }
    {
        MutexLock lock(mutex_);
        idle_.wait(lock, [this]() REQUIRES(mutex_) { return under_way_ == 0; });
    }
    // None is given up any more.
    if (environment_.given_up != nullptr) {
        environment_.given_up->withdraw(forget_given_up_);
    }
    if (log_ == nullptr) {
        return;
    }
    log_->stop();
    const MutexLock lock(mutex_);
    for (const HeldPtr& held : order_.all()) {
        for (const std::shared_ptr<BodyFile>& file : held->body.files) {
            if (names_file(held->change, file->number())) {
                file->keep();
            }
        }
    }
}

// --- what readers see

std::shared_ptr<const HeldChange> UnsentChanges::find(const std::string& key) const {
    const MutexLock lock(mutex_);
    return overlay_.find(key);
}

bool UnsentChanges::is_acknowledged(const HeldChange& change) const {
    const MutexLock lock(mutex_);
    return order_.has(change.change.number);
}

bool UnsentChanges::is_unsent(const HeldChange& change) const {
    const MutexLock lock(mutex_);
    return order_.has(change.change.number) || overlay_.find(change.key()).get() == &change;
}

Overlay::Changes UnsentChanges::below(const std::string& prefix) const {
    const MutexLock lock(mutex_);
    return overlay_.below(prefix);
}

std::string UnsentChanges::write_id(const std::string& key) const {
    const HeldPtr held = find(key);
    return held == nullptr ? "" : write_id_of(held->change.object);
}

std::string UnsentChanges::etag_here(const std::string& key, const std::string& etag) const {
    const MutexLock lock(mutex_);
    return aliases_.here(key, etag);
}

void UnsentChanges::show_as_here(ObjectInfo& object) const {
    object.etag = etag_here(object.key, object.etag);
}

std::optional<WallTime> UnsentChanges::acknowledged_at(const ObjectInfo& object) const {
    const MutexLock lock(mutex_);
    const HeldPtr held = overlay_.find(object.key);
    if (held != nullptr && held->change.object.etag == object.etag) {
        return held->change.object.last_modified;
    }
    return aliases_.acknowledged_at(object);
}

std::string UnsentChanges::etag_there(const std::string& key, const std::string& etag) const {
    const MutexLock lock(mutex_);
    return aliases_.there(key, etag);
}

// --- acknowledgements

Result<std::shared_ptr<BodyFile>> UnsentChanges::new_file() {
    std::uint64_t number = 0;
    {
        const MutexLock lock(mutex_);
        number = ++last_file_;
    }
    Result<std::shared_ptr<BodyFile>> file;
    retry_with_room(environment_.make_room, [&] {
        file = BodyFile::create(environment_.directory, number);
        return file || !is_lack_of_room(file.error().errno_value);
    });
    return file;
}

bool UnsentChanges::has_room() const {
    return unsent_ < kMostUnsent && (unsent_bytes_ < environment_.limit || unsent_ == 0);
}

std::vector<UnsentChanges::Waiting> UnsentChanges::take_waiting(const std::string& key) {
    std::vector<Waiting> taken;
    std::erase_if(waiting_, [&](Waiting& each) {
        const bool is_of_key = each.held->key() == key;
        if (is_of_key) {
            taken.push_back(std::move(each));
        }
        return is_of_key;
    });
    return taken;
}

void UnsentChanges::admit(Waiting waiting) {
    const std::string& key = waiting.held->key();
    const bool is_way_out_elsewhere = environment_.is_way_out_elsewhere && environment_.is_way_out_elsewhere(key);
    {
        MutexLock lock(mutex_);
        const bool may_wait = !stopping_ && !is_way_out_elsewhere && !is_way_out_here(key);
        if (may_wait && (!waiting_.empty() || !has_room())) {
            if (is_outdated(*waiting.held)) {
                lock.unlock();
                announce_anew(std::move(waiting));
            } else {
                waiting_.push_back(std::move(waiting));
            }
            return;
        }
    }
    append(std::move(waiting));
}

// Finds where the bytes of the objects are that the change copies from.
void UnsentChanges::find_sources(HeldChange& held) const {
    const UnsentChange& change = held.change;
    if (change.kind == UnsentChange::Kind::kCopy) {
        const HeldPtr source = overlay_.find(change.source_key);
        if (source != nullptr && source->change.object.etag == change.source_etag && source->body.is_local()) {
            held.body = source->body;
        } else if (change.object.size > 0) {
            held.body.pieces = {
                BodyPiece::of_object(change.source_key, change.source_etag, 0, change.object.size, change.object.size)};
        }
    }
    for (const BodyPiece& piece : held.body.pieces) {
        const HeldPtr source = piece.place == BodyPiece::Place::kObject ? overlay_.find(piece.key) : HeldPtr();
        if (source != nullptr && source->change.object.etag == piece.etag && held.body.source(piece) == nullptr) {
            held.body.sources.push_back(source);
        }
    }
}

// Turns a copy of a refused change into a put of its bytes: the source object will not be in the bucket.
void UnsentChanges::keep_bytes(HeldChange& held) const {
    UnsentChange& change = held.change;
    const bool is_of_refused =
        change.kind == UnsentChange::Kind::kCopy &&
        std::any_of(refused_.begin(), refused_.end(), [&change](const auto& refused) {
            const HeldChange& source = *refused.second;
            return source.key() == change.source_key && source.change.object.etag == change.source_etag;
        });
    if (is_of_refused && held.body.is_local()) {
        change.kind = UnsentChange::Kind::kPut;
        change.body = held.body.pieces;
        change.source_key.clear();
        change.source_etag.clear();
    }
}

void UnsentChanges::append(Waiting waiting) {
    const std::shared_ptr<HeldChange> held = waiting.held;
    UnsentChange& change = held->change;
    if (waiting.may && !waiting.may()) {
        give_back(waiting, change.announcement);
        waiting.done(failure(EIO, held->key() + ": not sent"));
        return;
    }
    Status hold;
    std::vector<Waiting> outdated;
    {
        MutexLock lock(mutex_);
        hold = stopping_ ? Status(failure(ECANCELED, held->key() + ": the mount ends")) : conditions_hold(change);
        if (hold && is_outdated(*held)) {
            lock.unlock();
            announce_anew(std::move(waiting));
            return;
        }
        if (hold) {
            change.number = ++last_number_;
            if (change.is_barrier && !held->removes() && announcements_ != nullptr) {
                announcements_->begin_next_run();
                outdated = take_outdated();
            }
            find_sources(*held);
            keep_bytes(*held);
            resolve_sent(change);
            ++unsent_;
            unsent_bytes_ += bytes_on_disk(change);
            ++under_way_;
            overlay_.add(held);
            // With the lock held, so that the log has the order of the numbers.
            log_->append(change, [this, waiting](const Status& written) { appended(waiting, written); });
        }
    }
    if (!hold) {
        give_back(waiting, change.announcement);
        waiting.done(std::move(hold));
    }
    for (Waiting& each : outdated) {
        announce_anew(std::move(each));
    }
}

// Checks against the unsent changes, which may be others than when the caller looked.
Status UnsentChanges::conditions_hold(const UnsentChange& change) const {
    if (const HeldPtr there = overlay_.find(change.object.key)) {
        if (change.if_none_match && !there->removes()) {
            return exists_already(change.object.key);
        }
        const bool is_done = change.kind == UnsentChange::Kind::kRemove && there->removes();
        if (!is_done && !change.if_match.empty() && change.if_match != there->change.object.etag) {
            return another_version(change.object.key);
        }
    }
    const auto is_replaced = [this](const std::string& key, const std::string& etag) REQUIRES(mutex_) {
        const HeldPtr source = key.empty() ? nullptr : overlay_.find(key);
        return source != nullptr && source->change.object.etag != etag;
    };
    if (is_replaced(change.source_key, change.source_etag)) {
        return another_version(change.source_key);
    }
    for (const BodyPiece& piece : change.body) {
        if (is_replaced(piece.key, piece.etag)) {
            return another_version(piece.key);
        }
    }
    // The next mount would not know, and wait for what it is made of.
    return is_made_of_lost(change) ? another_version(change.object.key) : Status();
}

void UnsentChanges::tell_acknowledged(const HeldPtr& held) const {
    if (environment_.acknowledged && !is_hidden(held->key())) {
        environment_.acknowledged(held);
    }
}

void UnsentChanges::appended(const Waiting& waiting, const Status& written) {
    const HeldPtr held = waiting.held;
    if (written) {
        tell_acknowledged(held);
    }
    bool is_lost = false;
    std::vector<HeldPtr> superseded;
    const bool is_way_out_elsewhere =
        written && environment_.is_way_out_elsewhere && environment_.is_way_out_elsewhere(held->key());
    {
        const MutexLock lock(mutex_);
        if (is_way_out_elsewhere) {
            // What was refused there may be tried again, and succeed: that comes first.
            forget_elsewhere();
        }
        if (written) {
            last_acknowledged_ = held->change.number;
            order_.add(held);
            // Since it was handed to the log.
            is_lost = is_made_of_lost(held->change) && order_.take(held->change.number);
            superseded = take_superseded();
        } else {
            overlay_.drop(*held, order_.last_of(held->key(), held->change.number));
            --unsent_;
            unsent_bytes_ -= bytes_on_disk(held->change);
        }
    }
    if (!written) {
        give_back(waiting, held->change.announcement);
        if (is_hidden(held->key()) && find(held->key()) == nullptr) {
            environment_.note_hidden(held->key(), false);
        }
    }
    give_up_superseded(superseded);
    if (written) {
        acknowledged_anew(*held);
        if (held->removes() && is_hidden(held->key())) {
            environment_.note_hidden(held->key(), false);
        }
    }
    waiting.done(written);
    if (is_lost) {
        lose(held, another_version(held->key()).value());
    }
    step_ended();
}

void UnsentChanges::admit_waiting() {
    for (;;) {
        Waiting next;
        {
            const MutexLock lock(mutex_);
            if (waiting_.empty() || !has_room()) {
                return;
            }
            next = std::move(waiting_.front());
            waiting_.pop_front();
        }
        append(std::move(next));
    }
}

// --- for status and barriers

UnsentStatus UnsentChanges::status() const {
    const MutexLock lock(mutex_);
    UnsentStatus status;
    status.changes = unsent_;
    status.bytes = unsent_bytes_;
    if (order_.size() > 0) {
        status.oldest = order_.oldest()->change.object.last_modified;
    }
    status.waiting = waiting_.size();
    status.last_acknowledged = last_acknowledged_;
    status.all_sent_up_to = order_.size() > 0 ? order_.oldest()->change.number - 1 : last_acknowledged_;
    status.failing_key = failing_key_;
    status.failure = failure_;
    status.places = {id_};
    return status;
}

void UnsentChanges::when_sent(std::function<void(Status)> sent) {
    std::vector<std::function<void(Status)>> now;
    std::vector<Barrier> canceled;
    {
        const MutexLock lock(mutex_);
        barriers_.push_back({last_acknowledged_, std::move(sent)});
        now = take_sent();
        if (stopping_) {
            canceled.swap(barriers_);
        }
    }
    for (const std::function<void(Status)>& each : now) {
        each({});
    }
    for (const Barrier& each : canceled) {
        each.sent(failure(ECANCELED, "the mount ends"));
    }
}

std::vector<std::function<void(Status)>> UnsentChanges::take_sent() {
    std::vector<std::function<void(Status)>> sent;
    std::erase_if(barriers_, [this, &sent](Barrier& barrier) REQUIRES(mutex_) {
        const bool is_over = order_.size() == 0 || order_.oldest()->change.number > barrier.number;
        if (is_over) {
            sent.push_back(std::move(barrier.sent));
        }
        return is_over;
    });
    return sent;
}

std::vector<std::function<void(Status)>> UnsentChanges::take_impatient(std::uint64_t number) {
    std::vector<std::function<void(Status)>> impatient;
    const Milliseconds patience = environment_.patience;
    if (patience > Milliseconds(0) && environment_.clock.now() - failing_since_ >= patience) {
        std::erase_if(barriers_, [number, &impatient](Barrier& barrier) {
            const bool waits_for_it = barrier.number >= number;
            if (waits_for_it) {
                impatient.push_back(std::move(barrier.sent));
            }
            return waits_for_it;
        });
    }
    return impatient;
}

}  // namespace ckptfs
