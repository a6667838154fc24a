// SPDX-License-Identifier: Apache-2.0
#include "journal/lost_uploads.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "journal_fixture.h"
#include "support/fake_store.h"
#include "support/manual_clock.h"
#include "support/stepped_timer.h"

namespace ckptfs {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::Fault;
using testing::Operation;

constexpr const char* kKey = "run/model.pt";

class LostUploadsTest : public ::testing::Test {
protected:
    // The store begins it, and its answer is lost.
    void lose(const std::string& key = kKey) {
        Fault fault;
        fault.operation = Operation::kCreateUpload;
        fault.key = key;
        fault.error.errno_value = EIO;
        fault.error.outcome_unknown = true;
        fault.after_effect = true;
        store_.inject(fault);
        EXPECT_FALSE(create(key));
    }
    Result<UploadId> create(const std::string& key = kKey) {
        CreateUploadRequest request;
        request.key = key;
        Result<UploadId> upload = failure(EIO, "not asked");
        lost_.create_upload(std::move(request), UploadedFile::kUnfinished,
                            [&](Result<UploadId> answer) { upload = std::move(answer); });
        return upload;
    }
    void send_part(const UploadId& upload) {
        store_.upload_part({upload, 1, Payload::from_string("part"), 0}, [](const Result<UploadedPart>&) {});
    }
    UploadId of_another_mount(const std::string& key = kKey) {
        CreateUploadRequest request;
        request.key = key;
        UploadId id;
        store_.create_upload(std::move(request), [&](Result<UploadId> answer) { id = answer.value(); });
        return id;
    }
    void pass(Milliseconds time) { clock_.move(time); }

