// SPDX-License-Identifier: Apache-2.0
#include "staged/hidden_key.h"

#include <gtest/gtest.h>

#include <string>

#include "base/uuid.h"
#include "ckptfs/bucket_layout.h"

namespace ckptfs::testing {
namespace {

const HiddenPlace kPlace{"run/", random_uuid()};

TEST(HiddenKey, TellsWhatTheFileIsToBecomeAndWhoWritesIt) {
    for (const std::string& key : {std::string("run/model.pt"), std::string("run/step-1/rank 0/model.pt")}) {
        const std::string hidden = new_hidden_key(kPlace, key);
        EXPECT_NE(hidden, new_hidden_key(kPlace, key));
        const auto file = parse_hidden_key("run/", hidden);
        ASSERT_TRUE(file) << hidden;
        EXPECT_EQ(file->key, key);
        EXPECT_EQ(file->mount_id, kPlace.mount_id);
    }
}

TEST(HiddenKey, IsFoundByTheDirectoriesAboveIt) {
    const std::string hidden = new_hidden_key(kPlace, "run/step-1/rank/model.pt");
    for (const char* directory : {"run/", "run/step-1/", "run/step-1/rank/"}) {
        EXPECT_TRUE(hidden.starts_with(hidden_prefix("run/", directory))) << directory;
    }
    EXPECT_FALSE(hidden.starts_with(hidden_prefix("run/", "run/step-2/")));
    EXPECT_TRUE(new_hidden_key({"", random_uuid()}, "step/model").starts_with(hidden_prefix("", "step/")));
}

TEST(HiddenKey, ThatWouldBeTooLongIsHiddenFromAll) {
    const std::string key = "run/" + std::string(kMaxKeyBytes - 4 - 6, 'd') + "/model";
    const std::string hidden = new_hidden_key(kPlace, key);
    EXPECT_LE(hidden.size(), kMaxKeyBytes);
    EXPECT_TRUE(hidden.starts_with("run/.ckptfs/tmp/"));
    EXPECT_TRUE(hidden.ends_with("/model"));
    EXPECT_FALSE(parse_hidden_key("run/", hidden));
}

TEST(HiddenKey, OfAFileWithoutANameStandsForNoFile) {
    const std::string hidden = new_unseen_key(kPlace, "run/step/model.pt");
    EXPECT_TRUE(hidden.starts_with("run/.ckptfs/tmp/"));
    EXPECT_FALSE(parse_hidden_key("run/", hidden));
}

TEST(HiddenKey, OfOthersStandsForNoFile) {
    const std::string tail = "file-" + random_uuid() + "-" + random_uuid();
    EXPECT_TRUE(parse_hidden_key("run/", "run/.ckptfs/tmp/" + tail + "/x"));
    for (const std::string& hidden :
         {"run/.ckptfs/tmp/" + tail, "run/.ckptfs/tmp/" + tail + "/", "run/.ckptfs/tmp/" + tail + "1/x",
          std::string("run/.ckptfs/tmp/doctor-1/x"), std::string("run/.ckptfs/tmp/x"), "run/" + tail + "/x",
          "other/.ckptfs/tmp/" + tail + "/x", std::string()}) {
        EXPECT_FALSE(parse_hidden_key("run/", hidden)) << hidden;
    }
}

}  // namespace
}  // namespace ckptfs::testing
