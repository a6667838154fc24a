// SPDX-License-Identifier: Apache-2.0
#include "gaps.h"

#include <algorithm>

namespace ckptfs::s3sim {
namespace {

bool is_passed_over(const Gaps& gaps, bool reads, std::string_view header) {
    if (header.starts_with("x-amz-meta-")) {
        return gaps.contains(kMetadata);
    }
    if (header.starts_with("x-amz-copy-source-if-")) {
        return gaps.contains(kCopyConditions);
    }
    if (header == "if-match" || header == "if-none-match") {
        return gaps.contains(reads ? kReadConditions : kWriteConditions);
    }
    return false;
}

}  // namespace

std::vector<std::string> names_of_gaps() {
    std::vector<std::string> names;
    for (const std::string_view name :
         {kMetadata, kReadConditions, kWriteConditions, kCopyConditions, kChecksums, kUnequalParts}) {
        names.emplace_back(name);
    }
    return names;
}

Outcome<void> apply_gaps(const Gaps& gaps, S3Request& request) {
    const bool reads = request.operation == Operation::kGetObject || request.operation == Operation::kHeadObject;
    std::erase_if(request.http.headers,
                  [&](const NameValue& header) { return is_passed_over(gaps, reads, header.first); });
    const bool has_checksum =
        std::any_of(request.http.headers.begin(), request.http.headers.end(),
                    [](const NameValue& header) { return header.first.starts_with("x-amz-checksum-"); });
    return has_checksum && gaps.contains(kChecksums)
               ? fail("NotImplemented", "A header you provided implies functionality that is not implemented.")
               : Outcome<void>();
}

}  // namespace ckptfs::s3sim
