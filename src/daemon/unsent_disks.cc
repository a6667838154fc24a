// SPDX-License-Identifier: Apache-2.0
#include "daemon/unsent_disks.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {

Result<std::unique_ptr<WritebackStore>> UnsentDisks::open_store(const Environment& environment,
                                                                const std::string& directory, const UnsentDisks& all,
                                                                bool is_own) {
    // Set once the store is open.
    const auto id = std::make_shared<std::string>();
    WritebackEnvironment own = environment.common;
    own.directory = directory;
    own.announced_by_others = [id, announced = environment.announced_by_others](
                                  const std::string& key, StoreDone<std::vector<std::uint64_t>> done) {
        announced(key, *id, std::move(done));
    };
    own.may_mark = [id, may_mark = environment.may_mark](const UnsentChange& marker, std::function<void(Status)> done) {
        may_mark(marker, *id, std::move(done));
    };
    if (is_own) {
        own.keys_elsewhere = [&all] { return all.keys_elsewhere(); };
        own.is_way_out_elsewhere = [&all](const std::string& key) { return all.is_way_out_elsewhere(key); };
    } else {
        own.refused = [&all](const std::string& key) { all.store().unsent().let_through(key); };
    }
    Result<std::unique_ptr<WritebackStore>> store = WritebackStore::open(own);
    if (store) {
        *id = (*store)->unsent().id();
    }
    return store;
}

Result<std::unique_ptr<UnsentDisks>> UnsentDisks::open(const Environment& environment,
                                                       std::vector<UnsentPlace> places) {
    std::unique_ptr<UnsentDisks> disks(new UnsentDisks());
    disks->limit_ = environment.common.limit;
    disks->given_up_ = environment.common.given_up;
    for (UnsentPlace& place : places) {
        // The first is this mount's own, and acknowledges.
        const bool is_own = disks->disks_.empty();
        Result<std::unique_ptr<WritebackStore>> store = open_store(environment, place.directory, *disks, is_own);
        // What another place holds cannot be left out: it would be sent by a later mount, over what this one saves.
        if (!store) {
            return failure(std::move(store.error()));
        }
        disks->disks_.push_back({std::move(place), std::move(*store)});
    }
    disks->left_places_ = std::make_unique<LeftPlaces>(environment.common.timer, disks->disks_.front().place);
    disks->through_ = std::make_unique<WriteThrough>(environment.common.store, disks->disks_.front().store->unsent());
    return disks;
}

// Sends this mount's own changes last: an earlier version that was left elsewhere must not come after one of them.
void UnsentDisks::start() const {
    const auto left_to_send = std::make_shared<std::atomic<std::size_t>>(disks_.size());
    const auto send_own = std::make_shared<std::function<void()>>();
    const auto one_less = [left_to_send, send_own] {
        if (--*left_to_send == 0) {
            (*send_own)();
        }
    };
    store().unsent().start([send_own, one_less](std::function<void()> send) {
        *send_own = std::move(send);
        one_less();
    });
    for (std::size_t number = 1; number < disks_.size(); ++number) {
        disks_[number].store->unsent().start();
        when_tried(disks_[number].store->unsent(), one_less);
    }
    has_started_ = true;
}

void UnsentDisks::when_tried(UnsentChanges& unsent, const std::function<void()>& tried) {
    unsent.when_sent([&unsent, tried](const Status& sent) {
        if (!sent && sent.error().retryable) {
            when_tried(unsent, tried);
        } else {
            tried();
        }
    });
}

void UnsentDisks::withdraw_left() const {
    for (const Disk& disk : disks_) {
        disk.store->unsent().withdraw_left();
    }
}

void UnsentDisks::tell_of_end() const {
    for (const Disk& disk : disks_) {
        ckptfs::tell_of_end(disk.place);
    }
}

bool UnsentDisks::are_wanted() const {
    return std::any_of(disks_.begin(), disks_.end(), [](const Disk& disk) { return is_wanted(disk.place); });
}

void UnsentDisks::pause() const {
    for (const Disk& disk : disks_) {
        disk.store->unsent().pause();
    }
}

void UnsentDisks::stop() const {
    for (const Disk& disk : disks_) {
        disk.store->unsent().stop();
    }
}

