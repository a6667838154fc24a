// SPDX-License-Identifier: Apache-2.0
// What is told of acknowledged versions, and read from their bodies.
#include "writeback/bodies_on_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ckptfs/bucket_layout.h"
#include "support/eventually.h"
#include "unit/writeback/writeback_fixture.h"
#include "writeback/body_file.h"

namespace ckptfs::testing {
namespace {

using ::testing::ElementsAre;

const std::string kLarge(3'000'000, 'x');

class BodiesOnDiskTest : public WritebackTest {
protected:
    using HeldPtr = std::shared_ptr<const HeldChange>;

    BodiesOnDiskTest() {
        change_environment = [this](WritebackEnvironment& environment) {
            environment.prefix = "job/";
            environment.note_hidden = [](const std::string&, bool) {};
            environment.acknowledged = [this](const HeldPtr& held) { acknowledged.push_back(held); };
        };
    }
    static Result<std::string> content(BodiesOnDisk& bodies, const std::string& key, const std::string& etag) {
        SyncStore sync(bodies);
        std::string content;
        GetRequest request;
        request.key = key;
        request.if_match = etag;
        request.on_body = [&content](ByteSpan bytes) {
            content += as_text(bytes);
            return true;
        };
        return sync.get(std::move(request)).map([&content](const GetResponse&) { return content; });
    }
    [[nodiscard]] std::vector<std::string> told() const {
        std::vector<std::string> told;
        for (const HeldPtr& held : acknowledged) {
            told.push_back((held->removes() ? "-" : held->body.is_local() ? "" : "~") + held->key());
        }
        return told;
    }

    // By the mount's calls, one at a time.
    std::vector<HeldPtr> acknowledged;
};

TEST_F(BodiesOnDiskTest, WhatIsAcknowledgedIsToldInOrder) {
    auto made = mount();
    ASSERT_TRUE(made->put("job/a", kLarge));
    ASSERT_TRUE(made->copy("job/a", "job/b"));
    ASSERT_TRUE((*made)->remove("job/a", ""));
    ASSERT_TRUE(made->put("job/" + std::string(kTemporaryPrefix) + "hidden", kLarge));
    EXPECT_THAT(told(), ElementsAre("job/a", "job/b", "-job/a"));
    acknowledged.clear();
    kill(std::move(made));
    const auto next = mount();
    EXPECT_THAT(told(), ElementsAre());
    next->unsent().start();
    EXPECT_THAT(told(), ElementsAre("job/a", "job/b", "-job/a"));
    next->wait_until_sent();
    // Of what is in the bucket.
    ASSERT_TRUE(next->copy("job/b", "job/c"));
    EXPECT_EQ(told().back(), "~job/c");
}

TEST_F(BodiesOnDiskTest, AreReadAsLongAsTheyAreHeld) {
    const auto made = started();
    BodiesOnDisk bodies(**made);
    const std::string etag = made->put("job/a", kLarge)->etag;
    bodies.add(acknowledged.front());
    made->wait_until_sent();
    ASSERT_TRUE(made->put("job/a", "another"));
    made->wait_until_sent();
    EXPECT_EQ(content(bodies, "job/a", etag), kLarge);
    EXPECT_EQ(made->content("job/a"), "another");
    EXPECT_EQ(made->content("job/a", std::nullopt, etag).error().errno_value, ESTALE);
    EXPECT_EQ(content(bodies, "job/a", "\"other\"").error().errno_value, ESTALE);
    acknowledged.clear();
    // The read lets go of it when it has answered.
    EXPECT_TRUE(eventually([&] { return !content(bodies, "job/a", etag).has_value(); }));
}

TEST_F(BodiesOnDiskTest, OfTwoWithTheSameNameEitherMayGoFirst) {
    const auto made = started();
    BodiesOnDisk bodies(**made);
    bucket.hold(Operation::kPut);
    const std::string etag = made->put("job/a", kLarge)->etag;
    // And back, which has the ETag of what it was made of while that was not sent.
    ASSERT_TRUE(made->copy("job/a", "job/b"));
    ASSERT_TRUE(made->copy("job/b", "job/a"));
    ASSERT_EQ(told(), (std::vector<std::string>{"job/a", "job/b", "job/a"}));
    bodies.add(acknowledged[0]);
    bodies.add(acknowledged[2]);
    const std::weak_ptr<const HeldChange> second = acknowledged[2];
    acknowledged.erase(acknowledged.begin() + 1, acknowledged.end());
    bucket.release(Operation::kPut);
    made->wait_until_sent();
    ASSERT_TRUE(eventually([&] { return second.expired(); }));
    EXPECT_EQ(content(bodies, "job/a", etag), kLarge);
}

// Another thread may have removed what there was between the two.
TEST(RetryWithRoom, TriesOnceMoreAfterNothingWasFound) {
    int tries = 0;
    int rooms = 2;
    retry_with_room([&] { return rooms-- > 0; },
                    [&] {
                        ++tries;
                        return false;
                    });
    EXPECT_EQ(tries, 4);
    retry_with_room(nullptr, [&] {
        ++tries;
        return false;
    });
    EXPECT_EQ(tries, 5);
    retry_with_room([] { return true; }, [&] { return ++tries == 7; });
    EXPECT_EQ(tries, 7);
}

}  // namespace
}  // namespace ckptfs::testing
