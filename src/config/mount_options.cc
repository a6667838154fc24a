// SPDX-License-Identifier: Apache-2.0
#include "config/mount_options.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "config/near_match.h"

namespace ckptfs {
namespace {

// Words that fstab(5) and mount(8) write for their own use, or that ask for what is so anyway.
constexpr auto kForMount = std::to_array<std::string_view>(
    {"defaults", "auto",       "noauto",      "_netdev",       "nofail",    "suid",       "nosuid",   "dev",
     "nodev",    "async",      "sync",        "dirsync",       "atime",     "noatime",    "diratime", "nodiratime",
     "relatime", "norelatime", "strictatime", "nostrictatime", "lazytime",  "nolazytime", "iversion", "noiversion",
     "mand",     "nomand",     "silent",      "loud",          "symfollow", "user",       "nouser",   "users",
     "nousers",  "owner",      "noowner",     "group",         "nogroup"});

struct Meaning {
    std::string_view word;
    std::string_view option;
    std::string_view value;
};
constexpr auto kMeanings =
    std::to_array<Meaning>({{"ro", "read-only", "yes"}, {"rw", "read-only", "no"}, {"exec", "noexec", "no"}});

bool is_for_mount(std::string_view name) {
    return std::find(kForMount.begin(), kForMount.end(), name) != kForMount.end() || name.starts_with("x-") ||
           name.starts_with("X-") || name == "comment" || name == "helper" || name == "uhelper";
}

std::vector<std::string> split_escaped(std::string_view text) {
    std::vector<std::string> items(1);
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 1 < text.size()) {
            items.back() += text[++i];
        } else if (text[i] == ',') {
            items.emplace_back();
        } else {
            items.back() += text[i];
        }
    }
    return items;
}

// Accepts underscores, as mount(8) has them.
std::string our_name(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

// All words that are valid here, with underscores unless `word` has a hyphen.
std::vector<std::string> names_like(std::string_view word) {
    std::vector<std::string> names(kForMount.begin(), kForMount.end());
    for (const Meaning& meaning : kMeanings) {
        names.emplace_back(meaning.word);
    }
    for (const OptionSpec& option : option_table()) {
        std::string name(option.name);
        if (word.find('-') == std::string_view::npos) {
            std::replace(name.begin(), name.end(), '-', '_');
        }
        names.push_back(std::move(name));
    }
    return names;
}

Result<Setting> parse_item(const std::string& item) {
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string name = item.substr(0, equals);
    if (name == "remount") {
        return failure(
            EINVAL,
            "-o remount: the options of a running mount cannot be changed; unmount it and mount it again, or make it "
            "read-only with mount -i -o remount,ro DIR");
    }
    const OptionSpec* option = find_option(our_name(name));
    if (option == nullptr) {
        return failure(ENOENT, format("-o {}: there is no such option{} See ckptfs mount --help", escaped(name),
                                      did_you_mean("", name, names_like(name))));
    }
    if (equals == item.size() && !option->is_switch()) {
        return failure(EINVAL, format("-o {}: a value is missing", escaped(name)));
    }
    return Setting(option->name, equals == item.size() ? "yes" : item.substr(equals + 1));
}

}  // namespace

Result<std::vector<Setting>> parse_mount_options(std::string_view text, UnknownOptions unknown) {
    std::vector<Setting> settings;
    for (const std::string& item : split_escaped(text)) {
        if (item.empty() || is_for_mount(item.substr(0, item.find('=')))) {
            continue;
        }
        const auto* meaning =
            std::find_if(kMeanings.begin(), kMeanings.end(), [&](const Meaning& each) { return each.word == item; });
        if (meaning != kMeanings.end()) {
            settings.emplace_back(meaning->option, meaning->value);
            continue;
        }
        auto setting = parse_item(item);
        if (setting) {
            settings.push_back(std::move(*setting));
        } else if (setting.error().errno_value != ENOENT || unknown == UnknownOptions::kRefused) {
            return failure(setting.error());
        }
    }
    return settings;
}

}  // namespace ckptfs
