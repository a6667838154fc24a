// SPDX-License-Identifier: Apache-2.0
#include "config/values.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/numbers.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// uid_t and gid_t; the largest value means "none" to chown(2).
constexpr std::uint64_t kLargestId = std::numeric_limits<uid_t>::max() - 1;

using Unit = std::pair<std::string_view, std::uint64_t>;

template <std::size_t N>
std::optional<std::uint64_t> with_unit(std::string_view text, const std::array<Unit, N>& units, std::uint64_t largest) {
    const auto number = take_number<std::uint64_t>(text);
    const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& each) { return each.first == text; });
    if (!number || unit == units.end() || *number > largest / unit->second) {
        return std::nullopt;
    }
    return *number * unit->second;
}

Failure unexpected(std::string_view text, std::string_view expected) {
    return failure(EINVAL, format("\"{}\" is not {}", escaped(text), expected));
}

}  // namespace

Result<std::uint64_t> parse_number(std::string_view text, std::uint64_t smallest, std::uint64_t largest) {
    const auto number = whole_number<std::uint64_t>(text);
    if (!number || *number < smallest || *number > largest) {
        return unexpected(text, format("a number from {} to {}", smallest, largest));
    }
    return *number;
}

Result<std::uint64_t> parse_size(std::string_view text) {
    constexpr std::uint64_t kKilo = 1024;
    constexpr auto kUnits = std::to_array<Unit>({{"", 1},
                                                 {"K", kKilo},
                                                 {"KiB", kKilo},
                                                 {"M", kKilo * kKilo},
                                                 {"MiB", kKilo * kKilo},
                                                 {"G", kKilo * kKilo * kKilo},
                                                 {"GiB", kKilo * kKilo * kKilo},
                                                 {"T", kKilo * kKilo * kKilo * kKilo},
                                                 {"TiB", kKilo * kKilo * kKilo * kKilo}});
    const auto size = with_unit(text, kUnits, std::numeric_limits<std::int64_t>::max());
    if (!size) {
        return unexpected(text, "a size such as 64M or 1G");
    }
    return *size;
}

Result<Milliseconds> parse_duration(std::string_view text) {
    constexpr auto kUnits = std::to_array<Unit>({{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}});
    // A year: far below what the clock's arithmetic holds.
    constexpr std::uint64_t kLongest = std::uint64_t{365} * 24 * 3'600'000;
    const auto duration = with_unit(text, kUnits, kLongest);
    if (!duration) {
        return unexpected(text, "a time such as 30s, 5m or 500ms");
    }
    return Milliseconds(*duration);
}

Result<mode_t> parse_mode(std::string_view text) {
    const auto mode = whole_number<unsigned>(text, 8);
    if (!mode || *mode > 0777) {
        return unexpected(text, "an octal mode such as 0644");
    }
    return static_cast<mode_t>(*mode);
}

// Called while only one thread runs: getpwnam(3) and getgrnam(3) return shared memory.
Result<uid_t> parse_user(std::string_view text) {
    if (const auto number = parse_number(text, 0, kLargestId)) {
        return static_cast<uid_t>(*number);
    }
    const passwd* user = getpwnam(std::string(text).c_str());
    return user == nullptr ? Result<uid_t>(unexpected(text, "a user of this machine")) : user->pw_uid;
}

Result<gid_t> parse_group(std::string_view text) {
    if (const auto number = parse_number(text, 0, kLargestId)) {
        return static_cast<gid_t>(*number);
    }
    const group* found = getgrnam(std::string(text).c_str());
    return found == nullptr ? Result<gid_t>(unexpected(text, "a group of this machine")) : found->gr_gid;
}

Result<bool> parse_switch(std::string_view text) {
    for (const std::string_view yes : {"yes", "true", "on", "1"}) {
        if (text == yes) {
            return true;
        }
    }
    for (const std::string_view no : {"no", "false", "off", "0"}) {
        if (text == no) {
            return false;
        }
    }
    return unexpected(text, "yes or no");
}

std::vector<std::string> parse_list(std::string_view text) {
    std::vector<std::string> items;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(','), text.size());
        if (end > 0) {
            items.emplace_back(text.substr(0, end));
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return items;
}

Result<std::string> parse_address(const std::string& text) {
    const std::size_t colon = text.rfind(':');
    const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
    const std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
    const bool digits = !port.empty() && port.size() <= 5 &&
                        std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
    // civetweb would accept several addresses, and TLS, in the same text.
    const bool plain = host.find_first_of(", +/") == std::string::npos &&
                       (host.find(':') == std::string::npos || (host.front() == '[' && host.back() == ']'));
    if (!digits || !plain || std::stoi(port) > 65535) {
        return failure(EINVAL,
                       format("\"{}\" is not an address: use PORT, HOST:PORT or [ADDRESS]:PORT", escaped(text)));
    }
    return format("{}:{}", host.empty() ? "127.0.0.1" : host, port);
}

}  // namespace ckptfs
