// SPDX-License-Identifier: Apache-2.0
#include "s3/profile_file.h"

#include <INIReader.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace ckptfs {
namespace {

// The settings that ckptfs reads.
constexpr const char* kSettings[] = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region",
                                     "endpoint_url"};

Status read_section(const std::string& path, const std::string& section, Profile& profile) {
    if (access(path.c_str(), F_OK) != 0) {
        return {};
    }
    if (access(path.c_str(), R_OK) != 0) {
        return failure(errno, format("{}: {}", path, std::strerror(errno)));
    }
    const INIReader file(path);
    if (file.ParseError() != 0) {
        return failure(EINVAL, file.ParseError() < 0 ? format("{}: cannot be read", path)
                                                     : format("{}: error in line {}", path, file.ParseError()));
    }
    for (const char* setting : kSettings) {
        const std::string value = file.Get(section, setting, "");
        if (!value.empty()) {
            profile.emplace(setting, value);
        }
    }
    return {};
}

}  // namespace

ProfileFiles profile_files(const Environment& environment) {
    const std::string home = environment("HOME").value_or("");
    ProfileFiles files;
    files.credentials_path = environment("AWS_SHARED_CREDENTIALS_FILE").value_or(home + "/.aws/credentials");
    files.config_path = environment("AWS_CONFIG_FILE").value_or(home + "/.aws/config");
    return files;
}

std::string profile_name(const std::string& configured, const Environment& environment) {
    return configured.empty() ? environment("AWS_PROFILE").value_or("default") : configured;
}

Result<Profile> read_profile(const ProfileFiles& files, const std::string& name) {
    Profile profile;
    // Sections of the config file are called "profile NAME", except for the default one.
    const std::string config_section = name == "default" ? name : "profile " + name;
    Status status = read_section(files.credentials_path, name, profile);
    if (status) {
        status = read_section(files.config_path, config_section, profile);
    }
    if (!status) {
        return failure(std::move(status.error()));
    }
    return profile;
}

}  // namespace ckptfs
