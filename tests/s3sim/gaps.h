// SPDX-License-Identifier: Apache-2.0
#pragma once

// What stores of other makes lack: headers that S3 heeds and they pass over. Pure.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "s3_request.h"

namespace ckptfs::s3sim {

// As --lacks names them.
inline constexpr std::string_view kMetadata = "metadata";
inline constexpr std::string_view kReadConditions = "read-conditions";
inline constexpr std::string_view kWriteConditions = "write-conditions";
inline constexpr std::string_view kCopyConditions = "copy-conditions";
// Requests with x-amz-checksum-… are refused.
inline constexpr std::string_view kChecksums = "checksums";
// Complete refuses parts of different sizes, the last one aside, as Cloudflare R2 does.
inline constexpr std::string_view kUnequalParts = "unequal-parts";

std::vector<std::string> names_of_gaps();

using Gaps = std::set<std::string, std::less<>>;

// Takes the headers away that are not known to such a store, or refuses them.
Outcome<void> apply_gaps(const Gaps& gaps, S3Request& request);

}  // namespace ckptfs::s3sim
