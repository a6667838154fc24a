// SPDX-License-Identifier: Apache-2.0
// What sources are made of. Plain references and values; everything outlives the sources.
#pragma once

#include <string>

#include "aws/profile_file.h"
#include "base/environment.h"
#include "ckptfs/clock.h"
#include "ckptfs/http.h"

namespace ckptfs {

struct SourceContext {
    HttpTransport& transport;
    const Clock& clock;
    Environment environment;
    ProfileFiles files;
    // Of the store: services of the same region are asked.
    std::string region;
    // The profile's own endpoint_url; empty for Amazon's.
    std::string endpoint_url;
};

// Where a service is asked: AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL, the profile's endpoint_url, else
// https://<host>.<region>.amazonaws.com. `service` as in the variable: "STS".
[[nodiscard]] std::string service_url(const SourceContext& context, const std::string& service, const std::string& host,
                                      const std::string& region);

}  // namespace ckptfs
