// SPDX-License-Identifier: Apache-2.0
#include "credentials/credential_json.h"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>

#include "aws/times.h"
#include "base/json_text.h"
#include "base/numbers.h"
#include "base/text.h"
#include "ckptfs/log.h"

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
        return failure(EPROTO, "AccessKeyId or SecretAccessKey is missing");
    }
    return credentials;
}

std::optional<std::int64_t> number_up_to(const std::string& text, std::int64_t largest) {
    const auto number = whole_number<std::int64_t>(text);
    return number && *number >= 0 && *number <= largest ? number : std::nullopt;
}

// For a source that hands out sessions: with an expiration that cannot be parsed, they would be used until the store
// refuses them.
Status set_expiration(const Members& members, Credentials& credentials) {
    const std::string text = member(members, {"Expiration"});
    if (text.empty()) {
        return {};
    }
    credentials.expires = parse_iso8601(text);
    if (!credentials.expires) {
        return failure(EPROTO,
                       format("its Expiration {} is not a time in UTC such as 2030-01-31T12:00:00Z", escaped(text)));
    }
    return {};
}

std::optional<WallTime> login_time(std::string text) {
    // The form that older releases of the AWS CLI wrote.
    if (text.ends_with("UTC")) {
        text.replace(text.size() - 3, 3, "Z");
    }
    return parse_iso8601(text);
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
    // Milliseconds; a WallTime counts nanoseconds.
    constexpr std::int64_t kLatest = 9'000'000'000'000;
    const auto milliseconds = number_up_to(member(*members, {"roleCredentials.expiration"}), kLatest);
    if (!milliseconds) {
        return failure(EPROTO, "its expiration is not a time in milliseconds");
    }
    credentials->expires = WallTime(Milliseconds(*milliseconds));
    return credentials;
}

Result<SsoToken> parse_sso_token(std::string_view text) {
    const auto members = json_members(text);
    if (!members) {
        return failure(members.error());
    }
    const auto time = login_time(member(*members, {"expiresAt"}));
    SsoToken token{Secret(member(*members, {"accessToken"})),  time.value_or(WallTime{}),
                   Secret(member(*members, {"refreshToken"})), member(*members, {"clientId"}),
                   Secret(member(*members, {"clientSecret"})), login_time(member(*members, {"registrationExpiresAt"}))};
    if (token.access_token.empty() || !time) {
        return failure(EPROTO, "no accessToken and expiresAt in it");
    }
    return token;
}

std::string sso_renewal_body(const SsoToken& token) {
    // Never fails: the text is an object.
    return json_with_members("{}", {{"clientId", token.client_id},
                                    {"clientSecret", token.client_secret.reveal()},
                                    {"grantType", "refresh_token"},
                                    {"refreshToken", token.refresh_token.reveal()}})
        .value_or("");
}

Result<SsoRenewal> parse_sso_renewal(std::string_view body) {
    const auto members = json_members(body);
    if (!members) {
        return failure(members.error());
    }
    constexpr std::int64_t kLongest = std::chrono::seconds(std::chrono::days(365)).count();
    const auto valid_for = number_up_to(member(*members, {"expiresIn"}), kLongest);
    SsoRenewal renewal{Secret(member(*members, {"accessToken"})), std::chrono::seconds(valid_for.value_or(0)),
                       Secret(member(*members, {"refreshToken"}))};
    if (renewal.access_token.empty() || !valid_for) {
        return failure(EPROTO, "no accessToken and expiresIn in it");
    }
    return renewal;
}

Result<std::string> renewed_sso_token(std::string_view text, const SsoRenewal& renewal, WallTime now) {
    Members members{{"accessToken", renewal.access_token.reveal()},
                    {"expiresAt", extended_iso8601(now + renewal.valid_for)}};
    if (!renewal.refresh_token.empty()) {
        members["refreshToken"] = renewal.refresh_token.reveal();
    }
    return json_with_members(text, members);
}

std::string failure_code(std::string_view body) {
    const auto members = json_members(body);
    return members ? escaped(member(*members, {"error", "Code", "code", "__type"}).substr(0, kLongestText)) : "";
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
