// SPDX-License-Identifier: Apache-2.0
// Small files that hold secrets.
#pragma once

#include <string>
#include <string_view>

#include "aws/secret.h"
#include "ckptfs/status.h"

namespace ckptfs {

// The file's text without the blanks and line ends around it. Fails if the file cannot be read, is empty, or holds more
// than one line; `what` names it in the message.
[[nodiscard]] Result<Secret> read_secret_file(const std::string& path, const char* what);

// Replaces the content of an existing file: readers see all of the old or all of the new one. The new file has mode
// 0600 and the same owner. On failure the old file stays, and the message is that of errno.
[[nodiscard]] Status replace_secret_file(const std::string& path, std::string_view text);

}  // namespace ckptfs
