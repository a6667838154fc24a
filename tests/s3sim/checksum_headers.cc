// SPDX-License-Identifier: Apache-2.0
#include "checksum_headers.h"

#include <algorithm>
#include <array>

namespace ckptfs::s3sim {
namespace {

struct Algorithm {
    DigestKind kind;
    std::string_view name;
};

constexpr auto kAlgorithms = std::to_array<Algorithm>({{DigestKind::kCrc32, "CRC32"},
                                                       {DigestKind::kCrc32c, "CRC32C"},
                                                       {DigestKind::kCrc64Nvme, "CRC64NVME"},
                                                       {DigestKind::kSha1, "SHA1"},
                                                       {DigestKind::kSha256, "SHA256"}});

constexpr std::string_view kHeaderPrefix = "x-amz-checksum-";

// x-amz-checksum-algorithm, -type and -mode share the prefix and carry no value of a checksum.
std::optional<DigestKind> kind_of_header(std::string_view header) {
    return header.starts_with(kHeaderPrefix) ? checksum_algorithm(header.substr(kHeaderPrefix.size())) : std::nullopt;
}

Outcome<void> read_checksum_value(std::string_view header, std::string_view value, ClaimedChecksums& claimed) {
    const auto kind = kind_of_header(header);
    if (!kind) {
        return {};
    }
    if (claimed.checksum) {
        return fail("InvalidRequest",
                    "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.");
    }
    if (!well_formed_checksum(*kind, value)) {
        return fail("InvalidRequest", "Value for " + std::string(header) + " header is invalid.");
    }
    claimed.checksum = Checksum{*kind, std::string(value), false};
    return {};
}

Outcome<void> read_payload_hash(const HttpRequest& request, ClaimedChecksums& claimed) {
    const auto value = request.header("x-amz-content-sha256");
    if (!value || *value == "UNSIGNED-PAYLOAD" || value->starts_with("STREAMING-")) {
        return {};
    }
    const std::string hash = lower_case(*value);
    if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != std::string::npos) {
        return fail("InvalidArgument",
                    "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, or a valid "
                    "sha256 value.");
    }
    claimed.payload_sha256 = hash;
    return {};
}

Outcome<void> check_named_algorithm(const HttpRequest& request, const ClaimedChecksums& claimed) {
    const auto name = request.header("x-amz-sdk-checksum-algorithm");
    if (!name) {
        return {};
    }
    const auto kind = checksum_algorithm(*name);
    if (!kind) {
        return fail("InvalidRequest", "Value for x-amz-sdk-checksum-algorithm header is invalid.");
    }
    if (!claimed.checksum && !claimed.trailer) {
        return fail("InvalidRequest",
                    "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer "
                    "headers were found.");
    }
    if ((claimed.checksum && claimed.checksum->kind != *kind) || (claimed.trailer && *claimed.trailer != *kind)) {
        return fail("InvalidRequest", "Value for x-amz-sdk-checksum-algorithm header is invalid.");
    }
    return {};
}

Outcome<void> verify_content_digests(const ClaimedChecksums& claimed, const ReceivedBody& body) {
    if (claimed.payload_sha256) {
        const auto computed = body.digests.find(DigestKind::kSha256);
        if (computed != body.digests.end() && to_hex(computed->second) != *claimed.payload_sha256) {
            S3Error error = s3_error("XAmzContentSHA256Mismatch");
            error.details.emplace_back("ClientComputedContentSHA256", *claimed.payload_sha256);
            error.details.emplace_back("S3ComputedContentSHA256", to_hex(computed->second));
            return tl::unexpected(std::move(error));
        }
    }
    if (claimed.content_md5) {
        const auto computed = body.digests.find(DigestKind::kMd5);
        if (computed != body.digests.end() && computed->second != *claimed.content_md5) {
            return fail("BadDigest", "The Content-MD5 you specified did not match what we received.");
        }
    }
    return {};
}

}  // namespace

