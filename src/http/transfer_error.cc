// SPDX-License-Identifier: Apache-2.0
#include "http/transfer_error.h"

#include <cerrno>
#include <string>

#include "base/text.h"

namespace ckptfs {
namespace {

struct Meaning {
    int errno_value;
    bool retryable;
    const char* words;
};

Meaning connect_meaning(long os_errno) {
    switch (os_errno) {
        case ENETUNREACH:
        case EHOSTUNREACH:
        case ENETDOWN:
        case EHOSTDOWN:
            return {EHOSTUNREACH, true, "no route to the host"};
        case ETIMEDOUT:
            return {ETIMEDOUT, true, "no answer to the connection request"};
        default:
            return {ECONNREFUSED, true, "connection refused; check the endpoint's host and port"};
    }
}

Meaning meaning_of(CURLcode code, long os_errno) {
    switch (code) {
        case CURLE_COULDNT_RESOLVE_HOST:
        case CURLE_COULDNT_RESOLVE_PROXY:
            return {EHOSTUNREACH, true, "the host name could not be resolved; check the endpoint and the region"};
        case CURLE_COULDNT_CONNECT:
            return connect_meaning(os_errno);
        case CURLE_OPERATION_TIMEDOUT:
            return {ETIMEDOUT, true, "no connection in time"};
        case CURLE_SEND_ERROR:
        case CURLE_RECV_ERROR:
        case CURLE_GOT_NOTHING:
            return {ECONNRESET, true, "the connection was closed before the response was complete"};
        case CURLE_PARTIAL_FILE:
            return {ECONNRESET, true, "the response ended early"};
        case CURLE_SSL_CONNECT_ERROR:
            return {EPROTO, true, "the TLS handshake failed"};
        case CURLE_PEER_FAILED_VERIFICATION:
            return {EPROTO, false, "the TLS certificate was not accepted; a private authority goes into --ca-bundle"};
        case CURLE_SSL_CACERT_BADFILE:
            return {EPROTO, false, "the file of trusted certificates (--ca-bundle) could not be read"};
        case CURLE_URL_MALFORMAT:
        case CURLE_UNSUPPORTED_PROTOCOL:
            return {EINVAL, false, "the endpoint is not an http:// or https:// URL"};
        case CURLE_OUT_OF_MEMORY:
            return {ENOMEM, true, "out of memory"};
        case CURLE_WEIRD_SERVER_REPLY:
            return {EPROTO, true, "the answer was not HTTP"};
        default:
            return {EIO, true, "the transfer failed"};
    }
}

}  // namespace

Error transfer_error(const FailedTransfer& failed) {
    const Meaning meaning = meaning_of(failed.code, failed.os_errno);
    Error error;
    error.errno_value = meaning.errno_value;
    error.retryable = meaning.retryable;
    error.outcome_unknown = failed.request_started;
    // libcurl shows the whole setting of a proxy that it does not understand, password and all.
    const bool may_tell = !failed.detail.empty() && failed.detail.find('@') == std::string_view::npos;
    const std::string_view detail = may_tell ? failed.detail : curl_easy_strerror(failed.code);
    error.message = format("{}: {} ({})", failed.authority, meaning.words, detail);
    return error;
}

}  // namespace ckptfs
