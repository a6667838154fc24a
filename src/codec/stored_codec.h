// SPDX-License-Identifier: Apache-2.0
// The codec that changes nothing: an object is the file itself.
#pragma once

#include <memory>

#include "ckptfs/codec.h"

namespace ckptfs {

[[nodiscard]] std::unique_ptr<Codec> make_stored_codec();

}  // namespace ckptfs
