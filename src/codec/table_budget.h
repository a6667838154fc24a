// SPDX-License-Identifier: Apache-2.0
// Memory for the seek tables of all files that are open or being opened.
//
// A caller that opens a file takes room before its table is fetched, and waits for it while others open theirs: they
// mostly open the same file, and then give back what they took. Tables of closed files are given up before that. If no
// other caller is opening a file, and no table is kept for later, only a file that is closed makes room.
//
// Ownership: shared; memory that was taken keeps it alive.
// Threads: all functions may be called from any thread; callbacks run on any, without locks held, each exactly once.
// Memory may be given back under any lock; a room may not, as it calls others.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "base/mutex.h"
#include "base/outbox.h"
#include "ckptfs/codec.h"

namespace ckptfs {

class TableBudget : public std::enable_shared_from_this<TableBudget> {
public:
    using RoomTaken = std::function<void(std::shared_ptr<TableRoom>)>;

    explicit TableBudget(std::uint64_t most) : most_(most) {}

    // Takes memory, which is held until the last copy is gone; null if there is no room now.
    [[nodiscard]] std::shared_ptr<void> take(std::uint64_t bytes) EXCLUDES(mutex_);
    // Waits for room while other rooms exist. `taken` gets null if there is no room, and no other room that could make
    // some.
    void take_room(std::uint64_t bytes, RoomTaken taken) EXCLUDES(mutex_);
    // `give` drops tables that are only kept for later; it is called when there is no room. Returns once the previous
    // `give` is no longer being called: what that refers to may be destroyed next.
    void when_short(std::function<void()> give) EXCLUDES(mutex_);

private:
    class Room;
    struct Waiter {
        std::uint64_t bytes = 0;
        RoomTaken taken;
    };

    // Never throws, as rooms end in their destructor.
    [[nodiscard]] std::shared_ptr<TableBudget> self() { return weak_from_this().lock(); }
    // `spare`: bytes that have to be left.
    [[nodiscard]] bool has_room(std::uint64_t bytes, std::uint64_t spare) const {
        return used_ + bytes + spare <= most_;
    }
    [[nodiscard]] std::shared_ptr<void> try_take(std::uint64_t bytes, std::uint64_t spare);
    void ask() EXCLUDES(mutex_);
    void serve() REQUIRES(mutex_);
    void room_ended() EXCLUDES(mutex_);

    const std::uint64_t most_;
    std::atomic<std::uint64_t> used_ = 0;

    Mutex mutex_;
    Outbox outbox_ GUARDED_BY(mutex_);
    // How many rooms exist.
    int under_way_ GUARDED_BY(mutex_) = 0;
    // Bounded by the requests of the kernel.
    std::deque<Waiter> waiting_ GUARDED_BY(mutex_);
    Condition idle_;
    std::function<void()> give_ GUARDED_BY(mutex_);
    int asking_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptfs
