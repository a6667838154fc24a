// SPDX-License-Identifier: Apache-2.0
// Small files that hold secrets.
#pragma once

#include <string>
#include <string_view>

#include "aws/secret.h"
#include "ckptfs/status.h"

namespace ckptfs {

// Without the blanks and line ends around it. Fails where the file cannot be read, is empty, or holds more than one
// line; `what` names it in the message.
[[nodiscard]] Result<Secret> read_secret_file(const std::string& path, const char* what);

// Puts another content in the place of an existing file: readers see all of the old one or all of the new one. The new
// file is its owner's alone (0600), and of the same owner. Fails, and leaves the old file, with what errno says.
[[nodiscard]] Status replace_secret_file(const std::string& path, std::string_view text);

}  // namespace ckptfs
