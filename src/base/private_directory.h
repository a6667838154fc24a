// SPDX-License-Identifier: Apache-2.0
// A directory that only this user can enter: another user's could hold that user's sockets and files.
#pragma once

#include <string>

#include "ckptfs/status.h"

namespace ckptfs {

// Makes it with mode 0700 if it is missing; its parent must exist.
Status make_private_directory(const std::string& path);

// Fails unless `path` is such a directory. ENOENT if there is nothing.
Status check_private_directory(const std::string& path);

// Flushes any directory: after a power cut it has the names that it has now.
Status flush_directory(const std::string& path);

}  // namespace ckptfs
