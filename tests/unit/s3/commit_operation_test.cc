// SPDX-License-Identifier: Apache-2.0
#include "s3/commit_operation.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unit/s3/scripted_sender.h"

namespace ckptfs::s3 {

using namespace testing;
namespace {

constexpr const char* kSource = "x-amz-copy-source-if-match";
constexpr const char* kGuard = "if-none-match";
const std::string kETag = "\"e\"";

HttpResponse described(const std::string& etag) {
    return {200, {{"content-length", "1"}, {"etag", etag}, {"last-modified", "Sat, 01 Jan 2022 00:00:00 GMT"}}, ""};
}

HttpResponse slow_down() {
    return {503, {}, "<Error><Code>SlowDown</Code></Error>"};
}

// A store with the object "source", which refuses some headers.
class Commits : public ScriptedSenderTest {
protected:
    Commits() {
        transport_.answer_with([this](const HttpRequest& request) { return answer(request); });
    }

    HttpResponse answer(const HttpRequest& request) const {
        if (request.method == "HEAD") {
            const bool exists = request.url.ends_with("source") || target_exists_;
            return exists ? described(kETag) : HttpResponse{404, {}, ""};
        }
        for (const std::string& header : refused_) {
            if (!header_of(request, header).empty()) {
                return {501, {}, "<Error><Code>NotImplemented</Code></Error>"};
            }
        }
        return {200, {}, ""};
    }

    std::optional<Result<PutResponse>> commit(const std::string& operation = "CopyObject") {
        auto call = std::make_shared<Call>();
        call->request.operation = operation;
        call->request.method = "PUT";
        call->request.key = "target";
        call->request.headers = {{kSource, kETag}, {kGuard, "*"}};
        call->precondition_errno = EEXIST;
        const auto answered = std::make_shared<std::optional<Result<PutResponse>>>();
        std::make_shared<CommitOperation>(
            sender_, std::move(call), "",
            [](const HttpResponse&) {
                return PutResponse{kETag, {}};
            },
            [answered](Result<PutResponse> result) { *answered = std::move(result); },
            std::make_shared<VersionPin>(sender_, kSource, "source", kETag))
            ->start();
        while (!*answered && timer_.waiting() > 0) {
            clock_.move(timer_.run());
        }
        return *answered;
    }
    // Which conditions the requests carried that were sent since the last call: "sg", "s", "g", "".
    std::vector<std::string> sent() {
        std::vector<std::string> conditions;
        const std::vector<HttpRequest> asked = transport_.asked();
        for (; seen_ < asked.size(); ++seen_) {
            if (asked[seen_].method == "PUT") {
                conditions.push_back(std::string(header_of(asked[seen_], kSource).empty() ? "" : "s") +
                                     (header_of(asked[seen_], kGuard).empty() ? "" : "g"));
            }
        }
        return conditions;
    }
    using Sent = std::vector<std::string>;

