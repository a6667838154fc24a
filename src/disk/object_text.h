// SPDX-License-Identifier: Apache-2.0
// What describes an object, encoded (CBOR, RFC 8949): without its key, and without its bytes. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "disk/object_record.h"

namespace ckptfs {

// Headers need not be UTF-8.
[[nodiscard]] std::string text_of_object(const SeenObject& seen);
// Null where it is none.
[[nodiscard]] std::optional<SeenObject> object_of_text(std::string_view text);

}  // namespace ckptfs
