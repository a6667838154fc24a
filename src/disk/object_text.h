// SPDX-License-Identifier: Apache-2.0
// The description of an object, without its key and its bytes, encoded as CBOR (RFC 8949). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "disk/object_record.h"

namespace ckptfs {

// Headers need not be UTF-8.
[[nodiscard]] std::string text_of_object(const SeenObject& seen);
// Empty if the text is not such a description.
[[nodiscard]] std::optional<SeenObject> object_of_text(std::string_view text);

}  // namespace ckptfs
