// SPDX-License-Identifier: Apache-2.0
#include "aws/url.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
Result<Url> parse_url(std::string_view text, std::string_view setting) {
    const auto refuse = [text, setting](const char* why) {
        // Without what may be a password.
        const std::size_t at = text.rfind('@');
        return failure(EINVAL, format("{} {}: {}; it looks like https://host[:port]", setting,
                                      escaped(at == std::string_view::npos ? text : text.substr(at)), why));
    };
    const std::size_t scheme_end = text.find("://");
    if (scheme_end == std::string_view::npos) {
        return refuse("no scheme");
    }
    Url url;
    url.scheme = lower_case(text.substr(0, scheme_end));
    if (url.scheme != "http" && url.scheme != "https") {
        return refuse("neither http nor https");
    }
    std::string_view rest = text.substr(scheme_end + 3);
    if (rest.find_first_of("?#@ ") != std::string_view::npos) {
        return refuse("query, fragment or user in it");
    }
    const std::size_t path = std::min(rest.find('/'), rest.size());
    url.path = rest.substr(path);
    while (url.path.ends_with('/')) {
        url.path.pop_back();
    }
    rest = rest.substr(0, path);
    const std::size_t bracket = rest.rfind(']');
    const std::size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
    url.host = lower_case(rest.substr(0, colon));
    if (colon != std::string_view::npos) {
        url.port = rest.substr(colon + 1);
        const bool digits = std::all_of(url.port.begin(), url.port.end(), [](char c) { return c >= '0' && c <= '9'; });
        if (url.port.empty() || url.port.size() > 5 || !digits) {
            return refuse("no port number after ':'");
        }
    }
    if (url.host.empty()) {
        return refuse("no host");
    }
    if ((url.scheme == "http" && url.port == "80") || (url.scheme == "https" && url.port == "443")) {
        url.port.clear();
    }
    return url;
}

}  // namespace ckptfs
