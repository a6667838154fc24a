// SPDX-License-Identifier: Apache-2.0
// Parses the format of the AWS tools' shared files. Pure.
//
// "[section]", "name = value", comments from '#' or ';' at the beginning of a line or after a blank. Indented lines are
// settings of a setting, which nothing here reads. Lines may be of any length: session tokens are long.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ckptfs/status.h"

namespace ckptfs {

// Names in lower case; if a setting comes twice, the last one counts.
using IniSection = std::map<std::string, std::string>;
// Names as they are written, with single blanks and without quotes: "profile train".
using IniFile = std::map<std::string, IniSection>;

// Fails (EINVAL) with the number of the first line that is neither a section nor a setting; never with its text, which
// may be a secret.
[[nodiscard]] Result<IniFile> parse_ini(std::string_view text);

}  // namespace ckptfs
