// SPDX-License-Identifier: Apache-2.0
#include "sigv4_verify.h"

#include <algorithm>

#include "digest.h"
#include "uri.h"

namespace ckptfs::s3sim {

namespace {

// What the request says about its signature.
struct Claim {
    std::string access_key;
    std::string date;  // of the credential's scope, YYYYMMDD
    std::string region;
    std::string service;
    std::string terminator;
    std::vector<std::string> signed_headers;
    std::string signature;
    std::string timestamp;  // YYYYMMDDTHHMMSSZ
    std::string payload_hash;
    std::optional<std::string> session_token;
    std::optional<std::chrono::seconds> expires_after;  // presigned only
};

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
// Amazon S3: requests must be within 15 minutes of the server's time.
constexpr std::chrono::minutes kLargestSkew{15};
constexpr std::chrono::seconds kLongestPresigned{7 * 24 * 3600};

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> pieces;
    while (true) {
        const std::size_t end = text.find(separator);
        pieces.emplace_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            return pieces;
        }
        text.remove_prefix(end + 1);
    }
}

std::string collapse_blanks(std::string_view value) {
    std::string collapsed;
    for (const char c : trim(value)) {
        if (c != ' ' || collapsed.back() != ' ') {
            collapsed.push_back(c);
        }
    }
    return collapsed;
}

std::string canonical_query(const HttpRequest& request) {
    std::vector<NameValue> encoded;
    for (const auto& [name, value] : parse_query(request.query).value_or(std::vector<NameValue>())) {
        if (name != "X-Amz-Signature") {
            encoded.emplace_back(percent_encode(name, false), percent_encode(value, false));
        }
    }
    std::sort(encoded.begin(), encoded.end());
    std::string canonical;
    for (const auto& [name, value] : encoded) {
        canonical += (canonical.empty() ? "" : "&") + name + "=" + value;
    }
    return canonical;
}

std::string canonical_headers(const HttpRequest& request, const std::vector<std::string>& names) {
    std::string canonical;
    for (const std::string& wanted : names) {
        std::string values;
        bool first = true;
        for (const auto& [name, value] : request.headers) {
            if (name == wanted) {
                values += (first ? "" : ",") + collapse_blanks(value);
                first = false;
            }
        }
        canonical += wanted + ":" + values + "\n";
    }
    return canonical;
}

std::optional<std::string> unsigned_amz_header(const HttpRequest& request, const std::vector<std::string>& names) {
    const auto is_signed = [&names](const std::string& name) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (!is_signed("host")) {
        return "host";
    }
    for (const auto& [name, value] : request.headers) {
        if (name.starts_with("x-amz-") && !is_signed(name)) {
            return name;
        }
    }
    return std::nullopt;
}

bool split_scope(std::string_view credential, std::string& access_key, std::vector<std::string>& scope) {
    std::vector<std::string> pieces = split(credential, '/');
    if (pieces.size() < 5) {
        return false;
    }
    scope.assign(pieces.end() - 4, pieces.end());
    pieces.resize(pieces.size() - 4);
    access_key.clear();
    for (const std::string& piece : pieces) {  // an access key may hold slashes
        access_key += (access_key.empty() ? "" : "/") + piece;
    }
    return true;
}

// "Credential=..., SignedHeaders=..., Signature=..." after the algorithm.
std::optional<std::string> authorization_field(std::string_view fields, std::string_view name) {
    for (const std::string& field : split(fields, ',')) {
        const std::string_view trimmed = trim(field);
        if (trimmed.starts_with(name) && trimmed.size() > name.size() && trimmed[name.size()] == '=') {
            return std::string(trimmed.substr(name.size() + 1));
        }
    }
    return std::nullopt;
}

std::optional<std::string> parameter(const std::vector<NameValue>& query, std::string_view name) {
    for (const auto& [key, value] : query) {
        if (key == name) {
            return value;
        }
    }
    return std::nullopt;
}

bool fill_scope(std::string_view credential, Claim& claim) {
    std::vector<std::string> scope;
    if (!split_scope(credential, claim.access_key, scope)) {
        return false;
    }
    claim.date = scope[0];
    claim.region = scope[1];
    claim.service = scope[2];
    claim.terminator = scope[3];
    return true;
}

Outcome<Claim> read_authorization_header(const HttpRequest& request, std::string_view authorization) {
    if (!authorization.starts_with(kAlgorithm)) {
        return fail("InvalidRequest",
                    "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.");
    }
    const std::string_view fields = authorization.substr(kAlgorithm.size());
    const auto credential = authorization_field(fields, "Credential");
    const auto signed_headers = authorization_field(fields, "SignedHeaders");
    const auto signature = authorization_field(fields, "Signature");
    Claim claim;
    if (!credential || !signed_headers || !signature || !fill_scope(*credential, claim)) {
        return fail("AuthorizationHeaderMalformed");
    }
    claim.signed_headers = split(*signed_headers, ';');
    claim.signature = *signature;
    const auto payload_hash = request.header("x-amz-content-sha256");
    if (!payload_hash) {
        return fail("InvalidRequest", "Missing required header for this request: x-amz-content-sha256");
    }
    claim.payload_hash = *payload_hash;
    claim.timestamp = request.header_or("x-amz-date", "");
    if (const auto token = request.header("x-amz-security-token")) {
        claim.session_token = *token;
    }
    return claim;
}

