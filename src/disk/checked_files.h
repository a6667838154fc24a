// SPDX-License-Identifier: Apache-2.0
// Which kept files this mount has checked since it began: all of their bytes were compared with their hashes.
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

// Differs after any change of a file's bytes, and if another file takes its place.
struct DataState {
    std::uint64_t inode = 0;
    std::uint64_t size = 0;
    // Time of the last modification, in nanoseconds.
    std::int64_t modified = 0;

    friend bool operator==(const DataState&, const DataState&) = default;
};

// The state of an open file; empty if the file system does not tell.
[[nodiscard]] std::optional<DataState> data_state(int file);

class CheckedFiles {
public:
    // Beyond this, the files noted first are forgotten, and are checked again.
    static constexpr std::size_t kMost = 65536;

    void note(const std::string& name, const DataState& state);
    void forget(const std::string& name);
    // The file's state when it was checked; empty if it was not.
    [[nodiscard]] std::optional<DataState> find(const std::string& name) const;

private:
    mutable Mutex mutex_;
    std::unordered_map<std::string, DataState> states_ GUARDED_BY(mutex_);
    std::deque<std::string> order_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
