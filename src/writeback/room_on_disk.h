// SPDX-License-Identifier: Apache-2.0
// Retries for a full disk, after something that is only kept was removed from it.
#pragma once

#include <cerrno>
#include <functional>

namespace ckptfs {

// Repeats `attempt` until it succeeds, or has failed once more after `make_room` has found nothing to remove: another
// thread may have removed that.
template <class Try>
void retry_with_room(const std::function<bool()>& make_room, Try attempt) {
    bool may_help = make_room != nullptr;
    while (!attempt() && may_help) {
        may_help = make_room();
    }
}

// Whether the errno means a lack of disk space, quota or file descriptors.
[[nodiscard]] inline bool is_lack_of_room(int errno_value) {
    return errno_value == ENOSPC || errno_value == EDQUOT || errno_value == EMFILE || errno_value == ENFILE;
}

}  // namespace ckptfs
