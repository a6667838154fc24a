// SPDX-License-Identifier: Apache-2.0
// s3://BUCKET[/PREFIX]. Pure.
#pragma once

#include <string>
#include <string_view>

#include "ckptfs/status.h"

namespace ckptfs {

struct SourceUri {
    std::string bucket;
    // Empty, or ends in '/'.
    std::string prefix;
};

Result<SourceUri> parse_source(std::string_view text);

}  // namespace ckptfs
