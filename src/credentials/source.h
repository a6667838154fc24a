// SPDX-License-Identifier: Apache-2.0
// One place that credentials can come from.
//
// Threads: fetch() is called by one thread at a time, which is made for waiting: files are read, programs run and
// services asked while it waits. Every wait ends, at its own limit or soon after a stop is requested.
#pragma once

#include <stop_token>
#include <string>

#include "aws/credentials.h"
#include "ckptfs/status.h"

namespace ckptfs {

class CredentialSource {
public:
    virtual ~CredentialSource() = default;
    // As messages name it: "the environment".
    [[nodiscard]] virtual std::string name() const = 0;
    // Null where nothing is configured here; an Error where something is, and fails.
    [[nodiscard]] virtual Result<SharedCredentials> fetch(const std::stop_token& stop) = 0;
};

}  // namespace ckptfs
