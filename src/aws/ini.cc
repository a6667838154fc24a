// SPDX-License-Identifier: Apache-2.0
#include "aws/ini.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"

namespace ckptfs {
namespace {

std::string_view without_comment(std::string_view line) {
    for (std::size_t i = 0; i < line.size(); ++i) {
        const bool begins = line[i] == '#' || line[i] == ';';
        if (begins && (i == 0 || is_blank(line[i - 1]))) {
            return line.substr(0, i);
        }
    }
    return line;
}

// "profile   'my train'" is what "profile my train" is.
std::string section_name(std::string_view written) {
    std::string name;
    for (const char c : trimmed(written)) {
        const bool blank = is_blank(c);
        if (blank && name.ends_with(' ')) {
            continue;
        }
        if (c != '"' && c != '\'') {
            name += blank ? ' ' : c;
        }
    }
    return name;
}

std::optional<std::pair<std::string, std::string>> setting(std::string_view line) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
        return std::nullopt;
    }
    return std::pair(lower_case(trimmed(line.substr(0, equals))), std::string(trimmed(line.substr(equals + 1))));
}

}  // namespace

Result<IniFile> parse_ini(std::string_view text) {
    IniFile file;
    IniSection* section = nullptr;
    for (int number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view whole = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const std::string_view line = trimmed(without_comment(whole));
        const bool indented = section != nullptr && (whole.starts_with(' ') || whole.starts_with('\t'));
        if (line.empty() || indented) {
            continue;
        }
        if (line.starts_with('[') && line.ends_with(']')) {
            section = &file[section_name(line.substr(1, line.size() - 2))];
            continue;
        }
        auto entry = setting(line);
        if (section == nullptr || !entry || entry->first.empty()) {
            return failure(EINVAL, format("error in line {}", number));
        }
        section->insert_or_assign(std::move(entry->first), std::move(entry->second));
    }
    return file;
}

}  // namespace ckptfs
