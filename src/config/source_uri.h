// SPDX-License-Identifier: Apache-2.0
// s3://BUCKET[/PREFIX] and s3://BUCKET[/KEY]. Pure.
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

// `prefix` with a '/' at its end unless it is empty, so that "p" never matches "p2".
[[nodiscard]] std::string directory_prefix(std::string prefix);

Result<SourceUri> parse_source(std::string_view text);

// One object, or what lies below a prefix; any key that S3 takes, not only those that are paths.
struct ObjectUri {
    std::string bucket;
    std::string key;
};

Result<ObjectUri> parse_object_uri(std::string_view text);

}  // namespace ckptfs
