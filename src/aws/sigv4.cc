// SPDX-License-Identifier: Apache-2.0
#include "aws/sigv4.h"

#include <algorithm>

#include "aws/times.h"
#include "base/digest.h"
#include "base/text.h"

namespace ckptfs {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

std::string_view date_of(std::string_view timestamp) {
    return timestamp.substr(0, 8);
}

std::string credential_scope(std::string_view date, const SigningScope& scope) {
    return format("{}/{}/{}/aws4_request", date, scope.region, scope.service);
}

HttpHeaders sorted(HttpHeaders headers) {
    std::sort(headers.begin(), headers.end());
    return headers;
}

std::string signed_names(const HttpHeaders& sorted_headers) {
    std::string names;
    for (const auto& [name, value] : sorted_headers) {
        if (!names.empty()) {
            names += ';';
        }
        names += name;
    }
    return names;
}

// Drops the blanks at both ends, and makes one of each run of blanks inside.
std::string canonical_value(std::string_view value) {
    std::string canonical;
    for (const char c : value) {
        const bool blank = c == ' ' || c == '\t';
        if (!blank) {
            canonical += c;
        } else if (!canonical.empty() && canonical.back() != ' ') {
            canonical += ' ';
        }
    }
    if (!canonical.empty() && canonical.back() == ' ') {
        canonical.pop_back();
    }
    return canonical;
}

Sha256 signing_key(const Credentials& credentials, std::string_view date, const SigningScope& scope) {
    const std::string first = "AWS4" + credentials.secret_access_key.reveal();
    const Sha256 date_key = hmac_sha256(as_bytes(first), as_bytes(date));
    const Sha256 region_key = hmac_sha256(date_key, as_bytes(scope.region));
    const Sha256 service_key = hmac_sha256(region_key, as_bytes(scope.service));
    return hmac_sha256(service_key, as_bytes(std::string_view("aws4_request")));
}

}  // namespace

std::string canonical_request(const UnsignedRequest& request) {
    const HttpHeaders headers = sorted(request.headers);
    std::string header_lines;
    for (const auto& [name, value] : headers) {
        header_lines += format("{}:{}\n", name, canonical_value(value));
    }
    return format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path, request.query, header_lines,
                  signed_names(headers), request.payload_hash);
}

std::string string_to_sign(std::string_view canonical, const SigningScope& scope) {
    const std::string timestamp = basic_iso8601(scope.time);
    return format("{}\n{}\n{}\n{}", kAlgorithm, timestamp, credential_scope(date_of(timestamp), scope),
                  hex(sha256(as_bytes(canonical))));
}

std::string authorization(const UnsignedRequest& request, const SigningScope& scope, const Credentials& credentials) {
    const std::string timestamp = basic_iso8601(scope.time);
    const std::string_view date = date_of(timestamp);
    const std::string to_sign = string_to_sign(canonical_request(request), scope);
    const Sha256 signature = hmac_sha256(signing_key(credentials, date, scope), as_bytes(to_sign));
    return format("{} Credential={}/{},SignedHeaders={},Signature={}", kAlgorithm, credentials.access_key_id,
                  credential_scope(date, scope), signed_names(sorted(request.headers)), hex(signature));
}

}  // namespace ckptfs
