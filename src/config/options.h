// SPDX-License-Identifier: Apache-2.0
// The one table of options: flags, -o names, environment names, --help and the man page come from it.
//
// A setting is taken from, in this order: the flag, -o, the environment (CKPTFS_ and the name in capitals), the
// default. Names are those of Mountpoint for S3 and the AWS CLI where the meaning is the same.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "ckptfs/config.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct OptionSpec {
    std::string_view section;
    // "endpoint-url"
    std::string_view name;
    // "f", or empty.
    std::string_view short_name;
    // "URL"; empty for a switch.
    std::string_view value_name;
    // As --help shows it; empty where there is none worth showing.
    std::string_view default_text;
    // One line without a full stop at the end.
    std::string_view help;
    // What the man page adds; may be empty.
    std::string_view details;
    Status (*apply)(Config& config, std::string_view value);

    [[nodiscard]] bool is_switch() const { return value_name.empty(); }
    [[nodiscard]] bool is_path() const { return value_name == "FILE" || value_name == "DIR"; }
};

// The section of the options that every command takes that talks to the store.
inline constexpr std::string_view kStoreSection = "The store";

[[nodiscard]] std::span<const OptionSpec> option_table();
[[nodiscard]] const OptionSpec* find_option(std::string_view name);
// "CKPTFS_ENDPOINT_URL"
[[nodiscard]] std::string environment_name(const OptionSpec& option);
// A warning for each of these names of variables that belongs to no option, but is close to one that does.
[[nodiscard]] std::vector<std::string> misspelt_variables(const std::vector<std::string>& names);

using Setting = std::pair<std::string, std::string>;

// Later settings win. Errors name the option.
Status apply_settings(Config& config, const std::vector<Setting>& settings);
Status apply_environment(Config& config, const Environment& environment);

// EINVAL for settings that contradict each other, or that are out of range.
Status check_config(const Config& config);

// The OPTIONS section of man/ckptfs.1.scd, in scdoc(5).
[[nodiscard]] std::string manual_options();

}  // namespace ckptfs
