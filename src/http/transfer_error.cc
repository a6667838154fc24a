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

// Servers that are sent the other protocol reply in their own, hang up, or wait for the rest.
const char* other_protocol(const FailedTransfer& failed) {
    if (!failed.no_answer_begun) {
        return nullptr;
    }
    const auto says = [&](std::string_view words) { return failed.detail.find(words) != std::string_view::npos; };
    if (failed.over_tls) {
        // Messages of OpenSSL before and since 3.2, and of GnuTLS.
        const bool is_plain =
            says("wrong version number") || says("packet length too long") || says("unexpected TLS packet");
        if (failed.code == CURLE_SSL_CONNECT_ERROR && is_plain) {
            return "the endpoint does not speak TLS; did you mean http:// instead of https://?";
        }
        return failed.code == CURLE_OPERATION_TIMEDOUT && says("SSL")
                   ? "the TLS handshake was not answered in time; is it http:// instead of https://?"
                   : nullptr;
    }
    if (!failed.request_started) {
        return nullptr;
    }
    switch (failed.code) {
        case CURLE_UNSUPPORTED_PROTOCOL:
        case CURLE_WEIRD_SERVER_REPLY:
            return "the answer was not HTTP; did you mean https:// instead of http://?";
        case CURLE_SEND_ERROR:
        case CURLE_RECV_ERROR:
        case CURLE_GOT_NOTHING:
            return "the connection was closed without an answer; if the endpoint speaks TLS, it is https:// instead of "
                   "http://";
        default:
            return nullptr;
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
    Meaning meaning = meaning_of(failed.code, failed.os_errno);
    if (const char* words = other_protocol(failed)) {
        meaning.words = words;
        if (failed.code == CURLE_UNSUPPORTED_PROTOCOL) {
            meaning = {EPROTO, true, words};
        }
    }
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
