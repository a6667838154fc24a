// SPDX-License-Identifier: Apache-2.0
#include "s3/get_operation.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unit/s3/scripted_sender.h"

namespace ckptfs::s3 {

using namespace testing;
namespace {

struct StreamedAnswer {
    HttpResponse head;
    std::string body;
    // The connection breaks behind the body.
    bool breaks = false;
};

// Answers one attempt after the other, body and all.
class Streams final : public HttpTransport {
public:
    Id send(HttpRequest request, Done done) override {
        last_was_light = request.is_light;
        for (const auto& [name, value] : request.headers) {
            if (name == "range") {
                ranges.push_back(value);
            }
        }
        const StreamedAnswer attempt = std::move(attempts.front());
        attempts.pop_front();
        HttpResponse response = attempt.head;
        if (request.method == "HEAD") {
            ++heads;
            done(std::move(response));
        } else if (response.status / 100 != 2) {
            response.body = attempt.body;
            done(std::move(response));
        } else if (!request.on_head(response) || !request.on_body(as_bytes(attempt.body))) {
            done(failure(ECANCELED, "refused"));
        } else if (attempt.breaks) {
            Error broken;
            broken.errno_value = ECONNRESET;
            broken.retryable = true;
            broken.message = "the connection broke";
            done(failure(std::move(broken)));
        } else {
            done(std::move(response));
        }
        return 1;
    }
    void cancel(Id) override {}
    [[nodiscard]] HttpStatistics statistics() const override { return {}; }

    std::deque<StreamedAnswer> attempts;
    std::vector<std::string> ranges;
    int heads = 0;
    bool last_was_light = false;
};

class Gets : public SenderTest<Streams> {
protected:
    // Of an object of ten bytes; without Content-Length, as a body in chunks is.
    static HttpResponse part(const std::string& range, const std::string& etag = "\"one\"") {
        return {206,
                {{"content-range", "bytes " + range + "/10"},
                 {"etag", etag},
                 {"last-modified", "Sat, 01 Jan 2022 00:00:00 GMT"}},
                ""};
    }
    Result<GetResponse> get(std::uint64_t offset, std::uint64_t length) {
        GetRequest request;
        request.range = ByteRange{offset, length, false};
        return get(std::move(request));
    }
    Result<GetResponse> get(GetRequest request, const std::string& etag = "\"one\"") {
        std::optional<Result<GetResponse>> answer;
        request.key = "k";
        request.if_match = etag;
        request.on_body = [this](ByteSpan bytes) {
            got_ += as_text(bytes);
            return true;
        };
        std::make_shared<GetOperation>(sender_, false, std::move(request), [&](Result<GetResponse> result) {
            answer = std::move(result);
        })->start();
        while (!answer && timer_.waiting() > 0) {
            clock_.move(timer_.run());
        }
        return answer ? std::move(*answer) : Result<GetResponse>(failure(ETIMEDOUT, "no answer"));
    }

    std::string got_;
};

TEST_F(Gets, GoesOnWhereABodyBroke) {
    transport_.attempts = {{part("0-9"), "0123", true}, {part("4-9"), "456789"}};
    const Result<GetResponse> answer = get(0, 10);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(got_, "0123456789");
    EXPECT_EQ(transport_.ranges, (std::vector<std::string>{"bytes=0-9", "bytes=4-9"}));
}

TEST_F(Gets, AnAnswerThatBreaksBehindItsLastByteIsWhole) {
    transport_.attempts = {{part("2-6"), "23456", true}, {part("6-6"), "6"}};
    const Result<GetResponse> answer = get(2, 5);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->offset, 2U);
    EXPECT_EQ(answer->length, 5U);
    EXPECT_EQ(got_, "23456");
    EXPECT_EQ(transport_.ranges.back(), "bytes=6-6");
}

TEST_F(Gets, AnotherVersionBehindABrokenBodyIsNotGoneOnWith) {
    transport_.attempts = {{part("0-9"), "0123", true}, {part("4-9", "\"two\""), "456789"}};
    const Result<GetResponse> answer = get(0, 10);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().errno_value, ESTALE);
    EXPECT_EQ(got_, "0123");
}

// A store that passes If-Match over, and a version that ends before.
TEST_F(Gets, AShorterVersionBehindABrokenBodyIsAnotherVersion) {
    transport_.attempts = {{part("0-9"), "0123", true},
                           {{416, {}, ""}, "<Error><Code>InvalidRange</Code><Message>no</Message></Error>"}};
    const Result<GetResponse> answer = get(0, 10);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().errno_value, ESTALE);
}

