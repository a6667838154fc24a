// SPDX-License-Identifier: Apache-2.0
#include "writeback/send_order.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace ckptfs {
namespace {

// In bytes. Pointers to checkpoints ("latest") are shorter, files with tensors longer.
constexpr std::uint64_t kMayPoint = kMostInline;

bool is_alone(const UnsentChange& change) {
    return change.is_barrier || (change.kind != UnsentChange::Kind::kRemove && change.object.size <= kMayPoint);
}

}  // namespace

std::vector<std::string_view> keys_of(const UnsentChange& change) {
    std::vector<std::string_view> keys = {change.object.key};
    if (!change.source_key.empty()) {
        keys.emplace_back(change.source_key);
    }
    for (const BodyPiece& piece : change.body) {
        if (piece.place == BodyPiece::Place::kObject) {
            keys.emplace_back(piece.key);
        }
    }
    return keys;
}

void SendOrder::add(Change change) {
    changes_.push_back({std::move(change), State::kWaits});
}

std::vector<SendOrder::Change> SendOrder::begin(std::size_t most,
                                                const std::function<bool(const UnsentChange&)>& waits) {
    std::vector<Change> begun;
    std::set<std::string_view> keys;
    for (Place& place : changes_) {
        const UnsentChange& change = place.change->change;
        const UnsentChange& first = changes_.front().change->change;
        const bool is_first = &place == &changes_.front();
        if (under_way_ >= most || change.kind != first.kind || (!is_first && (is_alone(change) || is_alone(first)))) {
            break;
        }
        const std::vector<std::string_view> own = keys_of(change);
        const bool is_first_of_them =
            std::none_of(own.begin(), own.end(), [&keys](auto key) { return keys.contains(key); });
        if (place.state == State::kWaits && is_first_of_them && !(waits && waits(change))) {
            place.state = State::kUnderWay;
            ++under_way_;
            begun.push_back(place.change);
        }
        keys.insert(own.begin(), own.end());
    }
    return begun;
}

// The change's index; behind the last if it is not there.
std::size_t SendOrder::place_of(std::uint64_t number) const {
    const auto found =
        std::lower_bound(changes_.begin(), changes_.end(), number,
                         [](const Place& place, std::uint64_t wanted) { return place.change->change.number < wanted; });
    const bool is_there = found != changes_.end() && found->change->change.number == number;
    return is_there ? static_cast<std::size_t>(found - changes_.begin()) : changes_.size();
}

bool SendOrder::has(std::uint64_t number) const {
    return place_of(number) < changes_.size();
}

bool SendOrder::is_under_way(std::uint64_t number) const {
    const std::size_t place = place_of(number);
    return place < changes_.size() && changes_[place].state == State::kUnderWay;
}

bool SendOrder::take(std::uint64_t number) {
    const std::size_t place = place_of(number);
    if (place == changes_.size() || changes_[place].state == State::kUnderWay) {
        return false;
    }
    changes_[place].state = State::kUnderWay;
    ++under_way_;
    return true;
}

void SendOrder::ended(std::uint64_t number) {
    if (const std::size_t place = place_of(number); place < changes_.size()) {
        under_way_ -= changes_[place].state == State::kUnderWay ? 1 : 0;
        changes_.erase(changes_.begin() + static_cast<std::ptrdiff_t>(place));
    }
}

void SendOrder::failed(std::uint64_t number) {
    if (const std::size_t place = place_of(number);
        place < changes_.size() && changes_[place].state == State::kUnderWay) {
        --under_way_;
        changes_[place].state = State::kFailed;
    }
}

void SendOrder::retry_all() {
    for (Place& place : changes_) {
        place.state = place.state == State::kFailed ? State::kWaits : place.state;
    }
}

std::vector<SendOrder::Change> SendOrder::all() const {
    std::vector<Change> changes;
    for (const Place& place : changes_) {
        changes.push_back(place.change);
    }
    return changes;
}

SendOrder::Change SendOrder::last_of(const std::string& key, std::uint64_t number) const {
    const auto found = std::find_if(changes_.rbegin(), changes_.rend(), [&](const Place& place) {
        return place.change->key() == key && place.change->change.number != number;
    });
    return found == changes_.rend() ? nullptr : found->change;
}

}  // namespace ckptfs
