// SPDX-License-Identifier: Apache-2.0
// Small files, read or written in one go.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ckptfs {

// `directory` is a descriptor, or AT_FDCWD. Empty if the file cannot be opened or read; errno says why.
[[nodiscard]] std::optional<std::string> read_text_file(int directory, const char* path);

// Writes all of the text to an open file; false if it takes no more, and errno says why.
[[nodiscard]] bool write_text(int file, std::string_view text);

}  // namespace ckptfs
