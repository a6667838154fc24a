// SPDX-License-Identifier: Apache-2.0
// Sends changes, and handles the results.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "writeback/unsent_changes.h"

namespace ckptfs {
namespace {

// Files, copies or removals at once; the store's client bounds the requests that they make.
constexpr std::size_t kMostUnderWay = 32;
constexpr Milliseconds kFirstPause{1'000};
constexpr Milliseconds kLongestPause{60'000};

// A copy does, and a file that was appended to or changed, which takes the rest from the version before.
bool takes_from_an_object(const UnsentChange& change) {
    return change.kind == UnsentChange::Kind::kCopy ||
           std::any_of(change.body.begin(), change.body.end(),
                       [](const BodyPiece& piece) { return piece.place == BodyPiece::Place::kObject; });
}

bool is_refused(const UnsentChange& change, const Error& error) {
    const bool takes = takes_from_an_object(change);
    return !error.outcome_unknown && ((change.if_none_match && error.errno_value == EEXIST) ||
                                      ((!change.if_match.empty() || takes) && error.errno_value == ESTALE) ||
                                      (takes && error.errno_value == ENOENT));
}

std::string not_made(const HeldChange& held, const std::string& why) {
    return escaped(held.key() + ": was acknowledged by the disk, but will not be uploaded: " + why);
}

// A name that is only to be created, as one that several nodes claim, a symbolic link or a directory. If another client
// has made it, the change does not hold back what comes after it. A change that replaces a version is not given up.
bool is_made_by_another(const UnsentChange& change) {
    return change.kind == UnsentChange::Kind::kPut && change.if_none_match && change.object.size <= kMostInline;
}

}  // namespace

void UnsentChanges::resolve(UnsentChange& change) const {
    change.source_etag = aliases_.there(change.source_key, change.source_etag);
    change.if_match = aliases_.there(change.object.key, change.if_match);
    for (BodyPiece& piece : change.body) {
        piece.etag = aliases_.there(piece.key, piece.etag);
    }
}

// Replaces the ETags of sent versions by the store's, while the log has the aliases. Not of a version that is unsent
// itself: an earlier one of its key may have been acknowledged with the same ETag, as copies of one version are.
void UnsentChanges::resolve_sent(UnsentChange& change) const {
    change.source_etag = sent_etag(change.source_key, change.source_etag);
    change.if_match = sent_etag(change.object.key, change.if_match);
    for (BodyPiece& piece : change.body) {
        piece.etag = sent_etag(piece.key, piece.etag);
    }
}

std::string UnsentChanges::sent_etag(const std::string& key, const std::string& etag) const {
    if (overlay_.find(key) == nullptr) {
        return aliases_.there(key, etag);
    }
    // The log may drop the alias before this change is made.
    const auto found = being_noted_.find({key, etag});
    return found != being_noted_.end() ? found->second : etag;
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
    look_elsewhere();
    {
        const MutexLock lock(mutex_);
        if (!sending_ || order_.size() == 0 || (environment_.keys_elsewhere && !elsewhere_)) {
            return;
        }
        const auto waits = [this](const UnsentChange& change) REQUIRES(mutex_) {
            if (!elsewhere_ || elsewhere_->empty() || change.number <= last_left_) {
                return false;
            }
            const std::vector<std::string_view> keys = keys_of(change);
            return std::any_of(keys.begin(), keys.end(),
                               [this](auto key) REQUIRES(mutex_) { return elsewhere_->contains(key); });
        };
        for (HeldPtr& held : order_.begin(kMostUnderWay, waits)) {
            ++under_way_;
            HeldPtr to_send = resolved(held);
            begun.push_back({std::move(held), std::move(to_send)});
        }
    }
    for (const Send& each : begun) {
        send(each.held, each.resolved);
    }
}

// Calls keys_elsewhere() without mutex_, as it takes the locks of the other places. An outdated answer only makes
// changes wait a little longer.
void UnsentChanges::look_elsewhere() {
    for (bool is_known = false; !is_known;) {
        std::uint64_t forgotten = 0;
        {
            const MutexLock lock(mutex_);
            if (!environment_.keys_elsewhere || !sending_ || !std::exchange(looks_elsewhere_, false)) {
                return;
            }
            forgotten = times_forgotten_;
        }
        Keys keys = environment_.keys_elsewhere();
        const MutexLock lock(mutex_);
        is_known = forgotten == times_forgotten_;
        if (is_known) {
            elsewhere_ = std::move(keys);
        }
    }
    const MutexLock lock(mutex_);
    if (!elsewhere_ || elsewhere_->empty() || std::exchange(will_look_elsewhere_, true)) {
        return;
    }
    timers_.after(kFirstPause, [this] {
        {
            const MutexLock again(mutex_);
            will_look_elsewhere_ = false;
            looks_elsewhere_ = true;
        }
        send_more();
    });
}

void UnsentChanges::forget_elsewhere() {
    ++times_forgotten_;
    elsewhere_.reset();
    looks_elsewhere_ = true;
}

UnsentChanges::Keys UnsentChanges::keys() const {
    Keys keys;
    const MutexLock lock(mutex_);
    for (const HeldPtr& held : order_.all()) {
        const std::uint64_t number = held->change.number;
        // A refused change that succeeds at last comes before what the mount's own place has.
        if (!refused_.contains(number) || order_.is_under_way(number)) {
            const std::vector<std::string_view> own = keys_of(held->change);
            keys.insert(own.begin(), own.end());
        }
    }
    return keys;
}

void UnsentChanges::send(const HeldPtr& held, const HeldPtr& to_send) {
    if (!held->change.is_barrier || held->removes() || !environment_.may_mark) {
        make(held, to_send);
        return;
    }
    // A marker that readers see already must not be refused.
    find_made({environment_.store, loader_}, to_send, [this, held, to_send](Result<std::optional<std::string>> made) {
        if (!made) {
            ended(held, failure(std::move(made.error())));
        } else if (*made) {
            ended(held, std::move(**made));
        } else {
            make_where_allowed(held, to_send);
        }
    });
}

void UnsentChanges::make_where_allowed(const HeldPtr& marker, const HeldPtr& to_send) {
    environment_.may_mark(marker->change, [this, marker, to_send](const Status& may) {
        if (may) {
            make(marker, to_send);
        } else if (may.error().retryable || may.error().errno_value == ECANCELED) {
            ended(marker, failure(may.error()));
        } else {
            give_up_marker(marker, may.error());
            step_ended();
        }
    });
}

void UnsentChanges::make(const HeldPtr& held, const HeldPtr& to_send) {
    send_change({environment_.store, loader_}, to_send,
                [this, held](const Result<std::string>& etag) { ended(held, etag); });
}

void UnsentChanges::ended(const HeldPtr& held, const Result<std::string>& etag) {
    const UnsentChange& change = held->change;
    const auto is_of_lost = [&] {
        const MutexLock lock(mutex_);
        return is_made_of_lost(change);
    };
    if (!etag && is_refused(change, etag.error()) && (is_made_by_another(change) || is_of_lost())) {
        Error why = etag.error();
        why.message = (is_made_by_another(change) ? "another client has made this name first: "
                                                  : "what it was made of is not there: ") +
                      why.message;
        lose(held, why);
        step_ended();
        return;
    }
    if (!etag) {
        failed(held, etag.error());
        step_ended();
        return;
    }
    SentChange sent_change;
    sent_change.number = change.number;
    // Without an ETag nothing names the version: a removal would take any.
    if (!held->removes() && !etag->empty()) {
        sent_change.key = change.object.key;
        sent_change.acknowledged_etag = change.object.etag;
        sent_change.etag = *etag;
    }
    note_sent(held, sent_change, *etag);
}

void UnsentChanges::tell_lost(const std::string& key, const Error& why) const {
    if (environment_.lost) {
        environment_.lost(key, why);
    }
}

void UnsentChanges::tell_not_made(const HeldChange& held, const Error& why) {
    log_error(not_made(held, why.message));
}

void UnsentChanges::tell_name_lost(const HeldChange& held, const Error& why) const {
    if (held.key().ends_with('/')) {
        // The directory exists as well.
        log_info(not_made(held, why.message));
    } else {
        tell_not_made(held, why);
        tell_lost(held.key(), why);
    }
}

// With what was made of it here, as by a rename: that has no source any more. What is being acknowledged is lost once
// it is.
void UnsentChanges::lose(const HeldPtr& held, const Error& error) {
    std::vector<HeldPtr> made;
    {
        const MutexLock lock(mutex_);
        made = all_made_of(held).changes;
        std::erase_if(made, [&](const HeldPtr& each)
                                REQUIRES(mutex_) { return each == held || !order_.take(each->change.number); });
        note_lost(*held);
        std::for_each(made.begin(), made.end(), [this](const HeldPtr& each) REQUIRES(mutex_) { note_lost(*each); });
    }
    tell_name_lost(*held, error);
    Error why = error;
    why.message = held->key() + ", of which it was made, is not there: " + error.message;
    // The last first, so that none is left without its source if the mount is killed in between.
    std::for_each(made.rbegin(), made.rend(), [&](const HeldPtr& each) {
        tell_not_made(*each, why);
        tell_lost(each->key(), why);
        give_up(each);
    });
    give_up(held);
}

void UnsentChanges::made_good(const std::string& key) const {
    if (environment_.made_good) {
        environment_.made_good(key);
    }
}

void UnsentChanges::give_up_superseded(const std::vector<HeldPtr>& superseded) {
    for (const HeldPtr& each : superseded) {
        log_info(not_made(*each, "it was written anew or removed here"));
        made_good(each->key());
        give_up(each);
    }
}

void UnsentChanges::give_up(const HeldPtr& held) {
    {
        const MutexLock lock(mutex_);
        ++under_way_;
    }
    note_sent(held, {held->change.number, "", "", ""}, "");
}

// Changes that come after this one wait until the note is on the disk: made twice, it would undo them.
void UnsentChanges::note_sent(const HeldPtr& held, const SentChange& change, const std::string& etag) {
    if (!change.etag.empty()) {
        const MutexLock lock(mutex_);
        being_noted_.insert_or_assign({change.key, change.acknowledged_etag}, change.etag);
    }
    append_note(held->key(), change, [this, held, change, etag](const Status& written) {
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
            aliases_.note(change.object.key, change.object.etag, etag,
                          {change.object.last_modified, environment_.clock.wall_now()});
        }
        being_noted_.erase({change.object.key, change.object.etag});
        order_.ended(change.number);
        if (replaced_.contains(change.object.key) && order_.last_of(change.object.key, change.number) == nullptr) {
            replaced_.erase(change.object.key);
        }
        unknown_.erase(change.number);
        refused_.erase(change.number);
        overlay_.drop(*held, nullptr);
        --unsent_;
        unsent_bytes_ -= bytes_on_disk(change);
        pause_ = Milliseconds(0);
        if (failing_key_ == change.object.key) {
            if (!etag.empty()) {
                log_info(escaped(failing_key_ + ": is in the bucket now"));
            }
            failing_key_.clear();
            failure_.clear();
        }
        barriers = take_sent();
    }
    if (!etag.empty() && environment_.in_bucket) {
        environment_.in_bucket(change.object, etag, environment_.clock.wall_now());
    }
    end_announcement(held->change.announcement);
    for (const std::function<void(Status)>& each : barriers) {
        each({});
    }
}

void UnsentChanges::failed(const HeldPtr& held, const Error& error) {
    std::vector<HeldPtr> superseded;
    std::vector<std::function<void(Status)>> impatient;
    std::vector<Waiting> way_out;
    std::vector<std::string> names;
    bool is_lost = false;
    std::string message;
    {
        const MutexLock lock(mutex_);
        order_.failed(held->change.number);
        if (error.outcome_unknown) {
            unknown_.insert(held->change.number);
        }
        if (stopping_) {
            return;
        }
        message = error.message;
        if (is_refused(held->change, error)) {
            is_lost = refused_.insert_or_assign(held->change.number, held).second;
            message += "; another client was faster: remove it here, or write it anew";
            superseded = take_superseded();
            is_lost = is_lost && refused_.contains(held->change.number);
            for (const auto& [name, is_there] : all_made_of(held).is_there) {
                names.push_back(name);
                std::vector<Waiting> waiting = take_waiting(name);
                std::move(waiting.begin(), waiting.end(), std::back_inserter(way_out));
            }
        }
        tell_of(held->key(), message);
        impatient = take_impatient(held->change.number);
        if (!retries_) {
            retries_ = true;
            pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
            timers_.after(pause_, [this] { try_again(); });
        }
    }
    if (is_lost) {
        Error refused = error;
        refused.message = message;
        tell_lost(held->key(), refused);
    }
    // Each time: changes that began to wait since the last failure are let through, too.
    for (const std::string& name : names) {
        if (environment_.refused) {
            environment_.refused(name);
        }
    }
    give_up_superseded(superseded);
    for (Waiting& each : way_out) {
        append(std::move(each));
    }
    for (const std::function<void(Status)>& each : impatient) {
        each(failure(EIO, held->key() + ": is not in the bucket yet: " + error.message));
    }
}

void UnsentChanges::tell_of(const std::string& key, const std::string& message) {
    if (failing_key_.empty() || failure_ != message) {
        log_error(escaped(key +
                          ": was acknowledged by the disk, but cannot be uploaded yet; what came after it "
                          "waits: " +
                          message));
    }
    if (failing_key_.empty()) {
        failing_since_ = environment_.clock.now();
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

}  // namespace ckptfs
