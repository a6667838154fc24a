// SPDX-License-Identifier: Apache-2.0
#include "credentials/refreshing_provider.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <queue>
#include <utility>

#include "ckptfs/log.h"
#include "support/eventually.h"
#include "support/manual_clock.h"

namespace ckptfs {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::eventually;
using testing::ManualClock;

// Answers what the test tells it, and waits where it is told nothing.
class ScriptedSource final : public CredentialSource {
public:
    struct Script {
        std::mutex mutex;
        std::condition_variable changed;
        std::queue<Result<SharedCredentials>> answers;
        std::atomic<int> fetches = 0;
        std::atomic<int> at_once = 0;
        std::atomic<int> most_at_once = 0;

        void answer(Result<SharedCredentials> next) {
            const std::lock_guard lock(mutex);
            answers.push(std::move(next));
            changed.notify_all();
        }
    };

    explicit ScriptedSource(std::shared_ptr<Script> script) : script_(std::move(script)) {}

    [[nodiscard]] std::string name() const override { return "a script"; }
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override {
        ++script_->fetches;
        script_->most_at_once = std::max(script_->most_at_once.load(), ++script_->at_once);
        const std::stop_callback wake(stop, [this] { script_->answer(failure(ECANCELED, "stopped")); });
        std::unique_lock lock(script_->mutex);
        script_->changed.wait(lock, [this] { return !script_->answers.empty(); });
        Result<SharedCredentials> answer = std::move(script_->answers.front());
        script_->answers.pop();
        --script_->at_once;
        return answer;
    }

private:
    const std::shared_ptr<Script> script_;
};

class RefreshingProviderTest : public ::testing::Test {
protected:
    using Answer = std::future<Result<SharedCredentials>>;

    [[nodiscard]] SharedCredentials keys(const std::string& id, std::optional<Milliseconds> valid_for) const {
        std::optional<WallTime> expires;
        if (valid_for) {
            expires = clock_.wall_now() + *valid_for;
        }
        return std::make_shared<const Credentials>(Credentials{id, Secret("secret"), Secret("token"), expires});
    }

    Answer ask() {
        auto promise = std::make_shared<std::promise<Result<SharedCredentials>>>();
        provider_->get([promise](Result<SharedCredentials> answer) { promise->set_value(std::move(answer)); });
        return promise->get_future();
    }

    static Result<SharedCredentials> wait(Answer answer) {
        if (answer.wait_for(seconds(30)) != std::future_status::ready) {
            return failure(ETIMEDOUT, "no answer within 30 seconds");
        }
        return answer.get();
    }

    static bool is_ready(const Answer& answer) { return answer.wait_for(seconds(0)) == std::future_status::ready; }

    std::string id() {
        const auto answer = wait(ask());
        return answer ? (*answer)->access_key_id : answer.error().message;
    }

