// SPDX-License-Identifier: Apache-2.0
#include "s3/whole_check.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ckptfs::s3 {
namespace {

struct ChecksumHeader {
    const char* name;
    DigestKind kind;
};
constexpr std::array<ChecksumHeader, 5> kChecksumHeaders = {{{"x-amz-checksum-crc32c", DigestKind::kCrc32c},
                                                             {"x-amz-checksum-crc64nvme", DigestKind::kCrc64Nvme},
                                                             {"x-amz-checksum-crc32", DigestKind::kCrc32},
                                                             {"x-amz-checksum-sha256", DigestKind::kSha256},
                                                             {"x-amz-checksum-sha1", DigestKind::kSha1}}};
constexpr const char* kMd5ETags = "ETags are MD5s";

bool is_hexadecimal(char each) {
    return (each >= '0' && each <= '9') || (each >= 'a' && each <= 'f');
}

// The MD5 in an ETag; empty if the ETag cannot be one. That of an upload in parts ends in their number, and that of an
// object encrypted by a key of its owner is of other bytes (Amazon S3 API, Object).
std::string md5_of_etag(const HttpResponse& head) {
    std::string_view etag = head.header("etag");
    if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
        etag = etag.substr(1, etag.size() - 2);
    }
    const bool is_of_other_bytes = head.header("x-amz-server-side-encryption").find("kms") != std::string_view::npos ||
                                   !head.header("x-amz-server-side-encryption-customer-algorithm").empty();
    const bool may_be_md5 = etag.size() == 32 && std::all_of(etag.begin(), etag.end(), is_hexadecimal);
    return may_be_md5 && !is_of_other_bytes ? std::string(etag) : std::string();
}

}  // namespace

WholeCheck::WholeCheck(const HttpResponse& head, const char* md5_properties) {
    const bool of_parts = head.header("x-amz-checksum-type") == "COMPOSITE";
    for (const ChecksumHeader& header : kChecksumHeaders) {
        const std::string_view checksum = head.header(header.name);
        if (!of_parts && !checksum.empty() && checksum.find('-') == std::string_view::npos) {
            expected_ = checksum;
            digest_ = running_digest(header.kind);
            return;
        }
    }
    if (expected_ = md5_of_etag(head); !expected_.empty()) {
        is_etag_ = true;
        digest_ = running_digest(DigestKind::kMd5, md5_properties);
    }
}

Verdict WholeCheck::verdict(StoreHabits& habits) {
    if (!digest_) {
        return Verdict::kNothingKnown;
    }
    const bool fits = digest_->text() == expected_;
    if (fits && is_etag_) {
        habits.note(kMd5ETags);
    }
    if (fits) {
        return Verdict::kRight;
    }
    return is_etag_ && !habits.has(kMd5ETags) ? Verdict::kNothingKnown : Verdict::kDamaged;
}

}  // namespace ckptfs::s3