std::vector<DigestKind> ClaimedChecksums::digests() const {
    std::vector<DigestKind> kinds;
    const auto add = [&kinds](DigestKind kind) {
        if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
            kinds.push_back(kind);
        }
    };
    if (content_md5) {
        add(DigestKind::kMd5);
    }
    if (payload_sha256) {
        add(DigestKind::kSha256);
    }
    if (checksum) {
        add(checksum->kind);
    }
    if (trailer) {
        add(*trailer);
    }
    return kinds;
}

Outcome<ClaimedChecksums> read_claimed_checksums(const HttpRequest& request) {
    ClaimedChecksums claimed;
    if (const auto value = request.header("content-md5")) {
        claimed.content_md5 = from_base64(*value);
        if (!claimed.content_md5 || claimed.content_md5->size() != digest_size(DigestKind::kMd5)) {
            return fail("InvalidDigest", "The Content-MD5 you specified was invalid.");
        }
    }
    if (auto read = read_payload_hash(request, claimed); !read) {
        return tl::unexpected(std::move(read.error()));
    }
    for (const auto& [name, value] : request.headers) {
        if (auto read = read_checksum_value(name, value, claimed); !read) {
            return tl::unexpected(std::move(read.error()));
        }
    }
    if (const auto trailer = request.header("x-amz-trailer")) {
        claimed.trailer = kind_of_header(lower_case(*trailer));
        if (!claimed.trailer) {
            return fail("InvalidRequest", "The value specified in the x-amz-trailer header is not supported");
        }
    }
    if (auto checked = check_named_algorithm(request, claimed); !checked) {
        return tl::unexpected(std::move(checked.error()));
    }
    return claimed;
}

Outcome<std::optional<Checksum>> verify_checksums(const ClaimedChecksums& claimed, const ReceivedBody& body) {
    if (auto verified = verify_content_digests(claimed, body); !verified) {
        return tl::unexpected(std::move(verified.error()));
    }
    std::optional<Checksum> checksum = claimed.checksum;
    if (claimed.trailer) {
        const std::string header = checksum_header(*claimed.trailer);
        const auto sent = std::find_if(body.trailers.begin(), body.trailers.end(),
                                       [&header](const NameValue& trailer) { return trailer.first == header; });
        if (sent == body.trailers.end()) {
            return fail("MalformedTrailerError");
        }
        checksum = Checksum{*claimed.trailer, sent->second, false};
    }
    if (checksum) {
        const auto computed = body.digests.find(checksum->kind);
        if (computed != body.digests.end() && to_base64(computed->second) != checksum->value) {
            return fail("BadDigest", "The " + std::string(algorithm_name(checksum->kind)) +
                                         " you specified did not match the calculated checksum.");
        }
    }
    return checksum;
}

std::optional<Checksum> read_object_checksum(const HttpRequest& request) {
    for (const auto& [name, value] : request.headers) {
        if (const auto kind = kind_of_header(name)) {
            return Checksum{*kind, value, false};
        }
    }
    return std::nullopt;
}

std::optional<DigestKind> checksum_algorithm(std::string_view name) {
    for (const Algorithm& algorithm : kAlgorithms) {
        if (lower_case(algorithm.name) == lower_case(name)) {
            return algorithm.kind;
        }
    }
    return std::nullopt;
}

std::string_view algorithm_name(DigestKind kind) {
    for (const Algorithm& algorithm : kAlgorithms) {
        if (algorithm.kind == kind) {
            return algorithm.name;
        }
    }
    return "MD5";
}

std::string checksum_header(DigestKind kind) {
    return std::string(kHeaderPrefix) + lower_case(algorithm_name(kind));
}

bool well_formed_checksum(DigestKind kind, std::string_view base64) {
    const auto raw = from_base64(base64);
    return raw && raw->size() == digest_size(kind);
}

std::string composite_checksum(DigestKind kind, const std::vector<std::string>& part_values) {
    std::string joined;
    for (const std::string& value : part_values) {
        joined += from_base64(value).value_or("");
    }
    return to_base64(digest_of(kind, joined)) + "-" + std::to_string(part_values.size());
}

}  // namespace ckptfs::s3sim
