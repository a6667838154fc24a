// SPDX-License-Identifier: Apache-2.0
#include "credentials/source.h"

#include "base/text.h"

namespace ckptfs {

std::string service_url(const SourceContext& context, const std::string& service, const std::string& host,
                        const std::string& region) {
    for (const std::string& name : {"AWS_ENDPOINT_URL_" + service, std::string("AWS_ENDPOINT_URL")}) {
        if (auto url = context.environment(name.c_str())) {
            return *std::move(url);
        }
    }
    if (!context.endpoint_url.empty()) {
        return context.endpoint_url;
    }
    return format("https://{}.{}.amazonaws.com{}", host, region, region.starts_with("cn-") ? ".cn" : "");
}

}  // namespace ckptfs
