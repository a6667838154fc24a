// SPDX-License-Identifier: Apache-2.0
// Where this mount's changes are acknowledged (--ack disk), and what mounts of the same source have left on this disk.
// A mount takes the first place that is free, with what is in it, and sends what is in the others that are free.
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

#include "ckptfs/status.h"
#include "daemon/unsent_places.h"
#include "writeback/write_through.h"
#include "writeback/writeback_store.h"

namespace ckptfs {

class UnsentDisks {
public:
    // `common`: without the directory, and without the callbacks that the other members provide with the disk's ID.
    struct Environment {
        WritebackEnvironment common;
        std::function<void(const std::string& key, const std::string& disk, StoreDone<std::vector<std::uint64_t>> done)>
            announced_by_others;
        std::function<void(const UnsentChange& marker, const std::string& disk, std::function<void(Status)> done)>
            may_mark;
    };
    static Result<std::unique_ptr<UnsentDisks>> open(const Environment& environment, std::vector<UnsentPlace> places);

    // The store of this mount's own place, which acknowledges.
    [[nodiscard]] WritebackStore& store() const { return *disks_.front().store; }
    // The bucket as store() sees it, with changes that are made there at once.
    [[nodiscard]] ObjectStore& bucket() const { return *through_; }
    [[nodiscard]] const std::string& id() const { return store().unsent().id(); }
    // Begins to send: first what was left on the other places, then what is on this mount's own.
    void start() const;
    // Withdraws the announcements of earlier mounts: other mounts know of the files that those were writing.
    void withdraw_left() const;
    // Notes on the disk that this mount is gone, or about to be: the next mount may ask for what is left, and waits for
    // the end of this one.
    void tell_of_end() const;
    // Whether another mount waits for one of these places.
    [[nodiscard]] bool are_wanted() const;
    // Starts no further sends, and ends all waits with ECANCELED.
    void pause() const;
    // Sends nothing more, and waits for what is under way, which ends when the store stops.
    void stop() const;
    // when_sent() and withdraw() are those of UnsentChanges, for all places.
    void when_sent(const std::function<void(Status)>& sent) const;
    void withdraw(const std::function<void()>& done) const;
    // As when_sent(), for the place in this directory alone; ENOENT if that could not be opened.
    void when_sent_from(const std::string& directory, const std::function<void(Status)>& sent) const;
    // acknowledged_at() and write_id() are those of UnsentChanges, from the first place that knows.
    [[nodiscard]] std::optional<WallTime> acknowledged_at(const ObjectInfo& object) const;
    [[nodiscard]] std::string write_id(const std::string& key) const;
    // This mount has acknowledged a change of `key`: a change of it that cannot be sent from another place may be given
    // up. Does nothing before the end of start(): what is acknowledged then was left, and may be older.
    void acknowledged_here(const std::string& key) const;
    // The status of all places; the numbers of the last changes are those of this mount's own place.
    [[nodiscard]] UnsentStatus status() const;
    // Limit of what may be unsent, in bytes.
    [[nodiscard]] std::uint64_t limit() const { return limit_; }
    // For a person, at the end: what is neither in the bucket nor for the next mount to send; empty if there is
    // nothing.
    [[nodiscard]] std::string left(bool is_handed_over) const;

private:
    struct Disk {
        UnsentPlace place;
        std::unique_ptr<WritebackStore> store;
    };
    // Calls `tried` once all is sent or cannot be: that may wait for what the first place has.
    static void when_tried(UnsentChanges& unsent, const std::function<void()>& tried);
    // `is_own`: this store acknowledges; the others have been left. `all` outlives it.
    static Result<std::unique_ptr<WritebackStore>> open_store(const Environment& environment,
                                                              const std::string& directory, const UnsentDisks& all,
                                                              bool is_own);
    // Keys of all that is unsent on places that are not this mount's own.
    [[nodiscard]] UnsentChanges::Keys keys_elsewhere() const;
    [[nodiscard]] bool is_way_out_elsewhere(const std::string& key) const;

    std::uint64_t limit_ = 0;
    GivenUpMarkers* given_up_ = nullptr;
    // The first is this mount's own.
    std::vector<Disk> disks_;
    std::unique_ptr<LeftPlaces> left_places_;
    std::unique_ptr<WriteThrough> through_;
    mutable std::atomic<bool> has_started_ = false;
};

}  // namespace ckptfs
