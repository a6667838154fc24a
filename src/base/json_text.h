// SPDX-License-Identifier: Apache-2.0
// JSON of others, as flat text. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ckptfs/status.h"

namespace ckptfs {

// The members of an object, those of objects in it as "outer.inner"; numbers and truth values as they are written,
// without lists and nulls. Fails (EPROTO) for anything but one object, never saying what the text was.
[[nodiscard]] Result<std::map<std::string, std::string>> json_members(std::string_view text);

// An object with these members, as text, at its top level; all others stay what and where they were. Fails (EPROTO) for
// anything but one object, and for one that nests deeper than any that is known.
[[nodiscard]] Result<std::string> json_with_members(std::string_view text,
                                                    const std::map<std::string, std::string>& members);

}  // namespace ckptfs