    ManualClock clock_;
    std::shared_ptr<ScriptedSource::Script> script_ = std::make_shared<ScriptedSource::Script>();
    std::unique_ptr<RefreshingProvider> provider_ =
        std::make_unique<RefreshingProvider>(std::make_unique<ScriptedSource>(script_), clock_, [] { return 0.0; });
};

TEST_F(RefreshingProviderTest, OneFetchAnswersEveryoneWhoWaits) {
    std::vector<Answer> answers;
    for (int i = 0; i < 10; ++i) {
        answers.push_back(ask());
    }
    EXPECT_FALSE(is_ready(answers.front()));
    script_->answer(keys("first", hours(1)));
    for (Answer& answer : answers) {
        EXPECT_EQ((*wait(std::move(answer)))->access_key_id, "first");
    }
    EXPECT_EQ(script_->fetches, 1);
}

TEST_F(RefreshingProviderTest, LongTermKeysAreAskedForOnce) {
    script_->answer(keys("first", std::nullopt));
    EXPECT_EQ(id(), "first");
    clock_.move(hours(10'000));
    EXPECT_TRUE(is_ready(ask()));
    EXPECT_EQ(script_->fetches, 1);
}

TEST_F(RefreshingProviderTest, RefreshedBeforeTheyExpireWhileTheOldOnesAreUsed) {
    script_->answer(keys("first", hours(1)));
    EXPECT_EQ(id(), "first");
    clock_.move(minutes(44));
    EXPECT_TRUE(is_ready(ask()));
    EXPECT_EQ(script_->fetches, 1);
    clock_.move(minutes(2));
    EXPECT_EQ(id(), "first");
    ASSERT_TRUE(eventually([this] { return script_->fetches == 2; }));
    EXPECT_EQ(id(), "first");
    script_->answer(keys("second", hours(1)));
    EXPECT_TRUE(eventually([this] { return id() == "second"; }));
    EXPECT_EQ(script_->fetches, 2);
    EXPECT_EQ(script_->most_at_once, 1);
}

TEST_F(RefreshingProviderTest, KeptWhileTheSourceFailsAndTheyAreValid) {
    script_->answer(keys("first", hours(1)));
    EXPECT_EQ(id(), "first");
    clock_.move(minutes(50));
    EXPECT_EQ(id(), "first");
    const auto warnings = log_counts().warnings;
    script_->answer(failure(EIO, "the service is down"));
    // Left alone for a while, from the warning on, then asked again.
    ASSERT_TRUE(eventually([&] { return log_counts().warnings > warnings; }));
    EXPECT_EQ(id(), "first");
    clock_.move(minutes(1));
    ASSERT_TRUE(eventually([this] { return id() == "first" && script_->fetches == 3; }));
    script_->answer(keys("second", hours(1)));
    EXPECT_TRUE(eventually([this] { return id() == "second"; }));
}

TEST_F(RefreshingProviderTest, ExpiredOnesAreNotUsed) {
    script_->answer(keys("first", hours(1)));
    EXPECT_EQ(id(), "first");
    clock_.move(hours(2));
    Answer waiting = ask();
    ASSERT_TRUE(eventually([this] { return script_->fetches == 2; }));
    EXPECT_FALSE(is_ready(waiting));
    script_->answer(failure(EIO, "the service is down"));
    const auto failed = wait(std::move(waiting));
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().message, "the service is down");
    // It had worked before: the request is to be tried again.
    EXPECT_TRUE(failed.error().retryable);
    // Meanwhile the source is left alone.
    EXPECT_TRUE(is_ready(ask()));
    EXPECT_EQ(script_->fetches, 2);
    clock_.move(minutes(1));
    script_->answer(keys("second", hours(1)));
    EXPECT_EQ(id(), "second");
}

TEST_F(RefreshingProviderTest, AFirstFailureIsAsFinalAsTheSourceSays) {
    script_->answer(failure(EACCES, "no such profile"));
    const auto failed = wait(ask());
    ASSERT_FALSE(failed.has_value());
    EXPECT_FALSE(failed.error().retryable);
}

TEST_F(RefreshingProviderTest, RefusedOnesAreFetchedAnew) {
    script_->answer(keys("first", hours(1)));
    const SharedCredentials first = *wait(ask());
    provider_->refuse(first);
    Answer waiting = ask();
    script_->answer(keys("second", hours(1)));
    const SharedCredentials second = *wait(std::move(waiting));
    EXPECT_EQ(second->access_key_id, "second");
    // What another request had refused before tells nothing of these.
    provider_->refuse(first);
    EXPECT_EQ(*wait(ask()), second);
    EXPECT_EQ(script_->fetches, 2);
}

TEST_F(RefreshingProviderTest, ManyRefusalsOfOneKeyAskTheSourceOnce) {
    script_->answer(keys("first", std::nullopt));
    const SharedCredentials first = *wait(ask());
    provider_->accept(first);
    std::vector<Answer> answers;
    for (int i = 0; i < 50; ++i) {
        provider_->refuse(first);
        answers.push_back(ask());
    }
    script_->answer(keys("first", std::nullopt));
    for (Answer& answer : answers) {
        EXPECT_EQ(**wait(std::move(answer)), *first);
    }
    EXPECT_EQ(script_->fetches, 2);
}

TEST_F(RefreshingProviderTest, ASourceThatGivesTheRefusedOnesAgainIsLeftAloneForAWhile) {
    script_->answer(keys("first", std::nullopt));
    SharedCredentials held = *wait(ask());
    provider_->accept(held);
    provider_->refuse(held);
    script_->answer(keys("first", std::nullopt));
    held = *wait(ask());
    for (int i = 0; i < 50; ++i) {
        provider_->refuse(held);
        Answer answer = ask();
        ASSERT_TRUE(is_ready(answer));
        EXPECT_EQ(*wait(std::move(answer)), held);
    }
    EXPECT_EQ(script_->fetches, 2);
    clock_.move(seconds(1));
    script_->answer(keys("second", std::nullopt));
    EXPECT_EQ(id(), "second");
    EXPECT_EQ(script_->fetches, 3);
}

TEST_F(RefreshingProviderTest, ThatSomeWereAcceptedStaysWhenTheyAreRefused) {
    script_->answer(keys("first", std::nullopt));
    const SharedCredentials first = *wait(ask());
    EXPECT_FALSE(provider_->has_accepted());
    provider_->accept(first);
    provider_->refuse(first);
    EXPECT_TRUE(provider_->has_accepted());
}

TEST_F(RefreshingProviderTest, OnesThatAreAcceptedAgainAreNotFetchedAgain) {
    script_->answer(keys("first", std::nullopt));
    SharedCredentials held = *wait(ask());
    provider_->accept(held);
    provider_->refuse(held);
    script_->answer(keys("first", std::nullopt));
    EXPECT_EQ(id(), "first");
    clock_.move(minutes(1));
    EXPECT_TRUE(is_ready(ask()));
    EXPECT_EQ(script_->fetches, 2);
}

TEST_F(RefreshingProviderTest, EverNewOnesThatAreAllRefusedAreNotFetchedForEachRequest) {
    script_->answer(keys("0", std::nullopt));
    provider_->accept(*wait(ask()));
    for (int i = 1; i <= 100; ++i) {
        script_->answer(keys(std::to_string(i), std::nullopt));
    }
    for (int i = 0; i < 100; ++i) {
        provider_->refuse(*wait(ask()));
        clock_.move(Milliseconds(100));
    }
    EXPECT_LE(script_->fetches, 6);
}

TEST_F(RefreshingProviderTest, WhatWasRefusedIsUsedWhileItsSourceFails) {
    script_->answer(keys("first", std::nullopt));
    const SharedCredentials first = *wait(ask());
    provider_->accept(first);
    provider_->refuse(first);
    script_->answer(failure(EACCES, "the file is not whole"));
    EXPECT_TRUE(wait(ask()).error().retryable);
    // The store may have erred.
    EXPECT_EQ(*wait(ask()), first);
    clock_.move(minutes(1));
    script_->answer(keys("second", std::nullopt));
    EXPECT_EQ(id(), "second");
}

TEST_F(RefreshingProviderTest, OnesThatExpireWhileTheSourceIsLeftAloneAreFetchedAnew) {
    const SharedCredentials first = keys("first", seconds(10));
    const auto same = [&first] { return std::make_shared<const Credentials>(*first); };
    script_->answer(first);
    EXPECT_EQ(*wait(ask()), first);
    provider_->accept(first);
    clock_.move(Milliseconds(9'800));
    EXPECT_EQ(*wait(ask()), first);
    const SharedCredentials second = same();
    script_->answer(second);
    ASSERT_TRUE(eventually([&] { return *wait(ask()) == second; }));
    provider_->refuse(second);
    Answer refused = ask();
    script_->answer(same());
    EXPECT_EQ(**wait(std::move(refused)), *first);
    EXPECT_EQ(script_->fetches, 3);
    // Expired, and within the pause of half a second that the refusal brought.
    clock_.move(Milliseconds(300));
    Answer expired = ask();
    // Nothing has failed, so that there is no error to tell.
    ASSERT_FALSE(is_ready(expired));
    script_->answer(keys("second", hours(1)));
    const auto renewed = wait(std::move(expired));
    ASSERT_TRUE(renewed.has_value());
    EXPECT_EQ((*renewed)->access_key_id, "second");
    EXPECT_EQ(script_->fetches, 4);
}

TEST_F(RefreshingProviderTest, StoppingAnswersWhoeverWaits) {
    Answer waiting = ask();
    ASSERT_TRUE(eventually([this] { return script_->fetches == 1; }));
    provider_->stop();
    EXPECT_EQ(wait(std::move(waiting)).error().errno_value, ECANCELED);
    EXPECT_EQ(wait(ask()).error().errno_value, ECANCELED);
}

TEST_F(RefreshingProviderTest, DestroyedWhileItFetches) {
    Answer waiting = ask();
    ASSERT_TRUE(eventually([this] { return script_->fetches == 1; }));
    provider_.reset();
    EXPECT_EQ(wait(std::move(waiting)).error().errno_value, ECANCELED);
}

// As in a file system whose server is away.
class HangingSource final : public CredentialSource {
public:
    explicit HangingSource(std::shared_future<void> end) : end_(std::move(end)) {}

    [[nodiscard]] std::string name() const override { return "a file"; }
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& /*stop*/) override {
        end_.wait();
        return std::make_shared<const Credentials>(
            Credentials{"late", Secret("secret"), Secret("token"), std::nullopt});
    }

private:
    const std::shared_future<void> end_;
};

class HangingSourceTest : public RefreshingProviderTest {
protected:
    HangingSourceTest() {
        provider_ = std::make_unique<RefreshingProvider>(
            std::make_shared<HangingSource>(end_.get_future().share()), clock_, [] { return 0.0; }, Milliseconds(50));
    }

    std::promise<void> end_;
};

TEST_F(HangingSourceTest, IsAnErrorUntilItAnswers) {
    EXPECT_EQ(wait(ask()).error().errno_value, ETIMEDOUT);
    clock_.move(minutes(1));
    EXPECT_EQ(wait(ask()).error().errno_value, ETIMEDOUT);
    end_.set_value();
    EXPECT_TRUE(eventually([this] {
        clock_.move(minutes(1));
        return id() == "late";
    }));
}

TEST_F(HangingSourceTest, KeepsNeitherWhoWaitsNorTheEnd) {
    Answer waiting = ask();
    provider_->stop();
    EXPECT_TRUE(wait(std::move(waiting)).error().errno_value != 0);
    provider_.reset();
    end_.set_value();
}

}  // namespace
}  // namespace ckptfs
