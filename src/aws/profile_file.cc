// SPDX-License-Identifier: Apache-2.0
#include "aws/profile_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "aws/ini.h"
#include "base/text.h"
#include "base/text_file.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

constexpr const char* kDefaultRegion = "us-east-1";

bool may_enter(const std::string& path) {
    return access(path.substr(0, path.rfind('/')).c_str(), X_OK) == 0;
}

Result<IniFile> read_ini(const std::string& path, bool named) {
    const auto text = read_text_file(AT_FDCWD, path.c_str());
    if (!text) {
        const bool absent = errno == ENOENT || errno == ENOTDIR || (errno == EACCES && !named && !may_enter(path));
        return absent ? Result<IniFile>() : failure(errno, format("{}: {}", path, std::strerror(errno)));
    }
    Result<IniFile> file = parse_ini(*text);
    if (!file) {
        file.error().message = format("{}: {}", path, file.error().message);
    }
    return file;
}

void add_section(const IniFile& file, const std::string& section, Profile& profile) {
    if (const auto found = file.find(section); found != file.end()) {
        for (const auto& [name, value] : found->second) {
            if (!value.empty()) {
                profile.emplace(name, value);
            }
        }
    }
}

}  // namespace

bool is_missing(const std::string& path) {
    return access(path.c_str(), F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

std::string searched(const ProfileFiles& files) {
    const auto described = [](const std::string& path) {
        return escaped(path) + (is_missing(path) ? " (no such file)" : "");
    };
    return format("{} and {}", described(files.credentials_path), described(files.config_path));
}

ProfileFiles profile_files(const Environment& environment) {
    const std::string home = environment("HOME").value_or("");
    ProfileFiles files;
    files.credentials_named = environment("AWS_SHARED_CREDENTIALS_FILE").has_value();
    files.config_named = environment("AWS_CONFIG_FILE").has_value();
    files.credentials_path = environment("AWS_SHARED_CREDENTIALS_FILE").value_or(home + "/.aws/credentials");
    files.config_path = environment("AWS_CONFIG_FILE").value_or(home + "/.aws/config");
    return files;
}

std::string profile_name(const std::string& configured, const Environment& environment) {
    return configured.empty() ? environment("AWS_PROFILE").value_or("default") : configured;
}

Result<Profile> read_profile(const ProfileFiles& files, const std::string& name) {
    const Result<IniFile> credentials = read_ini(files.credentials_path, files.credentials_named);
    if (!credentials) {
        return failure(credentials.error());
    }
    const Result<IniFile> config = read_ini(files.config_path, files.config_named);
    if (!config) {
        return failure(config.error());
    }
    Profile profile;
    add_section(*credentials, name, profile);
    // Sections of the config file are called "profile NAME"; the default one may leave the word out.
    add_section(*config, "profile " + name, profile);
    if (name == "default") {
        add_section(*config, name, profile);
    }
    return profile;
}

Result<Profile> read_sso_session(const ProfileFiles& files, const std::string& name) {
    const Result<IniFile> config = read_ini(files.config_path, files.config_named);
    if (!config) {
        return failure(config.error());
    }
    Profile session;
    add_section(*config, "sso-session " + name, session);
    return session;
}

std::string region_name(const std::string& configured, const Environment& environment, const Profile& profile) {
    if (!configured.empty()) {
        return configured;
    }
    for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
        if (const auto region = environment(name)) {
            return *region;
        }
    }
    const std::string region = setting_of(profile, "region");
    return region.empty() ? kDefaultRegion : region;
}

std::string setting_of(const Profile& profile, const std::string& name) {
    const auto found = profile.find(name);
    return found == profile.end() ? std::string() : found->second;
}

}  // namespace ckptfs
