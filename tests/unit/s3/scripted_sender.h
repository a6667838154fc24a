// SPDX-License-Identifier: Apache-2.0
// Operations on a sender whose store is what a test makes of it, and on time that a test moves.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "s3/request_sender.h"
#include "support/inline_executor.h"
#include "support/manual_clock.h"
#include "support/no_credentials.h"
#include "support/scripted_transport.h"
#include "support/stepped_timer.h"

namespace ckptfs::s3 {

template <class Transport>
class SenderTest : public ::testing::Test {
public:
    ~SenderTest() override { sender_->stop(); }

protected:
    SenderTest() {
        StoreConfig config;
        config.bucket = "bucket";
        config.no_sign_request = true;
        sender_ = std::make_shared<RequestSender>(
            config, Endpoint{"http", "store", "/bucket", "us-east-1"},
            S3Dependencies{transport_, timer_, clock_, executor_, credentials_, [] { return 0.5; }});
    }

    testing::ManualClock clock_;
    testing::SteppedTimer timer_;
    testing::InlineExecutor executor_;
    testing::NoCredentials credentials_;
    Transport transport_;
    std::shared_ptr<RequestSender> sender_;
};

// The store is a function.
using ScriptedSenderTest = SenderTest<testing::ScriptedTransport>;

}  // namespace ckptfs::s3
