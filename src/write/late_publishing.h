// SPDX-License-Identifier: Apache-2.0
// What is told of a request that was not sent any more because its permit (write/publish_permits.h) had ended.
// Values; from any thread.
#pragma once

#include <cerrno>
#include <string>

#include "ckptfs/status.h"

namespace ckptfs {

// The store client does not know why it was not to send it. Another error is told as it is.
[[nodiscard]] inline Error told_as_late(Error error, const std::string& shown_key) {
    if (error.errno_value == EIO && error.http_status == 0 && !error.retryable) {
        error.message = shown_key +
                        " is not committed: the store did not take it within a minute after it was asked what has "
                        "failed beside it; save it again";
    }
    return error;
}

}  // namespace ckptfs
