// SPDX-License-Identifier: Apache-2.0
// What a full disk is asked for again, once something that is only kept was removed from it.
#pragma once

#include <cerrno>
#include <functional>

namespace ckptfs {

// Until it succeeds, or `make_room` has found nothing to remove before the last try: another thread may have removed
// that.
template <class Try>
void retry_with_room(const std::function<bool()>& make_room, Try attempt) {
    bool may_help = make_room != nullptr;
    while (!attempt() && may_help) {
        may_help = make_room();
    }
}

// Of bytes or open files, for an errno.
[[nodiscard]] inline bool is_lack_of_room(int errno_value) {
    return errno_value == ENOSPC || errno_value == EDQUOT || errno_value == EMFILE || errno_value == ENFILE;
}

}  // namespace ckptfs
