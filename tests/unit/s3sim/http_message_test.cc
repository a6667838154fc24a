// SPDX-License-Identifier: Apache-2.0
#include "s3sim/http_message.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

TEST(ParseHead, ReadsLineAndHeaders) {
    const std::string text = "PUT /b/k%20?x=1&y HTTP/1.1\r\nHost: h:1\r\nX-Amz-Meta-A:  v w \r\n\r\nbody";
    const auto parsed = parse_head(text);
    const auto* head = std::get_if<HeadParsed>(&parsed);
    ASSERT_NE(head, nullptr);
    EXPECT_EQ(head->request.method, "PUT");
    EXPECT_EQ(head->request.path, "/b/k%20");
    EXPECT_EQ(head->request.query, "x=1&y");
    EXPECT_EQ(head->request.header("host"), "h:1");
    EXPECT_EQ(head->request.header("x-amz-meta-a"), "v w");
    EXPECT_EQ(text.substr(head->size), "body");
    EXPECT_TRUE(head->request.keep_alive());
}

TEST(ParseHead, TakesTheFormForProxies) {
    const auto parsed = parse_head("GET http://host:80/b/k?q HTTP/1.1\r\n\r\n");
    const auto* head = std::get_if<HeadParsed>(&parsed);
    ASSERT_NE(head, nullptr);
    EXPECT_EQ(head->request.path, "/b/k");
}

TEST(ParseHead, WaitsForTheRest) {
    EXPECT_TRUE(std::holds_alternative<HeadIncomplete>(parse_head("GET / HTTP/1.1\r\nHost: x\r\n")));
}

TEST(ParseHead, RefusesWhatIsNotHttp) {
    for (const std::string& wrong :
         {std::string("\x16\x03\x01"), std::string("GET /\r\n\r\n"), std::string("GET / HTTP/2\r\n\r\n"),
          std::string("GET x HTTP/1.1\r\n\r\n"), std::string("GET / HTTP/1.1\r\nno colon\r\n\r\n"),
          std::string("GET / HTTP/1.1\r\nbad name: x\r\n\r\n"), std::string(kLargestHead, 'a')}) {
        EXPECT_TRUE(std::holds_alternative<HeadMalformed>(parse_head(wrong))) << wrong.substr(0, 30);
    }
}

TEST(ParseNumber, TakesWholeNumbersThatFit) {
    EXPECT_EQ(parse_number("18446744073709551615"), 18446744073709551615U);
    for (const char* wrong : {"", "-1", "+1", "1x", " 1", "18446744073709551616"}) {
        EXPECT_FALSE(parse_number(wrong)) << wrong;
    }
}

}  // namespace
}  // namespace ckptfs::s3sim
