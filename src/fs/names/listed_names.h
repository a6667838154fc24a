// SPDX-License-Identifier: Apache-2.0
// What the last listings of a few directories showed, for a program that lists a directory and then removes every name
// of it: the kernel looks each of them up again.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "fs/state/nodes.h"

namespace ckptfs::fs {

class ListedNames {
public:
    // `asked`: when the listing was requested.
    void add(NodeId directory, const std::string& name, const ObjectVersion& version, SteadyTime asked);
    // This mount has changed the name, or all names of the directory.
    void forget(NodeId directory, const std::string& name);
    void forget_all(NodeId directory);
    [[nodiscard]] std::vector<NodeId> directories() const;
    // Files only; empty for what was listed before `since`.
    [[nodiscard]] std::optional<ObjectVersion> find(NodeId directory, const std::string& name, SteadyTime since) const;

private:
    // About 200 bytes each. rm(1) reads 10,000 names at once.
    static constexpr std::size_t kMaxNames = 20'000;
    static constexpr std::size_t kMaxDirectories = 4;

    struct Listed {
        ObjectVersion version;
        SteadyTime asked{};
    };
    struct Directory {
        NodeId id = 0;
        std::unordered_map<std::string, Listed> names;
    };

    mutable Mutex mutex_;
    std::array<Directory, kMaxDirectories> directories_ GUARDED_BY(mutex_);
    std::size_t next_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptfs::fs
