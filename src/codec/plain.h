// SPDX-License-Identifier: Apache-2.0
// Encoder and layout of plain objects: the object is the file itself.
#pragma once

#include <memory>

#include "ckptfs/codec.h"

namespace ckptfs {

[[nodiscard]] std::shared_ptr<const FrameEncoder> make_plain_encoder();
[[nodiscard]] std::shared_ptr<const FrameLayout> make_plain_layout(const ObjectInfo& object);

}  // namespace ckptfs
