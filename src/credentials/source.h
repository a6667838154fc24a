// SPDX-License-Identifier: Apache-2.0
// One place that credentials can come from, and what it is made of.
//
// Threads: fetch() is called by one thread at a time, which is made for waiting: files are read, programs run and
// services asked while it waits. Every wait ends, at its own limit or soon after a stop is requested, except a wait for
// a file system whose server is away.
#pragma once

#include <stop_token>
#include <string>

#include "aws/credentials.h"
#include "aws/profile_file.h"
#include "base/environment.h"
#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "ckptfs/status.h"

namespace ckptfs {

class CredentialSource {
public:
    virtual ~CredentialSource() = default;
    // As messages name it: "the environment".
    [[nodiscard]] virtual std::string name() const = 0;
    // Null if nothing is configured here; an Error if something is, and fails.
    [[nodiscard]] virtual Result<SharedCredentials> fetch(const std::stop_token& stop) = 0;
};

// What sources are made of: plain references and values; everything outlives the sources.
struct SourceContext {
    HttpTransport& transport;
    const Clock& clock;
    Environment environment;
    ProfileFiles files;
    // The store's region: services of the same region are asked.
    std::string region;
    // The profile's own endpoint_url; empty for Amazon's.
    std::string endpoint_url;
};

// Where a service is asked: AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL, the profile's endpoint_url, else
// https://<host>.<region>.amazonaws.com. `service` as in the variable: "STS".
[[nodiscard]] std::string service_url(const SourceContext& context, const std::string& service, const std::string& host,
                                      const std::string& region);

}  // namespace ckptfs
