// SPDX-License-Identifier: Apache-2.0
// What other mounts are told of unsent changes here, and what a marker knows of what they have told.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "ckptfs/bucket_layout.h"
#include "writeback/unsent_changes.h"

namespace ckptfs {

std::string UnsentChanges::announced_as(const UnsentChange& change) const {
    return announcements_ == nullptr || change.kind == UnsentChange::Kind::kRemove
               ? ""
               : environment_.announced_as(change.object.key);
}

bool UnsentChanges::is_hidden(const std::string& key) const {
    return environment_.note_hidden && key.starts_with(environment_.prefix + std::string(kTemporaryPrefix));
}

void UnsentChanges::end_announcement(const std::string& announcement) {
    if (!announcement.empty()) {
        announcements_->end(announcement);
    }
}

void UnsentChanges::begin_writing(const std::string& key, std::function<void(Writing)> begun) {
    const std::string file = announcements_ == nullptr ? "" : environment_.announced_as(key);
    std::function<void()> over = environment_.begin_file ? environment_.begin_file(key) : nullptr;
    if (file.empty()) {
        begun({std::move(over), ""});
        return;
    }
    // A failure counts only if it happens again at the acknowledgement.
    announcements_->begin(file, [begun = std::move(begun), over = std::move(over)](const Result<std::string>& told) {
        begun({over, told.value_or("")});
    });
}

void UnsentChanges::end_writing(const Writing& writing) {
    if (writing.end) {
        writing.end();
    }
    end_announcement(writing.announcement);
}

void UnsentChanges::left_is_not_told(const Error& why) {
    const std::string message = "other mounts cannot be told of it: " + why.message;
    std::string key;
    std::vector<std::function<void(Status)>> impatient;
    {
        const MutexLock lock(mutex_);
        if (stopping_ || order_.size() == 0) {
            return;
        }
        key = order_.oldest()->key();
        tell_of(key, message);
        impatient = take_impatient(order_.oldest()->change.number);
    }
    Error untold;
    untold.errno_value = EIO;
    // Nothing has been sent yet.
    untold.retryable = true;
    untold.message = key + ": is not in the bucket yet: " + message;
    for (const std::function<void(Status)>& each : impatient) {
        each(failure(untold));
    }
}

void UnsentChanges::withdraw_left() {
    if (announcements_ != nullptr) {
        announcements_->remove_left();
    }
}

void UnsentChanges::withdraw(std::function<void()> done) {
    if (announcements_ == nullptr) {
        done();
    } else {
        announcements_->finish(std::move(done));
    }
}

// A marker may say something about what other mounts have announced by now: it waits for that, and not for what comes
// later.
void UnsentChanges::acknowledge(UnsentChange change, Body body, std::function<bool()> may, Announced announced,
                                std::function<void(Status)> done) {
    auto held = std::make_shared<HeldChange>();
    held->change = std::move(change);
    held->body = std::move(body);
    held->change.is_barrier = environment_.is_barrier(held->key());
    Waiting waiting{held, std::move(may), std::move(announced.takes_back), std::move(done)};
    if (!held->removes() && is_hidden(held->key())) {
        environment_.note_hidden(held->key(), true);
    }
    if (!held->change.is_barrier || held->removes() || !environment_.announced_by_others) {
        announce(std::move(waiting), announced.announcement);
        return;
    }
    environment_.announced_by_others(
        held->key(), [this, waiting = std::move(waiting),
                      announcement = announced.announcement](Result<std::vector<std::uint64_t>> awaited) {
            if (awaited) {
                waiting.held->change.awaited = std::move(*awaited);
                announce(waiting, announcement);
            } else {
                give_back(waiting, announcement);
                waiting.done(failure(std::move(awaited.error())));
            }
        });
}

void UnsentChanges::announce(Waiting waiting, const std::string& announcement) {
    if (!announcement.empty() && announcements_->is_of_this_run(announcement)) {
        waiting.held->change.announcement = announcement;
        admit(std::move(waiting));
        return;
    }
    const std::string file = announced_as(waiting.held->change);
    if (file.empty()) {
        admit(std::move(waiting));
        return;
    }
    announcements_->begin(file, [this, waiting = std::move(waiting), announcement](const Result<std::string>& told) {
        if (told) {
            end_announcement(announcement);
            waiting.held->change.announcement = *told;
            admit(waiting);
        } else {
            give_back(waiting, announcement);
            Error error = told.error();
            error.message = waiting.held->key() + ": other mounts cannot be told of it: " + error.message;
            waiting.done(failure(std::move(error)));
        }
    });
}

// The change comes after a marker: a mount that waits for what came before the marker must not wait for this as well.
void UnsentChanges::announce_anew(Waiting waiting) {
    const std::string before = std::exchange(waiting.held->change.announcement, "");
    announce(std::move(waiting), before);
}

void UnsentChanges::give_back(const Waiting& waiting, const std::string& announcement) {
    if (!announcement.empty() && !(waiting.takes_back && waiting.takes_back(announcement))) {
        end_announcement(announcement);
    }
}

bool UnsentChanges::is_outdated(const HeldChange& held) const {
    const std::string& announcement = held.change.announcement;
    return !announcement.empty() && !announcements_->is_of_this_run(announcement);
}

std::vector<UnsentChanges::Waiting> UnsentChanges::take_outdated() {
    const auto current = std::stable_partition(waiting_.begin(), waiting_.end(),
                                               [this](const Waiting& each) { return is_outdated(*each.held); });
    std::vector<Waiting> outdated(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(current));
    waiting_.erase(waiting_.begin(), current);
    return outdated;
}

}  // namespace ckptfs
