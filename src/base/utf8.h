// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace ckptfs {

// As RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view text);

}  // namespace ckptfs
