// SPDX-License-Identifier: Apache-2.0
// Runs a program and captures its output. No shell is involved.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/status.h"

namespace ckptfs {

// Splits a command into words as a shell does by blanks, quotes and backslashes; nothing is expanded. Fails for an
// unterminated quote and for no word at all. Pure.
[[nodiscard]] Result<std::vector<std::string>> split_words(std::string_view command);

// Standard output of the program, which is searched for in PATH and has /dev/null as its input. Fails, with the end of
// what it wrote to standard error, if it cannot be started, exits with a status other than 0, prints more than 1 MiB,
// or runs for longer than `limit` or beyond a stop; it and its children are then killed.
[[nodiscard]] Result<std::string> program_output(const std::vector<std::string>& words, std::chrono::milliseconds limit,
                                                 const std::stop_token& stop);

}  // namespace ckptfs
