// SPDX-License-Identifier: Apache-2.0
// Which of the acknowledged changes may be made in the bucket next.
//
// Changes are made in the order in which they were acknowledged, except that a run of files, of copies or of removals
// goes in parallel. A barrier is alone: all that was acknowledged before it is in the bucket before it begins, and
// nothing that came later begins before it has ended. So are files and copies of a few bytes, any of which may point to
// what was saved before. Of the changes that touch one key, only the first is under way.
//
// A change that failed stays in its place until it is tried again, and holds back what a change under way would.
//
// Pure; not synchronised.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "writeback/overlay.h"

namespace ckptfs {

// The keys that the change writes, and those that it copies from. They refer to `change`.
[[nodiscard]] std::vector<std::string_view> keys_of(const UnsentChange& change);

class SendOrder {
public:
    using Change = std::shared_ptr<const HeldChange>;

    // To be called in the order of the changes' numbers.
    void add(Change change);
    // Returns the changes that may begin now, the oldest first, and counts them as under way; at most `most` are at a
    // time. `waits`: whether a change must not begin yet.
    [[nodiscard]] std::vector<Change> begin(std::size_t most,
                                            const std::function<bool(const UnsentChange&)>& waits = nullptr);
    void ended(std::uint64_t number);
    // The change is to begin again, not before retry_all().
    void failed(std::uint64_t number);
    void retry_all();
    // The last change of the key besides `number`; null if there is none.
    [[nodiscard]] Change last_of(const std::string& key, std::uint64_t number) const;

    [[nodiscard]] bool has(std::uint64_t number) const;
    [[nodiscard]] bool is_under_way(std::uint64_t number) const;
    // Counts the change as under way, so that begin() does not return it. False if it is under way or not there.
    [[nodiscard]] bool take(std::uint64_t number);
    // All changes, the oldest first.
    [[nodiscard]] std::vector<Change> all() const;
    [[nodiscard]] std::size_t size() const { return changes_.size(); }
    [[nodiscard]] const Change& oldest() const { return changes_.front().change; }

private:
    enum class State : std::uint8_t { kWaits, kUnderWay, kFailed };
    struct Place {
        Change change;
        State state = State::kWaits;
    };
    [[nodiscard]] std::size_t place_of(std::uint64_t number) const;

    std::deque<Place> changes_;
    std::size_t under_way_ = 0;
};

}  // namespace ckptfs
