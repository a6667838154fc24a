// SPDX-License-Identifier: Apache-2.0
// Which of the acknowledged changes may be made in the bucket next.
//
// They are made in the order in which they were acknowledged, but for runs of files, of copies and of removals, which
// go side by side. A barrier is alone: all that was acknowledged before it is in the bucket before it begins, and
// nothing that came later begins before it has ended. So are files of a few bytes, any of which may point to what was
// saved before. Of one key only the first is under way.
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

// That it changes, and that it copies from; of the change.
[[nodiscard]] std::vector<std::string_view> keys_of(const UnsentChange& change);

class SendOrder {
public:
    using Change = std::shared_ptr<const HeldChange>;

    // In order of their numbers.
    void add(Change change);
    // Those that may begin now, the oldest first; at most so many are under way. They are from now on. `waits`: for
    // what is none of these.
    [[nodiscard]] std::vector<Change> begin(std::size_t most,
                                            const std::function<bool(const UnsentChange&)>& waits = nullptr);
    void ended(std::uint64_t number);
    // It is to begin again; not before retry_all().
    void failed(std::uint64_t number);
    void retry_all();
    // The last one of its key that is left besides `number`.
    [[nodiscard]] Change last_of(const std::string& key, std::uint64_t number) const;

    [[nodiscard]] bool has(std::uint64_t number) const;
    [[nodiscard]] bool is_under_way(std::uint64_t number) const;
    // It counts as under way, and is not begun any more; false where it is under way, or is not there.
    [[nodiscard]] bool take(std::uint64_t number);
    // The oldest first.
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
