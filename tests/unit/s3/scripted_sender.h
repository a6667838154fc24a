// SPDX-License-Identifier: Apache-2.0
// Operations on a sender whose store is a function, and on time that a test moves.
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

class ScriptedSenderTest : public ::testing::Test {
public:
    ~ScriptedSenderTest() override { sender_->stop(); }

protected:
    ScriptedSenderTest() {
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
    testing::ScriptedTransport transport_;
    std::shared_ptr<RequestSender> sender_;
};

}  // namespace ckptfs::s3
