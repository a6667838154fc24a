// SPDX-License-Identifier: Apache-2.0
#include "ckptfs/bytes.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace ckptfs {
namespace {

Payload payload(std::initializer_list<std::string> pieces) {
    Payload all;
    for (const std::string& piece : pieces) {
        all.append(Payload::from_string(piece));
    }
    return all;
}

TEST(Payload, IsEqualHoweverItIsCut) {
    EXPECT_TRUE(payload({}) == payload({}));
    EXPECT_TRUE(payload({"abcdefg"}) == payload({"abc", "d", "efg"}));
    EXPECT_TRUE(payload({"ab", "cdef", "g"}) == payload({"abc", "d", "efg"}));
    EXPECT_FALSE(payload({"abcdefg"}) == payload({"abc", "d", "efG"}));
    EXPECT_FALSE(payload({"abcd", "efg"}) == payload({"abc", "X", "efg"}));
    EXPECT_FALSE(payload({"abc"}) == payload({"abc", "d"}));
    EXPECT_FALSE(payload({"abc", "d"}) == payload({"abc"}));
    EXPECT_FALSE(payload({}) == payload({"a"}));
}

}  // namespace
}  // namespace ckptfs