// The range lies behind the end of the one that is there.
TEST_F(Gets, AShorterVersionOfAStoreWithoutETagsIsAnotherVersion) {
    for (const char* size : {"0", "2"}) {
        transport_.attempts = {{{416, {}, ""}, "<Error><Code>InvalidRange</Code></Error>"},
                               {{200, {{"content-length", size}}, ""}, ""}};
        GetRequest request;
        request.range = ByteRange{4, 6, false};
        request.if_size = 10;
        const Result<GetResponse> answer = get(std::move(request), "");
        ASSERT_FALSE(answer);
        EXPECT_EQ(answer.error().errno_value, ESTALE);
    }
}

// By a store that says no ETag, and changes twice within the second that it tells, or tells no time.
TEST_F(Gets, AnotherSizeIsAnotherVersionWhereNothingElseTells) {
    constexpr WallTime kModified{std::chrono::seconds(1'640'995'200)};
    for (const bool has_time : {true, false}) {
        for (const std::uint64_t size : {std::uint64_t{10}, std::uint64_t{12}}) {
            HttpResponse head{206, {{"content-range", "bytes 0-9/" + std::to_string(size)}}, ""};
            if (has_time) {
                head.headers.emplace_back("last-modified", "Sat, 01 Jan 2022 00:00:00 GMT");
            }
            // Where nothing at all tells, it is asked for.
            const HttpResponse described{200, {{"etag", "\"one\""}, {"content-length", "10"}}, ""};
            transport_.attempts = {{head, "0123456789"}, {described, ""}};
            transport_.heads = 0;
            got_.clear();
            GetRequest request;
            request.range = ByteRange{0, 10, false};
            request.if_size = 10;
            request.if_modified = kModified;
            bool is_unidentified = false;
            request.on_unidentified = [&] { is_unidentified = got_.empty(); };
            const Result<GetResponse> answer = get(std::move(request));
            EXPECT_EQ(is_unidentified, size == 10 && !has_time);
            EXPECT_EQ(answer ? 0 : answer.error().errno_value, size == 10 ? 0 : ESTALE);
            EXPECT_EQ(got_, size == 10 ? "0123456789" : "");
            EXPECT_EQ(transport_.heads, size == 10 && !has_time ? 1 : 0);
        }
    }
}

TEST_F(Gets, AnotherSizeIsAnotherVersionWhateverItsETag) {
    for (const std::string if_match : {"\"one\"", ""}) {
        const HttpResponse head{206, {{"content-range", "bytes 0-9/12"}, {"etag", "\"one\""}}, ""};
        transport_.attempts = {{head, "0123456789"}};
        got_.clear();
        GetRequest request;
        request.range = ByteRange{0, 10, false};
        request.if_match = if_match;
        request.if_size = 10;
        const Result<GetResponse> answer = get(std::move(request));
        EXPECT_EQ(answer ? 0 : answer.error().errno_value, ESTALE) << if_match;
        EXPECT_EQ(got_, "");
    }
}

// By what it is for: stores that refuse a suffix, and tables that do not fit into one, are asked for plain ranges.
TEST_F(Gets, WhatAnOpenWaitsForDoesNotQueueBehindFileData) {
    constexpr std::uint64_t kKiB = 1024;
    struct Case {
        ByteRange range;
        bool for_open;
        bool is_light;
    };
    const std::vector<Case> cases{
        {{0, 64 * kKiB, false}, false, true},       {{0, 64 * kKiB + 1, false}, false, false},
        {{0, 256 * kKiB, true}, true, true},        {{99, 256 * kKiB, false}, true, true},
        {{0, 1024 * kKiB, false}, true, true},      {{0, 1024 * kKiB + 1, false}, true, false},
        {{4096, 1024 * kKiB, false}, false, false},
    };
    for (const Case& each : cases) {
        transport_.attempts.push_back(
            StreamedAnswer{{404, {}, ""}, "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>"});
        GetRequest request;
        request.range = each.range;
        request.for_open = each.for_open;
        EXPECT_FALSE(get(std::move(request)));
        EXPECT_EQ(transport_.last_was_light, each.is_light) << each.range.length << (each.for_open ? " to open" : "");
    }
}

TEST_F(Gets, AWholeObjectQueuesBehindFileDataUnlessItIsSmall) {
    for (const bool is_small : {false, true}) {
        transport_.attempts.push_back(
            StreamedAnswer{{404, {}, ""}, "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>"});
        GetRequest request;
        request.is_small = is_small;
        EXPECT_FALSE(get(std::move(request)));
        EXPECT_EQ(transport_.last_was_light, is_small);
    }
}

}  // namespace
}  // namespace ckptfs::s3
