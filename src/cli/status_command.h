// SPDX-License-Identifier: Apache-2.0
// `ckptfs status`: asks daemons what they are doing, and prints it.
#pragma once

#include <string>

namespace ckptfs {

struct StatusRequest {
    // Empty: all mounts.
    std::string directory;
    bool json = false;
    // Until it is safe to stop.
    bool wait = false;
    // Again every second, until it is interrupted.
    bool watch = false;
};

// 1 where a daemon does not answer, or there is none.
int status_command(const StatusRequest& request);

}  // namespace ckptfs
