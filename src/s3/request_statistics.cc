// SPDX-License-Identifier: Apache-2.0
#include "s3/request_statistics.h"

#include <algorithm>
#include <cstddef>

namespace ckptfs::s3 {

void RequestStatistics::ended(const Attempt& attempt) {
    const double seconds = std::chrono::duration<double>(attempt.duration).count();
    const auto bound =
        std::lower_bound(OperationStatistics::kBounds.begin(), OperationStatistics::kBounds.end(), seconds);
    const auto bucket = static_cast<std::size_t>(bound - OperationStatistics::kBounds.begin());
    const MutexLock lock(mutex_);
    auto found = operations_.find(attempt.operation);
    if (found == operations_.end()) {
        found = operations_.emplace(attempt.operation, OperationStatistics{}).first;
        found->second.operation = attempt.operation;
    }
    OperationStatistics& operation = found->second;
    ++operation.durations[bucket];
    operation.total_seconds += seconds;
    if (attempt.error.empty()) {
        ++operation.succeeded;
        return;
    }
    const std::string error(attempt.error);
    const bool has_room = operation.failed.size() < kMostErrors || operation.failed.contains(error);
    ++operation.failed[has_room ? error : kOtherError];
}

std::vector<OperationStatistics> RequestStatistics::operations() const {
    const MutexLock lock(mutex_);
    std::vector<OperationStatistics> all;
    all.reserve(operations_.size());
    for (const auto& [name, operation] : operations_) {
        all.push_back(operation);
    }
    return all;
}

}  // namespace ckptfs::s3
