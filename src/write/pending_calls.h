// SPDX-License-Identifier: Apache-2.0
// The calls on a file that wait for their turn: they are carried out in the order in which they came, one at a time,
// and a commit therefore covers exactly what was handed over before it.
//
// Guarded by its owner's mutex. Replies are put into its owner's outbox.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/outbox.h"
#include "ckptfs/status.h"
#include "write/file_writer.h"

namespace ckptfs {

struct PendingWrite {
    // Absent for a write at the end of the file.
    std::optional<std::uint64_t> offset;
    WriteData data;
    FileWriter::WriteDone done;
};

struct PendingTruncate {
    std::uint64_t size = 0;
    FileWriter::Done done;
};

struct PendingCommit {
    CommitReason reason = CommitReason::kClose;
    FileWriter::CommitDone done;
};

// Waits until writes take memory only for themselves (StreamWriter::begin_writing).
struct PendingBegin {
    FileWriter::Done done;
};

template <class... Calls>
class PendingCalls {
public:
    using Call = std::variant<Calls...>;
    using Pointer = std::shared_ptr<Call>;

    [[nodiscard]] bool empty() const { return calls_.empty(); }
    [[nodiscard]] const Pointer& front() const { return calls_.front(); }
    void add(Pointer call) { calls_.push_back(std::move(call)); }
    // As add(), but refuses the call if the file has failed.
    void add(Pointer call, const std::optional<Error>& failure, Outbox& outbox) {
        failure ? refuse(call, *failure, outbox) : add(std::move(call));
    }
    // Puts back a call that has to be carried out once more.
    void put_back(Pointer call) { calls_.push_front(std::move(call)); }
    Pointer take() {
        Pointer call = std::move(calls_.front());
        calls_.pop_front();
        return call;
    }

    // Takes the commits at the front, which are all answered by one commit.
    std::vector<FileWriter::CommitDone> take_commits() {
        std::vector<FileWriter::CommitDone> waiters;
        while (!calls_.empty() && std::holds_alternative<PendingCommit>(*calls_.front())) {
            waiters.push_back(std::move(std::get<PendingCommit>(*take()).done));
        }
        return waiters;
    }

    // Moves the first call for which `wanted` returns true to the front, if only calls of this type are before it.
    template <class Before, class Wanted>
    void prefer(Wanted wanted) {
        for (auto next = calls_.begin(); next != calls_.end(); ++next) {
            const auto* call = std::get_if<Before>(next->get());
            if (call == nullptr) {
                return;
            }
            if (wanted(*call)) {
                std::rotate(calls_.begin(), next, next + 1);
                return;
            }
        }
    }

    [[nodiscard]] bool have_commit() const {
        return any([](const auto& call) { return is<PendingCommit>(call); });
    }
    [[nodiscard]] bool have_change() const {
        return any([](const auto& call) { return is<PendingWrite>(call) || is<PendingTruncate>(call); });
    }

    static void refuse(const Pointer& call, const Error& why, Outbox& outbox) {
        outbox.add([call, why] { std::visit([&why](auto& each) { each.done(failure(why)); }, *call); });
    }
    void refuse_all(const Error& why, Outbox& outbox) {
        for (const Pointer& call : std::exchange(calls_, {})) {
            refuse(call, why, outbox);
        }
    }

private:
    template <class Kind, class Actual>
    static constexpr bool is(const Actual& /*call*/) {
        return std::is_base_of_v<Kind, Actual>;
    }
    template <class Predicate>
    [[nodiscard]] bool any(Predicate predicate) const {
        return std::any_of(calls_.begin(), calls_.end(),
                           [&predicate](const Pointer& call) { return std::visit(predicate, *call); });
    }

    std::deque<Pointer> calls_;
};

}  // namespace ckptfs
