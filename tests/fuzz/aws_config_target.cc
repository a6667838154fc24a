// SPDX-License-Identifier: Apache-2.0
// ~/.aws/config and ~/.aws/credentials, which people and programs write; and where their profiles lead.
#include <string>
#include <string_view>

#include "aws/ini.h"
#include "credentials/profile_plan.h"
#include "credentials/program_output.h"
#include "require.h"

namespace ckptfs {
namespace {

Result<Profile> section(const IniFile& file, const std::string& name) {
    const auto found = file.find(name);
    return found == file.end() ? Profile() : found->second;
}

void check_plan(const ProfilePlan& plan) {
    CKPTFS_REQUIRE(plan.origin != ProfileOrigin::kKeys ||
                   (!plan.keys.access_key_id.empty() && !plan.keys.secret_access_key.empty()));
    CKPTFS_REQUIRE(plan.origin != ProfileOrigin::kSso || !plan.sso.start_url.empty());
    for (const Role& role : plan.roles) {
        CKPTFS_REQUIRE(role.duration.find_first_not_of("0123456789") == std::string::npos);
    }
}

void check(std::string_view text) {
    static_cast<void>(split_words(text));
    const Result<IniFile> file = parse_ini(text);
    if (!file) {
        CKPTFS_REQUIRE(file.error().errno_value == EINVAL);
        return;
    }
    const ProfileLookup lookup{[&](const std::string& name) { return section(*file, name); },
                               [&](const std::string& name) { return section(*file, "sso-session " + name); }};
    for (const auto& [name, settings] : *file) {
        CKPTFS_REQUIRE(name.find_first_of("\n\"'") == std::string::npos);
        if (const auto plan = plan_profile(name, lookup)) {
            check_plan(*plan);
        }
        for (const auto& [setting, value] : settings) {
            CKPTFS_REQUIRE(setting.find_first_of("=\n") == std::string::npos);
            CKPTFS_REQUIRE(value.find('\n') == std::string::npos);
        }
    }
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    ckptfs::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