void UnsentDisks::when_sent(const std::function<void(Status)>& sent) const {
    struct All {
        std::atomic<std::size_t> left;
        std::function<void(Status)> sent;
        std::atomic<bool> told = false;
    };
    const auto all = std::make_shared<All>();
    all->left = disks_.size();
    all->sent = sent;
    for (const Disk& disk : disks_) {
        disk.store->unsent().when_sent([all](const Status& status) {
            const bool is_last = --all->left == 0;
            if ((!status || is_last) && !all->told.exchange(true)) {
                all->sent(status);
            }
        });
    }
}

void UnsentDisks::when_sent_from(const std::string& directory, const std::function<void(Status)>& sent) const {
    const auto disk = std::find_if(disks_.begin(), disks_.end(),
                                   [&directory](const Disk& each) { return each.place.directory == directory; });
    if (disk == disks_.end()) {
        sent(failure(ENOENT, escaped(directory) + " is not open"));
    } else {
        disk->store->unsent().when_sent(sent);
    }
}

void UnsentDisks::withdraw(const std::function<void()>& done) const {
    const auto left = std::make_shared<std::atomic<std::size_t>>(disks_.size());
    for (const Disk& disk : disks_) {
        disk.store->unsent().withdraw([left, done] {
            if (--*left == 0) {
                done();
            }
        });
    }
}

std::optional<WallTime> UnsentDisks::acknowledged_at(const ObjectInfo& object) const {
    std::optional<WallTime> time;
    for (const Disk& disk : disks_) {
        time = time ? time : disk.store->unsent().acknowledged_at(object);
    }
    return time;
}

std::string UnsentDisks::write_id(const std::string& key) const {
    std::string id;
    for (const Disk& disk : disks_) {
        id = id.empty() ? disk.store->unsent().write_id(key) : id;
    }
    return id;
}

void UnsentDisks::acknowledged_here(const std::string& key) const {
    for (std::size_t number = 1; has_started_ && number < disks_.size(); ++number) {
        disks_[number].store->unsent().replaced_elsewhere(key);
    }
}

UnsentChanges::Keys UnsentDisks::keys_elsewhere() const {
    UnsentChanges::Keys keys;
    for (std::size_t number = 1; number < disks_.size(); ++number) {
        keys.merge(disks_[number].store->unsent().keys());
    }
    return keys;
}

bool UnsentDisks::is_way_out_elsewhere(const std::string& key) const {
    return std::any_of(disks_.begin() + 1, disks_.end(),
                       [&key](const Disk& disk) { return disk.store->unsent().is_way_out(key); });
}

UnsentStatus UnsentDisks::status() const {
    UnsentStatus sum = store().unsent().status();
    sum.places_left = left_places_->count();
    if (given_up_ != nullptr) {
        std::tie(sum.given_up, sum.given_up_key) = given_up_->left();
    }
    for (std::size_t number = 1; number < disks_.size(); ++number) {
        const UnsentStatus status = disks_[number].store->unsent().status();
        sum.changes += status.changes;
        sum.changes_elsewhere += status.changes;
        sum.places.insert(sum.places.end(), status.places.begin(), status.places.end());
        sum.bytes += status.bytes;
        if (status.oldest && (!sum.oldest || *status.oldest < *sum.oldest)) {
            sum.oldest = status.oldest;
        }
        if (sum.failing_key.empty()) {
            sum.failing_key = status.failing_key;
            sum.failure = status.failure;
        }
    }
    return sum;
}

std::string UnsentDisks::left(bool is_handed_over) const {
    UnsentStatus status = this->status();
    if (is_handed_over) {
        status.changes = 0;
    }
    if (status.changes == 0 && status.given_up > 0) {
        return format("{} acknowledged by the disk and not made in the bucket: {}{}",
                      counted(status.given_up, "commit marker"), escaped(status.given_up_key),
                      status.given_up > 1 ? ", ..." : "");
    }
    return status.changes == 0
               ? ""
               : format("{}, {} MiB, are on the disk in {} and not in the bucket: mount it there again",
                        counted(status.changes, "change"), mebibytes(status.bytes),
                        escaped(std::filesystem::path(disks_.front().place.directory).parent_path().string()));
}

}  // namespace ckptfs
