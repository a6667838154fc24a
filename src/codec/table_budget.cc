// SPDX-License-Identifier: Apache-2.0
#include "codec/table_budget.h"

#include <utility>

namespace ckptfs {
namespace {

// One byte in this many is left over while tables are fetched, for tables that come with the first request on their
// object and do not wait.
constexpr std::uint64_t kSpare = 8;

}  // namespace

class TableBudget::Room final : public TableRoom {
public:
    Room(std::shared_ptr<TableBudget> budget, std::uint64_t bytes, std::shared_ptr<void> memory)
        : budget_(std::move(budget)), bytes_(bytes), memory_(std::move(memory)) {}
    ~Room() override {
        memory_ = nullptr;
        budget_->room_ended();
    }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

    std::shared_ptr<void> take(std::uint64_t bytes) override {
        std::shared_ptr<void> memory = std::exchange(memory_, nullptr);
        return bytes == bytes_ ? memory : nullptr;
    }

private:
    const std::shared_ptr<TableBudget> budget_;
    const std::uint64_t bytes_;
    std::shared_ptr<void> memory_;
};

std::shared_ptr<void> TableBudget::try_take(std::uint64_t bytes, std::uint64_t spare) {
    std::uint64_t used = used_.load();
    do {
        if (used + bytes + spare > most_) {
            return nullptr;
        }
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return {this, [budget = self(), bytes](void* /*budget*/) { budget->used_.fetch_sub(bytes); }};
}

std::shared_ptr<void> TableBudget::take(std::uint64_t bytes) {
    std::shared_ptr<void> taken = try_take(bytes, 0);
    if (taken == nullptr) {
        ask();
        taken = try_take(bytes, 0);
    }
    return taken;
}

void TableBudget::when_short(std::function<void()> give) {
    MutexLock lock(mutex_);
    idle_.wait(lock, [this]() REQUIRES(mutex_) { return asking_ == 0; });
    give_ = std::move(give);
}

void TableBudget::ask() {
    std::function<void()> give;
    {
        const MutexLock lock(mutex_);
        if (give_ == nullptr) {
            return;
        }
        give = give_;
        ++asking_;
    }
    give();
    const MutexLock lock(mutex_);
    --asking_;
    idle_.notify_all();
}

void TableBudget::take_room(std::uint64_t bytes, RoomTaken taken) {
    const auto keep = self();
    if (!has_room(bytes, most_ / kSpare)) {
        ask();
    }
    MutexLock lock(mutex_);
    waiting_.push_back({bytes, std::move(taken)});
    serve();
    outbox_.deliver(lock);
}

void TableBudget::serve() {
    while (!waiting_.empty()) {
        Waiter& next = waiting_.front();
        std::shared_ptr<void> memory = try_take(next.bytes, under_way_ > 0 ? most_ / kSpare : 0);
        if (memory == nullptr && under_way_ > 0) {
            return;
        }
        std::shared_ptr<TableRoom> room;
        if (memory != nullptr) {
            ++under_way_;
            room = std::make_shared<Room>(self(), next.bytes, std::move(memory));
        }
        outbox_.add([taken = std::move(next.taken), room = std::move(room)] { taken(room); });
        waiting_.pop_front();
    }
}

void TableBudget::room_ended() {
    bool is_short = false;
    {
        const MutexLock lock(mutex_);
        is_short = !waiting_.empty() && !has_room(waiting_.front().bytes, 0);
    }
    if (is_short) {
        ask();
    }
    MutexLock lock(mutex_);
    --under_way_;
    serve();
    outbox_.deliver(lock);
}

}  // namespace ckptfs
