// SPDX-License-Identifier: Apache-2.0
// What describes an object, as text: without its key, and without its bytes. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "disk/object_record.h"

namespace ckptfs {

// Bytes of headers that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string text_of_object(const SeenObject& seen);
// Null where it is none.
[[nodiscard]] std::optional<SeenObject> object_of_text(std::string_view text);

}  // namespace ckptfs