    testing::FakeStore store_;
    testing::ManualClock clock_;
    testing::SteppedTimer timer_;
    const std::unique_ptr<MountJournal> journal_ = MountJournal::in_memory();
    LostAnswers answers_;
    LostUploads lost_{{store_, timer_, clock_, *journal_, answers_}};
};

TEST_F(LostUploadsTest, ArePartlessOnTwoLooksBeforeTheyAreEnded) {
    lose();
    EXPECT_EQ(store_.open_uploads(), 1);
    EXPECT_EQ(store_.calls(Operation::kAbortUpload), 0);
    pass(seconds(3));
    EXPECT_EQ(timer_.run(), seconds(3));
    EXPECT_EQ(store_.open_uploads(), 0);
    // What is late is looked for after a minute.
    pass(minutes(1));
    EXPECT_EQ(timer_.run(), minutes(1));
    EXPECT_EQ(timer_.waiting(), 0U);
}

TEST_F(LostUploadsTest, AnAnswerThatWasLostBeforeAnotherCameCounts) {
    answers_.asked(kKey);
    s3::Attempt attempt;
    attempt.operation = "CreateMultipartUpload";
    attempt.key = kKey;
    attempt.outcome_unknown = true;
    answers_.ended(attempt);
    EXPECT_TRUE(answers_.answered(kKey));
    answers_.asked(kKey);
    EXPECT_FALSE(answers_.answered(kKey));
}

TEST_F(LostUploadsTest, OneThatHasAPartIsLeft) {
    const UploadId other = of_another_mount();
    send_part(other);
    lose();
    pass(seconds(3));
    timer_.run();
    EXPECT_EQ(store_.open_uploads(), 1);
    send_part(other);
    pass(minutes(1));
    timer_.run();
    EXPECT_EQ(store_.open_uploads(), 1);
    EXPECT_EQ(timer_.waiting(), 0U);
}

TEST_F(LostUploadsTest, OneThatGetsAPartBetweenTheLooksIsLeft) {
    const UploadId other = of_another_mount();
    lose();
    send_part(other);
    pass(seconds(3));
    timer_.run();
    EXPECT_EQ(store_.open_uploads(), 1);
}

TEST_F(LostUploadsTest, OneThatThisMountKnowsIsLeft) {
    const Result<UploadId> known = create();
    ASSERT_TRUE(known);
    lose();
    pass(seconds(3));
    timer_.run();
    EXPECT_EQ(store_.open_uploads(), 1);
    EXPECT_EQ(store_.calls(Operation::kListParts), 2);
}

TEST_F(LostUploadsTest, OtherKeysAreLeft) {
    of_another_mount("run/model.pt.1");
    of_another_mount("run/other.pt");
    lose();
    pass(seconds(3));
    timer_.run();
    EXPECT_EQ(store_.open_uploads(), 2);
}

TEST_F(LostUploadsTest, OneThatWasBegunLongBeforeIsNotOurs) {
    const WallTime asked{seconds(1'700'000'000)};
    OpenUpload upload{{kKey, "id"}, asked - minutes(14)};
    EXPECT_TRUE(may_be_lost(upload, kKey, asked));
    EXPECT_FALSE(may_be_lost(upload, "run/model", asked));
    upload.initiated = asked - minutes(16);
    EXPECT_FALSE(may_be_lost(upload, kKey, asked));
}

TEST_F(LostUploadsTest, NothingIsAskedWhereEveryAnswerCame) {
    EXPECT_TRUE(create());
    EXPECT_EQ(store_.calls(Operation::kListUploads), 0);
    EXPECT_EQ(timer_.waiting(), 0U);
    bool ended = false;
    lost_.stop([&] { ended = true; });
    EXPECT_TRUE(ended);
}

TEST_F(LostUploadsTest, TheEndOfTheMountWaitsForTheSecondLook) {
    lose();
    bool ended = false;
    lost_.stop([&] { ended = true; });
    EXPECT_FALSE(ended);
    pass(seconds(3));
    timer_.run();
    EXPECT_TRUE(ended);
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(LostUploadsTest, TheEndOfTheMountDoesNotWaitForAStoreThatIsAway) {
    lose();
    Fault fault;
    fault.operation = Operation::kListUploads;
    fault.error.errno_value = EIO;
    fault.times = 100;
    store_.inject(fault);
    bool ended = false;
    lost_.stop([&] { ended = true; });
    EXPECT_TRUE(ended);
}

TEST_F(LostUploadsTest, ThoseOfAKilledMountAreAdopted) {
    of_another_mount();
    adopt(lost_, {{kKey, clock_.wall_now(), 1}}, [](const UploadIntent& last, const StoreDone<void>& done) {
        EXPECT_EQ(last.key, kKey);
        done({});
    });
    pass(seconds(3));
    timer_.run();
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(LostUploadsTest, OfAKilledMountItIsToldWhichEarlierVersionWasSentSince) {
    const WallTime asked{seconds(1'700'000'000)};
    std::string told;
    adopt(lost_, {{kKey, asked, 1, false, asked, "etag"}, {kKey, asked - seconds(1), 2}},
          [&](const UploadIntent& last, const StoreDone<void>& done) {
              told = last.earlier_etag;
              done(failure(EIO, "the record was refused"));
          });
    EXPECT_EQ(told, "etag");
}

TEST_F(LostUploadsTest, ThoseOfAKilledMountStayUntilOtherMountsAreTold) {
    of_another_mount();
    bool can_be_told = false;
    int tries = 0;
    adopt(lost_, {{kKey, clock_.wall_now(), 1}}, [&](const UploadIntent& /*last*/, const StoreDone<void>& done) {
        ++tries;
        done(can_be_told ? Status() : failure(EIO, "the record was refused"));
    });
    for (int looks = 1; looks <= 3; ++looks) {
        EXPECT_EQ(tries, looks);
        pass(minutes(1));
        EXPECT_EQ(timer_.run(), minutes(1));
    }
    EXPECT_EQ(store_.calls(Operation::kListUploads), 0);
    EXPECT_EQ(store_.open_uploads(), 1);
    can_be_told = true;
    pass(minutes(1));
    timer_.run();
    EXPECT_EQ(store_.open_uploads(), 1);
    pass(seconds(3));
    EXPECT_EQ(timer_.run(), seconds(3));
    EXPECT_EQ(store_.open_uploads(), 0);
    EXPECT_EQ(tries, 5);
}

TEST_F(LostUploadsTest, ThoseOfAKilledMountStayWhereThisOneLosesAnAnswerForTheSameKey) {
    of_another_mount();
    adopt(lost_, {{kKey, clock_.wall_now(), 1}}, [](const UploadIntent& /*last*/, const StoreDone<void>& done) {
        done(failure(EIO, "the record was refused"));
    });
    lose();
    pass(minutes(1));
    timer_.run();
    EXPECT_EQ(store_.open_uploads(), 2);
}

TEST_F(LostUploadsTest, OfAFileThatIsSavedSinceNobodyIsTold) {
    of_another_mount();
    std::vector<StoreDone<void>> waiting;
    adopt(lost_, {{kKey, clock_.wall_now(), 1}},
          [&](const UploadIntent& /*last*/, StoreDone<void> done) { waiting.push_back(std::move(done)); });
    lost_.saved(kKey);
    ASSERT_EQ(waiting.size(), 1U);
    waiting.front()(failure(EIO, "the record was refused"));
    pass(minutes(1));
    timer_.run();
    EXPECT_EQ(waiting.size(), 1U);
    pass(seconds(3));
    timer_.run();
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(LostUploadsTest, OfAllThatWereAskedForAFileOthersAreToldOnce) {
    const WallTime asked = clock_.wall_now();
    std::vector<WallTime> told;
    adopt(lost_, {{kKey, asked, 1}, {kKey, asked + seconds(2), 2}, {kKey, asked + seconds(1), 3}},
          [&](const UploadIntent& last, const StoreDone<void>& done) {
              told.push_back(last.asked);
              done({});
          });
    EXPECT_EQ(told, std::vector<WallTime>{asked + seconds(2)});
}

std::vector<UploadIntent> of_files(std::uint64_t count) {
    std::vector<UploadIntent> left;
    for (std::uint64_t number = 0; number < count; ++number) {
        left.push_back({format("run/{}.pt", number), WallTime{seconds(1'700'000'000)}, number});
    }
    return left;
}

TEST_F(LostUploadsTest, OthersAreToldOfAllFilesOfAKilledMountHoweverMany) {
    std::vector<StoreDone<void>> told;
    int all = 0;
    adopt(
        lost_, of_files(1'500),
        [&](const UploadIntent& /*last*/, StoreDone<void> done) { told.push_back(std::move(done)); },
        [&all] { ++all; });
    for (std::size_t answered = 0; answered < told.size(); ++answered) {
        EXPECT_EQ(all, 0);
        const StoreDone<void> done = std::move(told[answered]);
        done({});
    }
    EXPECT_EQ(told.size(), 1'500U);
    EXPECT_EQ(all, 1);
}

TEST_F(LostUploadsTest, TheEndOfTheMountIsOneAnswerForAllThatItWasToTellOf) {
    StoreDone<void> waiting;
    int tries = 0;
    adopt(lost_, of_files(1'500), [&](const UploadIntent& /*last*/, StoreDone<void> done) {
        ++tries;
        waiting = std::move(done);
    });
    const StoreDone<void> first = std::move(waiting);
    first(failure(ECANCELED, "the mount ends"));
    EXPECT_EQ(tries, 1);
}

TEST_F(LostUploadsTest, AFileThatIsSavedSinceIsNotWaitedForUntilOthersAreTold) {
    bool all_told = false;
    adopt(
        lost_, {{kKey, clock_.wall_now(), 1}, {"run/other.pt", clock_.wall_now(), 2, true}},
        [](const UploadIntent& /*last*/, const StoreDone<void>& done) { done(failure(EIO, "not now")); },
        [&all_told] { all_told = true; });
    EXPECT_FALSE(all_told);
    lost_.saved(kKey);
    EXPECT_TRUE(all_told);
}

TEST_F(LostUploadsTest, WhereNothingIsLeftOthersKnowAll) {
    bool all_told = false;
    adopt(lost_, {}, nullptr, [&all_told] { all_told = true; });
    EXPECT_TRUE(all_told);
}

TEST_F(LostUploadsTest, TheEndOfTheMountDoesNotWaitForOthersToBeTold) {
    of_another_mount();
    int tries = 0;
    adopt(lost_, {{kKey, clock_.wall_now(), 1}}, [&](const UploadIntent& /*last*/, const StoreDone<void>& done) {
        ++tries;
        done(failure(EIO, "the record was refused"));
    });
    bool ended = false;
    lost_.stop([&] { ended = true; });
    EXPECT_TRUE(ended);
    EXPECT_EQ(tries, 2);
    EXPECT_EQ(store_.open_uploads(), 1);
}

TEST_F(LostUploadsTest, NoMountIsToldAfterItHasStopped) {
    StoreDone<void> waiting;
    int tries = 0;
    adopt(lost_, {{kKey, clock_.wall_now(), 1}, {"run/other.pt", clock_.wall_now(), 2}},
          [&](const UploadIntent& /*last*/, StoreDone<void> done) {
              ++tries;
              waiting = std::move(done);
          });
    lost_.stop(nullptr);
    waiting(failure(ECANCELED, "the store was stopped"));
    EXPECT_EQ(tries, 1);
    EXPECT_EQ(timer_.waiting(), 0U);
}

TEST_F(LostUploadsTest, AStoreThatDoesNotListUploadsIsAskedOnce) {
    Fault fault;
    fault.operation = Operation::kListUploads;
    fault.error.errno_value = EOPNOTSUPP;
    fault.times = 100;
    store_.inject(fault);
    lose();
    EXPECT_EQ(store_.calls(Operation::kListUploads), 1);
    EXPECT_EQ(timer_.waiting(), 0U);
}

}  // namespace
}  // namespace ckptfs
