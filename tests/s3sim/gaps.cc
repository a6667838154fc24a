// SPDX-License-Identifier: Apache-2.0
#include "gaps.h"

#include <algorithm>

namespace ckptfs::s3sim {
namespace {

bool ignores_conditions(const Gaps& gaps, Operation operation) {
    switch (operation) {
        case Operation::kGetObject:
        case Operation::kHeadObject:
            return gaps.contains(kReadConditions);
        case Operation::kDeleteObject:
            return ignores_delete_conditions(gaps);
        default:
            return gaps.contains(kWriteConditions);
    }
}

bool is_passed_over(const Gaps& gaps, Operation operation, std::string_view header) {
    if (header.starts_with("x-amz-meta-")) {
        return gaps.contains(kMetadata);
    }
    if (header.starts_with("x-amz-copy-source-if-")) {
        return gaps.contains(kCopyConditions);
    }
    if (header == "if-match" || header == "if-none-match") {
        return ignores_conditions(gaps, operation);
    }
    return false;
}

}  // namespace

std::vector<std::string> names_of_gaps() {
    std::vector<std::string> names;
    for (const std::string_view name : {kMetadata, kReadConditions, kWriteConditions, kCopyConditions,
                                        kDeleteConditions, kDeleteChecksums, kChecksums, kUnequalParts}) {
        names.emplace_back(name);
    }
    return names;
}

bool ignores_delete_conditions(const Gaps& gaps) {
    return gaps.contains(kDeleteConditions) || gaps.contains(kWriteConditions);
}

Outcome<void> apply_gaps(const Gaps& gaps, S3Request& request) {
    std::erase_if(request.http.headers,
                  [&](const NameValue& header) { return is_passed_over(gaps, request.operation, header.first); });
    if (request.operation == Operation::kDeleteObjects && gaps.contains(kDeleteChecksums) &&
        !request.http.header("content-md5")) {
        return fail("MissingContentMD5");
    }
    const bool has_checksum =
        std::any_of(request.http.headers.begin(), request.http.headers.end(),
                    [](const NameValue& header) { return header.first.starts_with("x-amz-checksum-"); });
    return has_checksum && gaps.contains(kChecksums)
               ? fail("NotImplemented", "A header you provided implies functionality that is not implemented.")
               : Outcome<void>();
}

}  // namespace ckptfs::s3sim
