// SPDX-License-Identifier: Apache-2.0
// Where a service listens. Pure.
#pragma once

#include <string>
#include <string_view>

#include "ckptfs/status.h"

namespace ckptfs {

struct Url {
    // "http" or "https".
    std::string scheme;
    // In lower case; an IPv6 address in its brackets.
    std::string host;
    // Empty for the scheme's own.
    std::string port;
    // As written, without a trailing '/'.
    std::string path;

    // What the Host header says.
    [[nodiscard]] std::string authority() const { return port.empty() ? host : host + ':' + port; }
};

// Fails (EINVAL) for anything but http or https, and for users, queries and fragments; the message begins with the name
// of the setting that says `text`.
[[nodiscard]] Result<Url> parse_url(std::string_view text, std::string_view setting);

}  // namespace ckptfs
