// SPDX-License-Identifier: Apache-2.0
// What services, programs and the cache of logins say of credentials.
#include <string_view>

#include "base/json_text.h"
#include "credentials/credential_json.h"
#include "require.h"

namespace ckptfs {
namespace {

void check_credentials(const Result<Credentials>& found) {
    if (found) {
        CKPTFS_REQUIRE(!found->access_key_id.empty() && !found->secret_access_key.empty());
        CKPTFS_REQUIRE(!found->expires || *found->expires >= WallTime{});
    } else {
        CKPTFS_REQUIRE(!found.error().message.empty());
    }
}

void check_line(std::string_view line) {
    CKPTFS_REQUIRE(line.find_first_of(std::string_view("\n\r\x1b\0", 4)) == std::string_view::npos);
}

void check_login(std::string_view text) {
    const SsoRenewal renewal{Secret("new access"), std::chrono::seconds(3600), Secret("new refresh")};
    const WallTime now(std::chrono::seconds(1'700'000'000));
    if (const auto renewed = renewed_sso_token(text, renewal, now)) {
        const auto token = parse_sso_token(*renewed);
        CKPTFS_REQUIRE(token && token->access_token == renewal.access_token);
        CKPTFS_REQUIRE(token->refresh_token == renewal.refresh_token && token->expires == now + renewal.valid_for);
        // What was there is there.
        const auto before = json_members(text);
        const auto after = json_members(*renewed);
        CKPTFS_REQUIRE(before && after && before->size() <= after->size());
    }
    if (const auto token = parse_sso_token(text)) {
        CKPTFS_REQUIRE(!token->access_token.empty());
        CKPTFS_REQUIRE(json_members(sso_renewal_body(*token)).has_value());
    }
}

void check(std::string_view text) {
    check_credentials(parse_metadata_credentials(text));
    check_credentials(parse_process_credentials(text));
    check_credentials(parse_sso_credentials(text));
    if (const auto renewal = parse_sso_renewal(text)) {
        CKPTFS_REQUIRE(!renewal->access_token.empty() && renewal->valid_for.count() >= 0);
    }
    check_login(text);
    check_line(failure_text(text));
    check_line(failure_code(text));
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    ckptfs::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
