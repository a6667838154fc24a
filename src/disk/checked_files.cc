// SPDX-License-Identifier: Apache-2.0
#include "disk/checked_files.h"

#include <sys/stat.h>

namespace ckptfs {

std::optional<DataState> data_state(int file) {
    constexpr std::int64_t kNanoseconds = 1'000'000'000;
    struct stat status {};
    if (fstat(file, &status) != 0) {
        return std::nullopt;
    }
    return DataState{status.st_ino, static_cast<std::uint64_t>(status.st_size),
                     status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec};
}

void CheckedFiles::note(const std::string& name, const DataState& state) {
    const MutexLock lock(mutex_);
    if (states_.insert_or_assign(name, state).second) {
        order_.push_back(name);
    }
    if (order_.size() > kMost) {
        states_.erase(order_.front());
        order_.pop_front();
    }
}

void CheckedFiles::forget(const std::string& name) {
    const MutexLock lock(mutex_);
    if (states_.erase(name) > 0) {
        std::erase(order_, name);
    }
}

std::optional<DataState> CheckedFiles::find(const std::string& name) const {
    const MutexLock lock(mutex_);
    const auto found = states_.find(name);
    return found == states_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace ckptfs
