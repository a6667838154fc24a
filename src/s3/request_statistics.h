// SPDX-License-Identifier: Apache-2.0
// Attempts counted by operation and outcome, with how long they took.
// Threads: all functions may be called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "s3/attempt.h"

namespace ckptfs::s3 {

struct OperationStatistics {
    // Upper bounds in seconds: from a small request nearby to a part on a slow connection.
    static constexpr std::array<double, 12> kBounds{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};

    std::string operation;
    std::uint64_t succeeded = 0;
    // Failed attempts by their error.
    std::map<std::string, std::uint64_t> failed;
    // Attempts by duration: for each bound those above the bound before and at or below it, and last those above all
    // bounds.
    std::array<std::uint64_t, kBounds.size() + 1> durations{};
    double total_seconds = 0;
};

class RequestStatistics final : public AttemptObserver {
public:
    // A store can make codes up: beyond so many per operation, they are counted as kOtherError.
    static constexpr std::size_t kMostErrors = 24;
    static constexpr const char* kOtherError = "other";

    void ended(const Attempt& attempt) override;
    // Sorted by name.
    [[nodiscard]] std::vector<OperationStatistics> operations() const;

private:
    mutable Mutex mutex_;
    std::map<std::string, OperationStatistics, std::less<>> operations_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::s3
