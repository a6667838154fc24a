// SPDX-License-Identifier: Apache-2.0
#include "credentials/credential_json.h"

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>

#include "base/json_text.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/times.h"

namespace ckptfs {
namespace {

using Members = std::map<std::string, std::string>;

constexpr std::size_t kLongestText = 300;

std::string member(const Members& members, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (const auto found = members.find(name); found != members.end()) {
            return found->second;
        }
    }
    return {};
}

Result<Credentials> keys(const Members& members, const std::string& prefix, std::initializer_list<const char*> token) {
    const auto of = [&](const char* upper, const char* lower) {
        return member(members, {(prefix + upper).c_str(), (prefix + lower).c_str()});
    };
    Credentials credentials{of("AccessKeyId", "accessKeyId"), Secret(of("SecretAccessKey", "secretAccessKey")),
                            Secret(member(members, token)), std::nullopt};
    if (credentials.access_key_id.empty() || credentials.secret_access_key.empty()) {
        return failure(EPROTO, "no AccessKeyId and SecretAccessKey in it");
    }
    return credentials;
}

// Of a source that hands out sessions: without a time they would be used until the store refuses them.
Status set_expiration(const Members& members, Credentials& credentials) {
    const std::string text = member(members, {"Expiration"});
    if (text.empty()) {
        return {};
    }
    credentials.expires = parse_iso8601(text);
    if (!credentials.expires) {
        return failure(EPROTO, format("its Expiration {} is no time in UTC like 2030-01-31T12:00:00Z", escaped(text)));
    }
    return {};
}

}  // namespace

Result<Credentials> parse_metadata_credentials(std::string_view body) {
    const auto members = json_members(body);
    if (!members) {
        return failure(members.error());
    }
    const std::string code = member(*members, {"Code"});
    if (!code.empty() && code != "Success") {
        return failure(EACCES, failure_text(body));
    }
    auto credentials = keys(*members, "", {"Token"});
    if (credentials) {
        if (Status set = set_expiration(*members, *credentials); !set) {
            return failure(set.error());
        }
    }
    return credentials;
}

Result<Credentials> parse_process_credentials(std::string_view output) {
    const auto members = json_members(output);
    if (!members) {
        return failure(members.error());
    }
    if (const std::string version = member(*members, {"Version"}); version != "1") {
        return failure(EPROTO, format("its Version is \"{}\", not 1", escaped(version)));
    }
    auto credentials = keys(*members, "", {"SessionToken"});
    if (credentials) {
        if (Status set = set_expiration(*members, *credentials); !set) {
            return failure(set.error());
        }
    }
    return credentials;
}

Result<Credentials> parse_sso_credentials(std::string_view body) {
    const auto members = json_members(body);
    if (!members) {
        return failure(members.error());
    }
    auto credentials = keys(*members, "roleCredentials.", {"roleCredentials.sessionToken"});
    if (!credentials) {
        return credentials;
    }
    const std::string expires = member(*members, {"roleCredentials.expiration"});
    // Milliseconds; a WallTime counts nanoseconds.
    constexpr std::int64_t kLatest = 9'000'000'000'000;
    std::int64_t milliseconds = 0;
    const auto [end, error] = std::from_chars(expires.data(), expires.data() + expires.size(), milliseconds);
    if (error != std::errc{} || end != expires.data() + expires.size() || milliseconds < 0 || milliseconds > kLatest) {
        return failure(EPROTO, "its expiration is no time in milliseconds");
    }
    credentials->expires = WallTime(Milliseconds(milliseconds));
    return credentials;
}

Result<SsoToken> parse_sso_token(std::string_view text) {
    const auto members = json_members(text);
    if (!members) {
        return failure(members.error());
    }
    std::string expires = member(*members, {"expiresAt"});
    // As older releases of the AWS CLI wrote it.
    if (expires.ends_with("UTC")) {
        expires.replace(expires.size() - 3, 3, "Z");
    }
    const auto time = parse_iso8601(expires);
    SsoToken token{Secret(member(*members, {"accessToken"})), time.value_or(WallTime{})};
    if (token.access_token.empty() || !time) {
        return failure(EPROTO, "no accessToken and expiresAt in it");
    }
    return token;
}

std::string failure_text(std::string_view body) {
    const auto members = json_members(body);
    if (!members) {
        return escaped(body.substr(0, kLongestText));
    }
    const std::string code = member(*members, {"Code", "code", "__type"});
    const std::string message = member(*members, {"Message", "message"});
    return escaped(code + (code.empty() || message.empty() ? "" : ": ") + message);
}

}  // namespace ckptfs
