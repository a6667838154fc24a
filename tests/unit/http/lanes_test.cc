// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "unit/http/raw_server.h"
#include "unit/http/sending.h"

namespace ckptfs {
namespace {

TEST(Transport, LightRequestsGoThroughWhileAllOthersHang) {
    RawServer server([](RawConnection& connection) {
        while (const auto request = connection.read_request()) {
            if (request->head.find("/light") != std::string::npos) {
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    CurlTransportOptions options;
    options.threads = 2;
    options.max_connections = 9;
    options.light_connections = 1;
    const auto transport = std::move(*make_curl_transport(options));
    std::vector<Sent> hanging;
    for (int i = 0; i < 20; ++i) {
        hanging.push_back(send(*transport, get_request(server.url("/hang"))));
    }
    for (int i = 0; i < 5; ++i) {
        HttpRequest request = get_request(server.url("/light"));
        request.is_light = true;
        auto light = send(*transport, std::move(request));
        EXPECT_TRUE(wait(light.outcome).has_value());
    }
    EXPECT_LE(server.connections(), 9);
}

}  // namespace
}  // namespace ckptfs
