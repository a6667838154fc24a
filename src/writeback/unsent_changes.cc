// SPDX-License-Identifier: Apache-2.0
#include "writeback/unsent_changes.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "writeback/store_rules.h"

namespace ckptfs {
namespace {

// Files, copies or removals at once; the store's client bounds the requests that they make.
constexpr std::size_t kMostUnderWay = 32;
// Each is a few hundred bytes in memory, and up to kMostInline of its body.
constexpr std::uint64_t kMostUnsent = 16'384;
constexpr Milliseconds kFirstPause{1'000};
constexpr Milliseconds kLongestPause{60'000};

// Another client was faster with a name that is to be made once, as a directory that two mounts make: its object says
// the same. Files are never given up.
bool is_made_by_another(const UnsentChange& change, const Error& error) {
    const bool is_refused = (change.if_none_match && error.errno_value == EEXIST) ||
                            (!change.if_match.empty() && error.errno_value == ESTALE);
    return is_refused && change.kind == UnsentChange::Kind::kPut && change.object.size <= kMostInline;
}

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
    Result<ChangeLog::Opened> opened = ChangeLog::open(environment.directory);
    if (!opened) {
        return failure(std::move(opened.error()));
    }
    changes->log_ = std::move(opened->log);
    changes->take_over(std::move(opened->entries));
    changes->remove_unused_files();
    return changes;
}

UnsentChanges::~UnsentChanges() {
    stop();
}

void UnsentChanges::start() {
    {
        const MutexLock lock(mutex_);
        sending_ = true;
    }
    send_more();
}

void UnsentChanges::stop() {
    timers_.stop();
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
        each.done(failure(ECANCELED, each.change.object.key + ": the mount ends"));
    }
    {
        MutexLock lock(mutex_);
        idle_.wait(lock, [this]() REQUIRES(mutex_) { return under_way_ == 0; });
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

std::string UnsentChanges::etag_here(const std::string& key, const std::string& etag) const {
    const MutexLock lock(mutex_);
    return aliases_.here(key, etag);
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
    return BodyFile::create(environment_.directory, number);
}

bool UnsentChanges::has_room() const {
    return unsent_ < kMostUnsent && (unsent_bytes_ < environment_.limit || unsent_ == 0);
}

void UnsentChanges::acknowledge(UnsentChange change, Body body, std::function<bool()> may,
                                std::function<void(Status)> done) {
    Waiting waiting{std::move(change), std::move(body), std::move(may), std::move(done)};
    {
        const MutexLock lock(mutex_);
        if (!stopping_ && (!waiting_.empty() || !has_room())) {
            waiting_.push_back(std::move(waiting));
            return;
        }
    }
    append(std::move(waiting));
}

// Where the bytes of objects are that it copies from.
void UnsentChanges::find_sources(HeldChange& held) const {
    const UnsentChange& change = held.change;
    if (change.kind == UnsentChange::Kind::kCopy) {
        const HeldPtr source = overlay_.find(change.source_key);
        if (source != nullptr && source->change.object.etag == change.source_etag && source->body.is_local()) {
            held.body = source->body;
        } else if (change.object.size > 0) {
            held.body.pieces = {BodyPiece::of_object(change.source_key, change.source_etag, 0, change.object.size)};
        }
    }
    for (const BodyPiece& piece : held.body.pieces) {
        const HeldPtr source = piece.place == BodyPiece::Place::kObject ? overlay_.find(piece.key) : HeldPtr();
        if (source != nullptr && source->change.object.etag == piece.etag && held.body.source(piece) == nullptr) {
            held.body.sources.push_back(source);
        }
    }
}

void UnsentChanges::append(Waiting waiting) {
    const std::string key = waiting.change.object.key;
    if (waiting.may && !waiting.may()) {
        waiting.done(failure(EIO, key + ": not sent"));
        return;
    }
    auto held = std::make_shared<HeldChange>();
    held->change = std::move(waiting.change);
    held->body = std::move(waiting.body);
    held->change.is_barrier = environment_.is_barrier(key);
    Status hold;
    {
        const MutexLock lock(mutex_);
        hold = conditions_hold(held->change);
        if (!stopping_ && hold) {
            held->change.number = ++last_number_;
            find_sources(*held);
            resolve_sent(held->change);
            ++unsent_;
            unsent_bytes_ += bytes_on_disk(held->change);
            ++under_way_;
            overlay_.add(held);
            // In the order of the numbers.
            log_->append(held->change, [this, held, done = std::move(waiting.done)](const Status& written) {
                appended(held, written, done);
            });
            return;
        }
    }
    waiting.done(hold ? Status(failure(ECANCELED, key + ": the mount ends")) : std::move(hold));
}

// By what is unsent: it may have changed since the caller looked.
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
    return {};
}

void UnsentChanges::appended(const HeldPtr& held, const Status& written, const std::function<void(Status)>& done) {
    {
        const MutexLock lock(mutex_);
        if (written) {
            last_acknowledged_ = held->change.number;
            order_.add(held);
        } else {
            overlay_.drop(*held, order_.last_of(held->key(), held->change.number));
            --unsent_;
            unsent_bytes_ -= bytes_on_disk(held->change);
        }
    }
    done(written);
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

// --- sending

void UnsentChanges::resolve(UnsentChange& change) const {
    change.source_etag = aliases_.there(change.source_key, change.source_etag);
    change.if_match = aliases_.there(change.object.key, change.if_match);
    for (BodyPiece& piece : change.body) {
        piece.etag = aliases_.there(piece.key, piece.etag);
    }
}

// While the log has their aliases. Not of a version that is unsent itself: an earlier one of its key may have been
// acknowledged with the same ETag, as copies of one version are.
void UnsentChanges::resolve_sent(UnsentChange& change) const {
    if (overlay_.find(change.source_key) == nullptr) {
        change.source_etag = aliases_.there(change.source_key, change.source_etag);
    }
    if (overlay_.find(change.object.key) == nullptr) {
        change.if_match = aliases_.there(change.object.key, change.if_match);
    }
    for (BodyPiece& piece : change.body) {
        if (overlay_.find(piece.key) == nullptr) {
            piece.etag = aliases_.there(piece.key, piece.etag);
        }
    }
}

UnsentChanges::HeldPtr UnsentChanges::resolved(const HeldPtr& held) const {
    auto copy = std::make_shared<HeldChange>(*held);
    copy->may_be_made = held->may_be_made || unknown_.contains(held->change.number);
    resolve(copy->change);
    if (copy->change.kind == UnsentChange::Kind::kPut) {
        copy->body.pieces = copy->change.body;
    }
    return copy;
}

void UnsentChanges::send_more() {
    struct Send {
        HeldPtr held;
        HeldPtr resolved;
    };
    std::vector<Send> begun;
    {
        const MutexLock lock(mutex_);
        if (!sending_ || order_.size() == 0) {
            return;
        }
        for (HeldPtr& held : order_.begin(kMostUnderWay)) {
            ++under_way_;
            HeldPtr to_send = resolved(held);
            begun.push_back({std::move(held), std::move(to_send)});
        }
    }
    for (Send& each : begun) {
        send_change({environment_.store, loader_}, std::move(each.resolved),
                    [this, held = std::move(each.held)](const Result<std::string>& etag) { ended(held, etag); });
    }
}

void UnsentChanges::ended(const HeldPtr& held, const Result<std::string>& etag) {
    const UnsentChange& change = held->change;
    if (!etag && is_made_by_another(change, etag.error())) {
        log_warning(escaped(change.object.key + ": another client has changed it since that was acknowledged here: " +
                            etag.error().message));
        note_sent(held, {change.number, "", "", ""}, "");
        return;
    }
    if (!etag) {
        failed(held, etag.error());
        step_ended();
        return;
    }
    SentChange sent_change;
    sent_change.number = change.number;
    if (!held->removes() && *etag != change.object.etag) {
        sent_change.key = change.object.key;
        sent_change.acknowledged_etag = change.object.etag;
        sent_change.etag = *etag;
    }
    note_sent(held, sent_change, *etag);
}

// Until the disk has it nothing that came later is made: made twice, the change would undo it.
void UnsentChanges::note_sent(const HeldPtr& held, const SentChange& change, const std::string& etag) {
    log_->sent(change, [this, held, change, etag](const Status& written) {
        if (written) {
            sent(held, etag);
        } else {
            {
                const MutexLock lock(mutex_);
                tell_of(held->key(), written.error().message);
            }
            timers_.after(kFirstPause, [this, held, change, etag] {
                {
                    const MutexLock lock(mutex_);
                    if (stopping_) {
                        return;
                    }
                    ++under_way_;
                }
                note_sent(held, change, etag);
            });
        }
        step_ended();
    });
}

void UnsentChanges::sent(const HeldPtr& held, const std::string& etag) {
    const UnsentChange& change = held->change;
    std::vector<std::function<void(Status)>> barriers;
    {
        const MutexLock lock(mutex_);
        if (!etag.empty()) {
            aliases_.note(change.object.key, change.object.etag, etag);
        }
        order_.ended(change.number);
        unknown_.erase(change.number);
        overlay_.drop(*held, nullptr);
        --unsent_;
        unsent_bytes_ -= bytes_on_disk(change);
        pause_ = Milliseconds(0);
        if (failing_key_ == change.object.key) {
            log_info(escaped(failing_key_ + ": is in the bucket now"));
            failing_key_.clear();
            failure_.clear();
        }
        barriers = take_sent();
    }
    for (const std::function<void(Status)>& each : barriers) {
        each({});
    }
}

void UnsentChanges::failed(const HeldPtr& held, const Error& error) {
    const MutexLock lock(mutex_);
    order_.failed(held->change.number);
    if (error.outcome_unknown) {
        unknown_.insert(held->change.number);
    }
    if (stopping_) {
        return;
    }
    tell_of(held->key(), error.message);
    if (!retries_) {
        retries_ = true;
        pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
        timers_.after(pause_, [this] { try_again(); });
    }
}

void UnsentChanges::tell_of(const std::string& key, const std::string& message) {
    if (failing_key_.empty() || failure_ != message) {
        log_error(escaped(key +
                          ": was acknowledged by the disk, and cannot be made in the bucket yet; what came after it "
                          "waits: " +
                          message));
    }
    failing_key_ = key;
    failure_ = message;
}

void UnsentChanges::step_ended() {
    send_more();
    admit_waiting();
    const MutexLock lock(mutex_);
    --under_way_;
    idle_.notify_all();
}

void UnsentChanges::try_again() {
    {
        const MutexLock lock(mutex_);
        retries_ = false;
        order_.retry_all();
    }
    send_more();
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
    status.failing_key = failing_key_;
    status.failure = failure_;
    return status;
}

void UnsentChanges::when_sent(std::function<void(Status)> sent) {
    std::vector<std::function<void(Status)>> now;
    {
        const MutexLock lock(mutex_);
        barriers_.push_back({last_acknowledged_, std::move(sent)});
        now = take_sent();
    }
    for (const std::function<void(Status)>& each : now) {
        each({});
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

}  // namespace ckptfs
