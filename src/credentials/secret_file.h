// SPDX-License-Identifier: Apache-2.0
// Small files that hold one secret.
#pragma once

#include <string>

#include "ckptfs/status.h"
#include "s3/secret.h"

namespace ckptfs {

// Without the blanks and line ends around it. Fails where the file cannot be read, is empty, or holds more than one
// line; `what` names it in the message.
[[nodiscard]] Result<Secret> read_secret_file(const std::string& path, const char* what);

}  // namespace ckptfs
