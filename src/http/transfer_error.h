// SPDX-License-Identifier: Apache-2.0
// What libcurl's result codes mean to the rest of ckptfs. Pure.
#pragma once

#include <curl/curl.h>

#include <string_view>

#include "ckptfs/status.h"

namespace ckptfs {

struct FailedTransfer {
    CURLcode code = CURLE_OK;
    // errno of the last failed system call, or 0.
    long os_errno = 0;
    // libcurl's own message; may be empty.
    std::string_view detail;
    // host[:port] of the request.
    std::string_view authority;
    // Bytes of the request may have left this machine.
    bool request_started = false;
    // The URL begins with https:.
    bool over_tls = false;
    // No HTTP header and no TLS handshake was received: the server sent something else, or nothing.
    bool no_answer_begun = false;
};

[[nodiscard]] Error transfer_error(const FailedTransfer& failed);

}  // namespace ckptfs
