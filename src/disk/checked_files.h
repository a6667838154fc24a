// SPDX-License-Identifier: Apache-2.0
// Which kept files hold what was kept, as far as this mount has seen: their bytes were compared with what they hash to,
// or written by it, since it began.
//
// Threads: all functions may be called from any thread. data_state() asks the file system.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/mutex.h"

namespace ckptfs {

// What changes with every change of a file's bytes, and where another one takes its place.
struct DataState {
    std::uint64_t inode = 0;
    std::uint64_t size = 0;
    // In nanoseconds.
    std::int64_t modified = 0;

    friend bool operator==(const DataState&, const DataState&) = default;
};

[[nodiscard]] std::optional<DataState> data_state(int file);

class CheckedFiles {
public:
    // Those that were noted first go, and are checked again.
    static constexpr std::size_t kMost = 65536;

    void note(const std::string& name, const DataState& state);
    void forget(const std::string& name);
    // As it was then.
    [[nodiscard]] std::optional<DataState> find(const std::string& name) const;

private:
    mutable Mutex mutex_;
    std::unordered_map<std::string, DataState> states_ GUARDED_BY(mutex_);
    std::deque<std::string> order_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
