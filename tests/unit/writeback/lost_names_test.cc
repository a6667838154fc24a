// SPDX-License-Identifier: Apache-2.0
// Names that were made here, where another client has made them first: they are given up, with what was made of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

#include "unit/writeback/told_to_others_fixture.h"

namespace ckptfs::testing {
namespace {

using LostNames = ToldToOthers;

PutRequest claim(const std::string& key) {
    PutRequest request;
    request.key = key;
    request.body = Payload::from_string("here");
    request.if_none_match = true;
    return request;
}

// As one that several nodes claim: it holds nothing back, and its node is told.
TEST_F(LostNames, ANameThatIsMadeOnceIsLostAndTold) {
    const auto made = mount();
    ASSERT_TRUE((*made)->put(claim("p/claim")));
    ASSERT_TRUE(made->put("p/d/a", kLarge));
    bucket.put_object("p/claim", "another's");
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_TRUE(lost().contains("p/claim"));
    EXPECT_EQ(made->content("p/claim"), "another's");
    EXPECT_EQ(bucket.content("p/d/a"), kLarge);
}

// Two nodes update a pointer by a temporary name that is the same on both.
TEST_F(LostNames, WhatIsMadeOfALostNameIsLostWithIt) {
    const auto made = mount();
    ASSERT_TRUE((*made)->put(claim("p/latest.tmp")));
    ASSERT_TRUE(made->copy("p/latest.tmp", "p/latest"));
    ASSERT_TRUE((*made)->remove("p/latest.tmp", (*made)->head("p/latest.tmp")->etag));
    ASSERT_TRUE(made->put("p/d/a", kLarge));
    bucket.put_object("p/latest.tmp", "another's");
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_TRUE(lost().contains("p/latest"));
    EXPECT_FALSE(bucket.exists("p/latest"));
    EXPECT_EQ(bucket.content("p/latest.tmp"), "another's");
    EXPECT_EQ(bucket.content("p/d/a"), kLarge);
}

// It waits for room while the name is lost.
TEST_F(LostNames, WhatIsMadeOfALostNameLaterHoldsNothingBack) {
    const auto made = mount(1);
    ASSERT_TRUE((*made)->put(claim("p/latest.tmp")));
    auto copied = std::async(std::launch::async, [&] { return made->copy("p/latest.tmp", "p/latest"); });
    ASSERT_TRUE(eventually([&] { return made->unsent().status().waiting == 1; }));
    bucket.put_object("p/latest.tmp", "another's");
    made->unsent().start();
    // Not acknowledged: the next mount would not know what it is made of.
    const Result<PutResponse> copy = copied.get();
    ASSERT_FALSE(copy);
    EXPECT_EQ(copy.error().errno_value, ESTALE);
    ASSERT_TRUE(made->put("p/d/a", kLarge));
    made->wait_until_sent();
    EXPECT_FALSE(bucket.exists("p/latest"));
    EXPECT_EQ(bucket.content("p/d/a"), kLarge);
}

// Its source is lost after it was handed to the log, and before that has written it.
TEST_F(LostNames, WhatIsAcknowledgedWhileItsSourceIsLostHoldsNothingBackAfterAKill) {
    std::unique_ptr<WritebackMount> made;
    std::promise<void> lost;
    const auto before = change_environment;
    change_environment = [&](WritebackEnvironment& environment) {
        before(environment);
        environment.acknowledged = [&](const auto& held) {
            if (held->key() == "p/latest") {
                made->unsent().start();
                lost.get_future().wait();
            }
        };
        environment.lost = [&](const std::string& key, const Error&) {
            if (key == "p/latest.tmp") {
                lost.set_value();
            }
        };
    };
    made = mount();
    ASSERT_TRUE((*made)->put(claim("p/latest.tmp")));
    bucket.put_object("p/latest.tmp", "another's");
    bucket.hold(Operation::kCopy);
    EXPECT_TRUE(made->copy("p/latest.tmp", "p/latest"));
    EXPECT_TRUE(eventually([&] { return made->unsent().status().changes == 0; }));
    change_environment = before;
    kill(std::move(made));
    bucket.release(Operation::kCopy);
    made = started();
    made->wait_until_sent();
    EXPECT_FALSE(bucket.exists("p/latest"));
}

}  // namespace
}  // namespace ckptfs::testing
