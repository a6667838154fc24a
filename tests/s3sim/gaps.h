// SPDX-License-Identifier: Apache-2.0
#pragma once

// What stores of other makes lack: headers that S3 heeds and they pass over, or take otherwise. Pure.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "object_table.h"
#include "s3_request.h"

namespace ckptfs::s3sim {

// As --lacks names them.
inline constexpr std::string_view kMetadata = "metadata";
inline constexpr std::string_view kReadConditions = "read-conditions";
// Answers to GetObject carry no ETag.
inline constexpr std::string_view kReadETags = "read-etags";
// Nor do those to HeadObject.
inline constexpr std::string_view kHeadETags = "head-etags";
inline constexpr std::string_view kWriteConditions = "write-conditions";
inline constexpr std::string_view kCopyConditions = "copy-conditions";
// Those of DeleteObject and DeleteObjects; a store without conditions of writes has none of these either.
inline constexpr std::string_view kDeleteConditions = "delete-conditions";
// DeleteObjects is refused without Content-MD5, whatever other checksum comes.
inline constexpr std::string_view kDeleteChecksums = "delete-checksums";
// If-Match and If-None-Match on writes are NotImplemented, as in OpenStack Swift 2.30.
inline constexpr std::string_view kKnownWriteConditions = "known-write-conditions";
// If-Match on writes holds for ETags without their quotes alone, as in radosgw 16.2.
inline constexpr std::string_view kQuotedIfMatch = "quoted-if-match";
// A condition on the source of a copy never holds where it was uploaded in parts, as in OpenStack Swift 2.30.
inline constexpr std::string_view kConditionsOnUploads = "conditions-on-uploads";
// Requests with x-amz-checksum-… are refused.
inline constexpr std::string_view kChecksums = "checksums";
// UploadPartCopy is NotImplemented.
inline constexpr std::string_view kPartCopy = "part-copy";
// UploadPartCopy decodes the key of its source twice, as radosgw 16.2 does.
inline constexpr std::string_view kPartCopySources = "part-copy-sources";
// Complete refuses parts of different sizes, the last one aside, as Cloudflare R2 does.
inline constexpr std::string_view kUnequalParts = "unequal-parts";
// Complete refuses to leave a part of the upload out, as radosgw 16.2 does.
inline constexpr std::string_view kUnnamedParts = "unnamed-parts";

std::vector<std::string> names_of_gaps();

using Gaps = std::set<std::string, std::less<>>;

[[nodiscard]] PartRules part_rules(const Gaps& gaps);
[[nodiscard]] bool ignores_delete_conditions(const Gaps& gaps);

// Takes the headers away that are not known to such a store, or refuses them.
Outcome<void> apply_gaps(const Gaps& gaps, S3Request& request);

}  // namespace ckptfs::s3sim
