// SPDX-License-Identifier: Apache-2.0
#include "s3/request_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace ckptfs::s3 {
namespace {

class Queue : public ::testing::Test {
protected:
    void push(const std::string& key, bool is_light, int attempt = 0) {
        auto call = std::make_shared<Call>();
        call->request.key = key;
        call->is_light = is_light;
        call->attempt = attempt;
        queue_.push(std::move(call));
    }
    void push_many(const std::string& key, bool is_light, int count) {
        for (int i = 0; i < count; ++i) {
            push(key + std::to_string(i), is_light);
        }
    }
    std::string next() {
        const SharedCall call = queue_.next();
        last_ = call ? call : last_;
        return call ? call->request.key : "";
    }
    void halve_limit(int times) {
        for (int time = 0; time < times; ++time) {
            now_ += std::chrono::seconds(1);
            queue_.limit().on_slow_down(now_, now_);
        }
    }
    int start_all() {
        int started = 0;
        while (!next().empty()) {
            ++started;
        }
        return started;
    }

    RequestQueue queue_{16, 2};
    SharedCall last_;
    SteadyTime now_;
};

TEST_F(Queue, LightOnesBeginWhileAllOfBulkHangs) {
    push_many("part", false, 100);
    EXPECT_EQ(start_all(), 14);
    push("stat", true);
    push("list", true);
    push("more", true);
    EXPECT_EQ(next(), "stat");
    EXPECT_EQ(next(), "list");
    EXPECT_EQ(next(), "");
    EXPECT_EQ(queue_.under_way(), 16);
}

TEST_F(Queue, AFloodOfLightOnesTakesTurnsWithBulk) {
    push_many("stat", true, 100);
    push_many("part", false, 100);
    EXPECT_EQ(start_all(), 16);
    // All light: they were there first. From here on each goes when its turn has come.
    queue_.ended(*last_);
    EXPECT_EQ(next(), "stat16");
    for (int i = 0; i < 83; ++i) {
        queue_.ended(*last_);
        next();
    }
    queue_.ended(*last_);
    EXPECT_EQ(next(), "part0");
}

// As where the store hangs at each HEAD.
TEST_F(Queue, AFloodOfLightOnesThatFailTakesTurnsWithBulk) {
    for (int i = 0; i < 100; ++i) {
        push("stat" + std::to_string(i), true, 1);
    }
    push_many("part", false, 100);
    EXPECT_EQ(start_all(), 16);
    int parts = 0;
    for (int i = 0; i < 20; ++i) {
        queue_.ended(*last_);
        parts += next().starts_with("part") ? 1 : 0;
        push("stat", true, 1);
    }
    EXPECT_GE(parts, 9);
}

TEST_F(Queue, ThoseThatFailedBeforeComeFirst) {
    push("new", false);
    push("again", false, 1);
    push("then", false, 3);
    EXPECT_EQ(next(), "again");
    EXPECT_EQ(next(), "then");
    EXPECT_EQ(next(), "new");
}

TEST_F(Queue, BulkGetsItsTurnWhereTheStoreBearsOne) {
    halve_limit(10);
    ASSERT_EQ(queue_.most(), 1);
    push("part", false);
    push("stat", true);
    EXPECT_EQ(next(), "part");
    EXPECT_EQ(next(), "");
    queue_.ended(*last_);
    EXPECT_EQ(next(), "stat");
}

TEST_F(Queue, LightOnesGetTheirTurnWhereTheStoreRefusesBulkOverAndOver) {
    halve_limit(10);
    ASSERT_EQ(queue_.most(), 1);
    push("one", false, 1);
    push("other", false, 1);
    push_many("stat", true, 2);
    std::string order;
    for (int turn = 0; turn < 5; ++turn) {
        order += next() + " ";
        ASSERT_TRUE(last_);
        queue_.ended(*last_);
        if (!last_->is_light) {
            push(last_->request.key, false, 2);
        }
    }
    EXPECT_EQ(order, "one stat0 other stat1 one ");
}

TEST_F(Queue, LightOnesBeginWhileMoreOfBulkHangsThanTheStoreBears) {
    push_many("part", false, 100);
    ASSERT_EQ(start_all(), 14);
    halve_limit(1);
    push_many("stat", true, 3);
    EXPECT_EQ(next(), "stat0");
    EXPECT_EQ(next(), "stat1");
    EXPECT_EQ(next(), "");
    queue_.ended(*last_);
    EXPECT_EQ(next(), "stat2");
}

TEST_F(Queue, DrainsBothLanes) {
    push_many("part", false, 3);
    push_many("stat", true, 2);
    EXPECT_EQ(queue_.waiting(), 5U);
    EXPECT_EQ(queue_.drain().size(), 5U);
    EXPECT_EQ(queue_.waiting(), 0U);
}

TEST(IsLight, ByWhatItCarries) {
    EXPECT_TRUE(is_light(head_request("key")));
    EXPECT_TRUE(is_light(delete_request("key")));
    EXPECT_TRUE(is_light(delete_many_request({"one", "two"})));
    EXPECT_TRUE(is_light(list_request({})));
    EXPECT_TRUE(is_light(create_upload_request({}, {})));
    EXPECT_TRUE(is_light(put_request({}, {})));
    EXPECT_FALSE(is_light(get_request("key")));
    EXPECT_FALSE(is_light(copy_request({}, {})));
    EXPECT_FALSE(is_light(complete_request({})));
    UploadPartRequest part;
    part.body = Payload::from_string(std::string(std::size_t{1} << 20, 'x'));
    EXPECT_FALSE(is_light(upload_part_request({}, part)));
}

}  // namespace
}  // namespace ckptfs::s3
