// SPDX-License-Identifier: Apache-2.0
#include "writeback/unsent_changes.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <variant>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// Files, copies or removals at once; the store's client bounds the requests that they make.
constexpr std::size_t kMostUnderWay = 32;
// Each is a few hundred bytes in memory, and up to kMostInline of its body.
constexpr std::uint64_t kMostUnsent = 16'384;
constexpr Milliseconds kFirstPause{1'000};
constexpr Milliseconds kLongestPause{60'000};

// On the disk.
std::uint64_t bytes_of(const UnsentChange& change) {
    std::uint64_t bytes = 0;
    for (const BodyPiece& piece : change.body) {
        bytes += piece.place == BodyPiece::Place::kObject ? 0 : piece.size;
    }
    return bytes;
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
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
        sending_ = false;
        waiting.swap(waiting_);
    }
    for (const Waiting& each : waiting) {
        each.done(failure(ECANCELED, each.change.object.key + ": the mount ends"));
    }
    {
        MutexLock lock(mutex_);
        idle_.wait(lock, [this]() REQUIRES(mutex_) { return under_way_ == 0; });
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

// --- what earlier mounts have left

void UnsentChanges::take_over(std::vector<LogEntry> entries) {
    std::map<std::uint64_t, UnsentChange> unsent;
    const MutexLock lock(mutex_);
    for (LogEntry& entry : entries) {
        if (auto* const change = std::get_if<UnsentChange>(&entry)) {
            last_number_ = std::max(last_number_, change->number);
            unsent.insert_or_assign(change->number, std::move(*change));
        } else {
            const SentChange& sent = std::get<SentChange>(entry);
            unsent.erase(sent.number);
            aliases_.note(sent.key, sent.acknowledged_etag, sent.etag);
        }
    }
    for (auto& [number, change] : unsent) {
        adopt(std::move(change));
    }
    last_acknowledged_ = last_number_;
    if (unsent_ > 0) {
        log_info(format("{} of an earlier mount, {} MiB, go to the bucket now", counted(unsent_, "unsent change"),
                        mebibytes(unsent_bytes_)));
    }
}

void UnsentChanges::adopt(UnsentChange change) {
    auto held = std::make_shared<HeldChange>();
    held->body = body_of(change);
    held->change = std::move(change);
    held->may_be_made = true;
    if (held->change.kind == UnsentChange::Kind::kCopy) {
        find_source(*held);
    }
    ++unsent_;
    unsent_bytes_ += bytes_of(held->change);
    overlay_.add(held);
    order_.add(std::move(held));
}

void UnsentChanges::find_source(HeldChange& copy) const {
    const HeldPtr source = overlay_.find(copy.change.source_key);
    if (source == nullptr || source->change.object.etag != copy.change.source_etag) {
        return;
    }
    if (!source->is_read_at_source() && source->body.is_local()) {
        copy.body = source->body;
    } else {
        copy.source = source;
    }
}

Body UnsentChanges::body_of(const UnsentChange& change) {
    Body body;
    body.pieces = change.body;
    for (const BodyPiece& piece : body.pieces) {
        if (piece.place != BodyPiece::Place::kFile || body.file(piece.file) != nullptr) {
            continue;
        }
        last_file_ = std::max(last_file_, piece.file);
        Result<std::shared_ptr<BodyFile>> file = BodyFile::open(environment_.directory, piece.file);
        if (file) {
            body.files.push_back(std::move(*file));
        } else {
            // What needs it fails, and says so for as long as it does.
            log_error(
                escaped(change.object.key + ": was acknowledged, and its bytes are gone: " + file.error().message));
        }
    }
    return body;
}

// Of what was never acknowledged, or is in the bucket.
void UnsentChanges::remove_unused_files() {
    std::set<std::uint64_t> used;
    {
        const MutexLock lock(mutex_);
        for (const HeldPtr& held : order_.all()) {
            for (const BodyPiece& piece : held->change.body) {
                used.insert(piece.file);
            }
        }
    }
    std::error_code error;
    for (const auto& each : std::filesystem::directory_iterator(environment_.directory, error)) {
        const auto number = BodyFile::number_of(each.path().filename().string());
        if (number && !used.contains(*number)) {
            std::filesystem::remove(each.path(), error);
        }
    }
}

// --- what readers see

std::shared_ptr<const HeldChange> UnsentChanges::find(const std::string& key) const {
    const MutexLock lock(mutex_);
    return overlay_.find(key);
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
    {
        const MutexLock lock(mutex_);
        if (!stopping_) {
            held->change.number = ++last_number_;
            if (held->change.kind == UnsentChange::Kind::kCopy) {
                find_source(*held);
            }
            resolve_sent(held->change);
            ++unsent_;
            unsent_bytes_ += bytes_of(held->change);
            ++under_way_;
            overlay_.add(held);
            // In the order of the numbers.
            log_->append(held->change, [this, held, done = std::move(waiting.done)](const Status& written) {
                appended(held, written, done);
            });
            return;
        }
    }
    waiting.done(failure(ECANCELED, key + ": the mount ends"));
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
            unsent_bytes_ -= bytes_of(held->change);
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
}

UnsentChanges::HeldPtr UnsentChanges::resolved(const HeldPtr& held) const {
    auto copy = std::make_shared<HeldChange>(*held);
    copy->may_be_made = held->may_be_made || unknown_.contains(held->change.number);
    resolve(copy->change);
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
    if (!etag) {
        failed(held, etag.error());
        step_ended();
        return;
    }
    const UnsentChange& change = held->change;
    SentChange sent_change;
    sent_change.number = change.number;
    if (!held->removes() && *etag != change.object.etag) {
        sent_change.key = change.object.key;
        sent_change.acknowledged_etag = change.object.etag;
        sent_change.etag = *etag;
    }
    // Where the disk does not take it, the next mount finds that it was made.
    log_->sent(sent_change, [this, held, etag = *etag](const Status& /*written*/) {
        sent(held, etag);
        step_ended();
    });
}

void UnsentChanges::sent(const HeldPtr& held, const std::string& etag) {
    const UnsentChange& change = held->change;
    std::vector<std::function<void()>> barriers;
    {
        const MutexLock lock(mutex_);
        if (!held->removes()) {
            aliases_.note(change.object.key, change.object.etag, etag);
        }
        order_.ended(change.number);
        unknown_.erase(change.number);
        overlay_.drop(*held, nullptr);
        --unsent_;
        unsent_bytes_ -= bytes_of(change);
        pause_ = Milliseconds(0);
        if (failing_key_ == change.object.key) {
            log_info(escaped(failing_key_ + ": is in the bucket now"));
            failing_key_.clear();
            failure_.clear();
        }
        barriers = take_sent();
    }
    for (const std::function<void()>& each : barriers) {
        each();
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
    if (failing_key_.empty() || failure_ != error.message) {
        log_error(escaped(held->key() +
                          ": was acknowledged by the disk, and cannot be made in the bucket yet; what came "
                          "after it waits: " +
                          error.message));
    }
    failing_key_ = held->key();
    failure_ = error.message;
    if (!retries_) {
        retries_ = true;
        pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
        timers_.after(pause_, [this] { try_again(); });
    }
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

void UnsentChanges::when_sent(std::function<void()> sent) {
    std::vector<std::function<void()>> now;
    {
        const MutexLock lock(mutex_);
        barriers_.push_back({last_acknowledged_, std::move(sent)});
        now = take_sent();
    }
    for (const std::function<void()>& each : now) {
        each();
    }
}

std::vector<std::function<void()>> UnsentChanges::take_sent() {
    std::vector<std::function<void()>> sent;
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
