// SPDX-License-Identifier: Apache-2.0
// Takes what an earlier mount of this place leaves when it ends, where that one still lives as this one begins: as
// after umount -l, while a program has a file open.
//
// Threads: looks on a detached thread, one at a time: the directory may be on a filesystem that does not answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/periodic.h"
#include "ckptfs/clock.h"
#include "journal/journal_leftovers.h"

namespace ckptfs {

class LeftoverWatch {
public:
    struct Place {
        std::string directory;
        std::string place;
        // This mount's own journal.
        std::string journal;
    };
    // Called after each look, on its thread; must not block, nor destroy the watch.
    using Found = std::function<void(std::vector<Leftovers>)>;

    LeftoverWatch(Timer& timer, Place place, Found found);
    // Does not wait for a look. `found` is not called afterwards.
    ~LeftoverWatch();
    LeftoverWatch(const LeftoverWatch&) = delete;
    LeftoverWatch& operator=(const LeftoverWatch&) = delete;

private:
    struct Look;

    const std::shared_ptr<Look> look_;
    std::unique_ptr<Periodic> periodic_;
};

}  // namespace ckptfs
