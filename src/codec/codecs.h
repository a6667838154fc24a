// SPDX-License-Identifier: Apache-2.0
// The codecs by their names on the command line.
#pragma once

#include <memory>
#include <string>

#include "ckptfs/codec.h"
#include "ckptfs/status.h"

namespace ckptfs {

// "none": every byte is stored as it is. EINVAL for a name that is not known.
[[nodiscard]] Result<std::unique_ptr<Codec>> make_codec(const std::string& name);

}  // namespace ckptfs
