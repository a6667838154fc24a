// SPDX-License-Identifier: Apache-2.0
// JSON of other programs, as flat text. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ckptfs/status.h"

namespace ckptfs {

// The members of an object, those of objects in it as "outer.inner"; numbers and booleans as text, lists and nulls left
// out. Fails (EPROTO) for anything but one object; the error does not contain the text.
[[nodiscard]] Result<std::map<std::string, std::string>> json_members(std::string_view text);

// The object `text` with `members` as strings at its top level; all others stay what and where they were. Fails
// (EPROTO) for anything but one object, and for one that nests deeper than any that is known.
[[nodiscard]] Result<std::string> json_with_members(std::string_view text,
                                                    const std::map<std::string, std::string>& members);

}  // namespace ckptfs
