// SPDX-License-Identifier: Apache-2.0
#include "s3/signed_request.h"

#include <string>
#include <utility>

#include "aws/sigv4.h"
#include "aws/times.h"

namespace ckptfs::s3 {

HttpRequest signed_request(const S3Request& request, const HttpHeaders& attempt_headers, const Endpoint& endpoint,
                           const SharedCredentials& credentials, WallTime time, std::string_view payload_hash) {
    HttpRequest http;
    http.method = request.method;
    http.url = endpoint.url(request.key, request.query);
    http.headers = request.headers;
    http.headers.insert(http.headers.end(), attempt_headers.begin(), attempt_headers.end());
    http.body = request.body;
    if (endpoint.requester_pays) {
        http.headers.emplace_back("x-amz-request-payer", "requester");
    }
    if (!credentials) {
        return http;
    }
    http.headers.emplace_back("x-amz-date", basic_iso8601(time));
    http.headers.emplace_back("x-amz-content-sha256", payload_hash);
    if (!credentials->session_token.empty()) {
        http.headers.emplace_back("x-amz-security-token", credentials->session_token.reveal());
    }
    const std::string path = endpoint.path(request.key);
    const std::string query = canonical_query(request.query);
    UnsignedRequest to_sign{request.method, path, query, http.headers, payload_hash};
    // Sent by the transport from the URL.
    to_sign.headers.emplace_back("host", endpoint.authority);
    http.headers.emplace_back("authorization", authorization(to_sign, {time, endpoint.region}, *credentials));
    return http;
}

}  // namespace ckptfs::s3