    std::set<std::string> refused_;
    bool target_exists_ = false;
    std::size_t seen_ = 0;
};

TEST_F(Commits, OfTwoConditionsOnlyTheOneThatIsRefusedIsLeftOut) {
    refused_ = {kSource};
    EXPECT_TRUE(commit().value());
    EXPECT_EQ(sent(), (Sent{"sg", "s", "g"}));
    EXPECT_TRUE(commit().value());
    EXPECT_TRUE(commit().value());
    EXPECT_EQ(sent(), (Sent{"sg", "s", "g", "g"}));
}

TEST_F(Commits, ARefusedGuardIsLeftOutAfterTwoRefusals) {
    refused_ = {kGuard};
    EXPECT_TRUE(commit().value());
    EXPECT_TRUE(commit().value());
    EXPECT_EQ(sent(), (Sent{"sg", "s", "sg", "s"}));
    EXPECT_TRUE(commit().value());
    EXPECT_EQ(sent(), (Sent{"s"}));
    // What is known of one operation says nothing of another.
    EXPECT_TRUE(commit("PutObject").value());
    EXPECT_EQ(sent(), (Sent{"sg", "s"}));
}

TEST_F(Commits, WhereBothAreRefusedNeitherIsSent) {
    refused_ = {kGuard, kSource};
    EXPECT_TRUE(commit().value());
    EXPECT_EQ(sent(), (Sent{"sg", "s", "g", ""}));
    EXPECT_TRUE(commit().value());
    EXPECT_TRUE(commit().value());
    EXPECT_EQ(sent().back(), "");
    EXPECT_TRUE(commit().value());
    EXPECT_EQ(sent(), Sent{""});
}

TEST_F(Commits, WithoutItsGuardANameThatIsThereIsNotReplaced) {
    refused_ = {kGuard};
    target_exists_ = true;
    for (int times = 0; times < 3; ++times) {
        EXPECT_EQ(commit().value().error().errno_value, EEXIST);
        EXPECT_EQ(sent(), Sent{"sg"});
    }
    target_exists_ = false;
    EXPECT_TRUE(commit().value());
    EXPECT_TRUE(commit().value());
    target_exists_ = true;
    static_cast<void>(sent());
    EXPECT_EQ(commit().value().error().errno_value, EEXIST);
    EXPECT_EQ(sent(), Sent{});
}

TEST_F(Commits, WithoutItsGuardANameThatIsThereByTheNextAttemptIsNotReplaced) {
    refused_ = {kGuard};
    transport_.answer_with([this](const HttpRequest& request) {
        if (request.method == "PUT" && header_of(request, kGuard).empty()) {
            target_exists_ = true;
            return slow_down();
        }
        return answer(request);
    });
    EXPECT_EQ(commit().value().error().errno_value, EEXIST);
    EXPECT_EQ(sent(), (Sent{"sg", "s"}));
}

TEST_F(Commits, WithoutItsPinASourceThatIsAnotherByTheNextAttemptIsNotCopied) {
    refused_ = {kSource};
    bool is_replaced = false;
    transport_.answer_with([this, &is_replaced](const HttpRequest& request) {
        if (request.method == "HEAD" && is_replaced) {
            return described("\"another\"");
        }
        if (request.method == "PUT" && header_of(request, kSource).empty()) {
            is_replaced = true;
            return slow_down();
        }
        return answer(request);
    });
    EXPECT_EQ(commit().value().error().s3_code, "PreconditionFailed");
    EXPECT_EQ(sent(), (Sent{"sg", "s", "g"}));
}

TEST_F(Commits, WithoutConditionsAFailedAttemptIsRepeatedWhereNothingHasChanged) {
    refused_ = {kGuard, kSource};
    bool has_failed = false;
    transport_.answer_with([this, &has_failed](const HttpRequest& request) {
        const bool is_bare = header_of(request, kGuard).empty() && header_of(request, kSource).empty();
        return request.method == "PUT" && is_bare && !std::exchange(has_failed, true) ? slow_down() : answer(request);
    });
    EXPECT_TRUE(commit().value());
    EXPECT_EQ(sent(), (Sent{"sg", "s", "g", "", ""}));
}

TEST_F(Commits, WhatTookEffectIsNotUndoneByALookThatFails) {
    refused_ = {kSource};
    bool is_copied = false;
    transport_.answer_with([this, &is_copied](const HttpRequest& request) {
        if (request.method == "HEAD" && is_copied) {
            return HttpResponse{400, {}, "<Error><Code>InvalidRequest</Code></Error>"};
        }
        HttpResponse answered = answer(request);
        is_copied = request.method == "PUT" && answered.status == 200;
        return answered;
    });
    const Result<PutResponse> copied = commit().value();
    ASSERT_FALSE(copied);
    EXPECT_TRUE(copied.error().outcome_unknown);
}

TEST_F(Commits, ARefusedAttemptAfterOneWithoutAnAnswerLeavesOpenWhatTookEffect) {
    int attempts = 0;
    transport_.answer_with([this, &attempts](const HttpRequest& request) -> Result<HttpResponse> {
        if (request.method == "HEAD") {
            return attempts > 0 && request.url.ends_with("source") ? described("\"another\"") : answer(request);
        }
        if (attempts++ > 0) {
            return HttpResponse{501, {}, "<Error><Code>NotImplemented</Code></Error>"};
        }
        Error lost;
        lost.retryable = true;
        lost.outcome_unknown = true;
        return failure(std::move(lost));
    });
    const Result<PutResponse> copied = commit().value();
    ASSERT_FALSE(copied);
    EXPECT_TRUE(copied.error().outcome_unknown);
}

TEST_F(Commits, ASuccessWithTheConditionEndsTheDoubt) {
    for (int times = 0; times < 3; ++times) {
        refused_ = {kGuard};
        EXPECT_TRUE(commit().value());
        EXPECT_EQ(sent(), (Sent{"sg", "s"}));
        refused_ = {kSource};
        EXPECT_TRUE(commit().value());
        EXPECT_EQ(sent(), (Sent{"sg", "s", "g"}));
        refused_.clear();
        EXPECT_TRUE(commit().value());
        EXPECT_EQ(sent(), Sent{"sg"});
    }
}

}  // namespace
}  // namespace ckptfs::s3
