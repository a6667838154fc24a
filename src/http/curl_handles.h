// SPDX-License-Identifier: Apache-2.0
// Owners of libcurl's objects.
#pragma once

#include <curl/curl.h>

#include <memory>

namespace ckptfs {

struct CurlEasyCleanup {
    void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct CurlMultiCleanup {
    void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct CurlHeadersCleanup {
    void operator()(curl_slist* headers) const { curl_slist_free_all(headers); }
};

using CurlEasy = std::unique_ptr<CURL, CurlEasyCleanup>;
using CurlMulti = std::unique_ptr<CURLM, CurlMultiCleanup>;
using CurlHeaders = std::unique_ptr<curl_slist, CurlHeadersCleanup>;

}  // namespace ckptfs
