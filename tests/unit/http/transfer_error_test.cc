// SPDX-License-Identifier: Apache-2.0
#include "http/transfer_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace ckptfs {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

FailedTransfer failed(CURLcode code, std::string_view detail) {
    FailedTransfer transfer;
    transfer.code = code;
    transfer.detail = detail;
    transfer.authority = "host:9000";
    transfer.no_answer_begun = true;
    return transfer;
}

FailedTransfer over_tls(CURLcode code, std::string_view detail) {
    FailedTransfer transfer = failed(code, detail);
    transfer.over_tls = true;
    return transfer;
}

FailedTransfer in_plain_text(CURLcode code) {
    FailedTransfer transfer = failed(code, "");
    transfer.request_started = true;
    return transfer;
}

TEST(TransferError, KnowsAServerWithoutTls) {
    for (const char* detail : {"OpenSSL/3.0.19: error:0A00010B:SSL routines::wrong version number",
                               "OpenSSL/3.2.0: error:0A0000C6:SSL routines::packet length too long",
                               "gnutls_handshake() failed: An unexpected TLS packet was received."}) {
        const Error error = transfer_error(over_tls(CURLE_SSL_CONNECT_ERROR, detail));
        EXPECT_EQ(error.errno_value, EPROTO);
        EXPECT_THAT(error.message, HasSubstr("host:9000: the endpoint does not speak TLS; did you mean http://"));
    }
    EXPECT_THAT(transfer_error(over_tls(CURLE_SSL_CONNECT_ERROR, "no protocols available")).message,
                HasSubstr("the TLS handshake failed"));
    const Error silent = transfer_error(over_tls(CURLE_OPERATION_TIMEDOUT, "SSL connection timeout"));
    EXPECT_EQ(silent.errno_value, ETIMEDOUT);
    EXPECT_THAT(silent.message, HasSubstr("the TLS handshake was not answered in time; is it http://"));
    EXPECT_THAT(transfer_error(over_tls(CURLE_OPERATION_TIMEDOUT, "Connection timeout after 5000 ms")).message,
                HasSubstr("no connection in time"));
}

TEST(TransferError, KnowsAServerThatWantsTls) {
    // It answers with an alert, or hangs up.
    const Error alert = transfer_error(in_plain_text(CURLE_UNSUPPORTED_PROTOCOL));
    EXPECT_EQ(alert.errno_value, EPROTO);
    EXPECT_TRUE(alert.retryable);
    EXPECT_THAT(alert.message, HasSubstr("did you mean https:// instead of http://?"));
    for (const CURLcode code : {CURLE_GOT_NOTHING, CURLE_RECV_ERROR, CURLE_SEND_ERROR}) {
        const Error closed = transfer_error(in_plain_text(code));
        EXPECT_EQ(closed.errno_value, ECONNRESET);
        EXPECT_THAT(closed.message, HasSubstr("if the endpoint speaks TLS, it is https:// instead of http://"));
    }
}

TEST(TransferError, DoesNotDoubtTheProtocolOfAnAnswerThatBegan) {
    FailedTransfer broken = in_plain_text(CURLE_RECV_ERROR);
    broken.no_answer_begun = false;
    EXPECT_THAT(transfer_error(broken).message, Not(HasSubstr("https://")));
    const Error scheme = transfer_error(failed(CURLE_UNSUPPORTED_PROTOCOL, "Protocol \"file\" not supported"));
    EXPECT_EQ(scheme.errno_value, EINVAL);
    EXPECT_FALSE(scheme.retryable);
}

}  // namespace
}  // namespace ckptfs