Outcome<Claim> read_presigned_query(const std::vector<NameValue>& query) {
    Claim claim;
    const auto credential = parameter(query, "X-Amz-Credential");
    const auto expires = parse_number(parameter(query, "X-Amz-Expires").value_or(""));
    const auto signature = parameter(query, "X-Amz-Signature");
    const auto signed_headers = parameter(query, "X-Amz-SignedHeaders");
    if (parameter(query, "X-Amz-Algorithm") != kAlgorithm || !credential || !expires || !signature || !signed_headers ||
        !fill_scope(*credential, claim) || *expires > static_cast<std::uint64_t>(kLongestPresigned.count())) {
        return fail("AuthorizationQueryParametersError");
    }
    claim.signed_headers = split(*signed_headers, ';');
    claim.signature = *signature;
    claim.timestamp = parameter(query, "X-Amz-Date").value_or("");
    claim.payload_hash = "UNSIGNED-PAYLOAD";
    claim.session_token = parameter(query, "X-Amz-Security-Token");
    claim.expires_after = std::chrono::seconds(*expires);
    return claim;
}

std::string expected_signature(const HttpRequest& request, const Claim& claim, const std::string& secret_key) {
    std::string names;
    for (const std::string& name : claim.signed_headers) {
        names += (names.empty() ? "" : ";") + name;
    }
    const std::string path = percent_encode(percent_decode(request.path).value_or(""), true);
    const std::string canonical = request.method + "\n" + path + "\n" + canonical_query(request) + "\n" +
                                  canonical_headers(request, claim.signed_headers) + "\n" + names + "\n" +
                                  claim.payload_hash;
    const std::string scope = claim.date + "/" + claim.region + "/" + claim.service + "/" + claim.terminator;
    const std::string to_sign = std::string(kAlgorithm) + "\n" + claim.timestamp + "\n" + scope + "\n" +
                                to_hex(digest_of(DigestKind::kSha256, canonical));
    std::string key = "AWS4" + secret_key;
    for (const std::string* step : {&claim.date, &claim.region, &claim.service, &claim.terminator}) {
        key = hmac_sha256(key, *step);
    }
    return to_hex(hmac_sha256(key, to_sign));
}

Outcome<void> check_claim(const HttpRequest& request, const Claim& claim, const SigningKeys& keys, SystemTime now) {
    if (claim.service != "s3" || claim.terminator != "aws4_request") {
        return fail("AuthorizationHeaderMalformed", "The credential scope must end in /s3/aws4_request.");
    }
    const auto signed_at = parse_amz_date(claim.timestamp);
    if (!signed_at || claim.timestamp.substr(0, 8) != claim.date) {
        return fail("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header");
    }
    if (claim.expires_after && now > *signed_at + *claim.expires_after) {
        return fail("AccessDenied", "Request has expired");
    }
    if (*signed_at > now + kLargestSkew || (!claim.expires_after && *signed_at < now - kLargestSkew)) {
        S3Error error = s3_error("RequestTimeTooSkewed");
        error.details.emplace_back("RequestTime", claim.timestamp);
        error.details.emplace_back("ServerTime", iso_date(now));
        return tl::unexpected(std::move(error));
    }
    if (keys.session_token && claim.session_token != keys.session_token) {
        return fail("InvalidToken");
    }
    if (const auto name = unsigned_amz_header(request, claim.signed_headers)) {
        S3Error error = s3_error("AccessDenied", "There were headers present in the request which were not signed");
        error.details.emplace_back("HeadersNotSigned", *name);
        return tl::unexpected(std::move(error));
    }
    if (expected_signature(request, claim, keys.secret_key) != claim.signature) {
        return fail("SignatureDoesNotMatch");
    }
    return {};
}

}  // namespace

void SignatureVerifier::add(SessionKeys keys) {
    const std::lock_guard lock(mutex_);
    const std::string name = keys.access_key;
    sessions_.insert_or_assign(name, std::move(keys));
}

Outcome<SigningKeys> SignatureVerifier::keys_of(const std::string& access_key, SystemTime now) const {
    if (access_key == keys_.access_key) {
        return keys_;
    }
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(access_key);
    if (found == sessions_.end()) {
        S3Error error = s3_error("InvalidAccessKeyId");
        error.details.emplace_back("AWSAccessKeyId", access_key);
        return tl::unexpected(std::move(error));
    }
    const SessionKeys& session = found->second;
    if (now >= session.expires) {
        return fail("ExpiredToken", "The provided token has expired.");
    }
    return SigningKeys{session.access_key, session.secret_key, session.session_token};
}

Outcome<std::optional<std::string>> SignatureVerifier::verify(const HttpRequest& request, SystemTime now) const {
    const auto query = parse_query(request.query);
    if (!query) {
        return fail("InvalidURI");
    }
    Outcome<Claim> claim;
    if (const auto authorization = request.header("authorization")) {
        claim = read_authorization_header(request, *authorization);
    } else if (parameter(*query, "X-Amz-Signature")) {
        claim = read_presigned_query(*query);
    } else if (keys_.allow_anonymous) {
        return std::nullopt;
    } else {
        return fail("AccessDenied");
    }
    if (!claim) {
        return tl::unexpected(std::move(claim.error()));
    }
    const auto keys = keys_of(claim->access_key, now);
    if (!keys) {
        return tl::unexpected(keys.error());
    }
    if (auto checked = check_claim(request, *claim, *keys, now); !checked) {
        return tl::unexpected(std::move(checked.error()));
    }
    return claim->region;
}

}  // namespace ckptfs::s3sim
