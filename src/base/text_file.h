// SPDX-License-Identifier: Apache-2.0
// Small files of /proc and /sys, read in one go.
#pragma once

#include <optional>
#include <string>

namespace ckptfs {

// `directory` is a descriptor, or AT_FDCWD. Empty where the file cannot be opened or read; errno says why.
[[nodiscard]] std::optional<std::string> read_text_file(int directory, const char* path);

}  // namespace ckptfs
