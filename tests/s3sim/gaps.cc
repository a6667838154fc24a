// SPDX-License-Identifier: Apache-2.0
#include "gaps.h"

#include <algorithm>

#include "uri.h"

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

bool is_write(Operation operation) {
    return operation == Operation::kPutObject || operation == Operation::kCopyObject;
}

// No object has it.
constexpr std::string_view kNoETag = "\"-\"";

bool never_holds(const Gaps& gaps, const S3Request& request, const NameValue& header) {
    if (header.first == "if-match" && is_write(request.operation)) {
        return gaps.contains(kQuotedIfMatch) && header.second.starts_with('"');
    }
    return header.first == "x-amz-copy-source-if-match" && gaps.contains(kConditionsOnUploads) &&
           header.second.find('-') != std::string::npos;
}

bool is_decoded_twice(const Gaps& gaps, const S3Request& request, const NameValue& header) {
    return header.first == "x-amz-copy-source" && request.operation == Operation::kUploadPartCopy &&
           gaps.contains(kPartCopySources);
}

bool is_not_known(const Gaps& gaps, const S3Request& request, const NameValue& header) {
    return (header.first == "if-match" || header.first == "if-none-match") && is_write(request.operation) &&
           gaps.contains(kKnownWriteConditions);
}

}  // namespace

std::vector<std::string> names_of_gaps() {
    std::vector<std::string> names;
    for (const std::string_view name :
         {kMetadata, kReadConditions, kReadETags, kHeadETags, kWriteConditions, kCopyConditions, kDeleteConditions,
          kDeleteChecksums, kKnownWriteConditions, kQuotedIfMatch, kConditionsOnUploads, kPartCopy, kPartCopySources,
          kChecksums, kUnequalParts, kUnnamedParts}) {
        names.emplace_back(name);
    }
    return names;
}

PartRules part_rules(const Gaps& gaps) {
    return {gaps.contains(kUnequalParts), gaps.contains(kUnnamedParts)};
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
    if (request.operation == Operation::kUploadPartCopy && gaps.contains(kPartCopy)) {
        return fail("NotImplemented");
    }
    for (NameValue& header : request.http.headers) {
        if (is_not_known(gaps, request, header)) {
            return fail("NotImplemented", "Conditional object PUTs are not supported.");
        }
        if (never_holds(gaps, request, header)) {
            header.second = kNoETag;
        }
        if (is_decoded_twice(gaps, request, header)) {
            header.second = percent_decode(header.second).value_or(header.second);
        }
    }
    const bool has_checksum =
        std::any_of(request.http.headers.begin(), request.http.headers.end(),
                    [](const NameValue& header) { return header.first.starts_with("x-amz-checksum-"); });
    return has_checksum && gaps.contains(kChecksums)
               ? fail("NotImplemented", "A header you provided implies functionality that is not implemented.")
               : Outcome<void>();
}

}  // namespace ckptfs::s3sim
