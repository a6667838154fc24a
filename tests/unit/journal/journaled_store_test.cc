// SPDX-License-Identifier: Apache-2.0
#include "journal/journaled_store.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "journal/journal_leftovers.h"
#include "journal_fixture.h"
#include "support/fake_store.h"
#include "support/manual_clock.h"
#include "support/stepped_timer.h"

namespace ckptfs {
namespace {

namespace stdfs = std::filesystem;

class JournaledObjects : public MountJournalTest {
protected:
    [[nodiscard]] JournalContents contents() const { return parse_journal(content_of(made_->path())); }
    [[nodiscard]] std::vector<std::string> objects() const { return contents().objects; }
    void put(const std::string& key) {
        PutRequest request;
        request.key = key;
        journaled_.put(std::move(request), [](const Result<PutResponse>&) {});
    }
    void save(const UploadId& upload) {
        std::vector<UploadedPart> parts;
        journaled_.upload_part({upload, 1, Payload::from_string("part"), 0},
                               [&](Result<UploadedPart> part) { parts.push_back(part.value()); });
        journaled_.complete_upload({upload, parts, "", 4},
                                   [](const Result<PutResponse>& saved) { EXPECT_TRUE(saved); });
    }
    void get(const std::string& key) {
        GetRequest request;
        request.key = key;
        request.on_body = [](ByteSpan) { return true; };
        journaled_.get(std::move(request), [](const Result<GetResponse>&) {});
    }

    const std::string record_ = "run/.ckptfs/renames/1 a";
    testing::FakeStore store_;
    const std::unique_ptr<MountJournal> made_ = journal();
    testing::ManualClock clock_;
    testing::SteppedTimer timer_;
    LostAnswers answers_;
    LostUploads lost_{{store_, timer_, clock_, *made_, answers_}};
    UploadAborts aborts_{store_, timer_, *made_};
    JournaledStore journaled_{store_, *made_, lost_, aborts_, "run/"};
};

TEST_F(JournaledObjects, BeginWithTheirRecordsAndEndWithThem) {
    put("run/model.pt");
    EXPECT_TRUE(objects().empty());
    put(record_);
    put(record_);
    put("run/.ckptfs/renames/2");
    EXPECT_EQ(objects(), (std::vector<std::string>{record_, "run/.ckptfs/renames/2"}));
    get(record_);
    EXPECT_EQ(objects().size(), 2U);
    journaled_.remove_many({record_, "run/.ckptfs/rename-names/1"}, [](const Result<std::vector<DeleteFailure>>&) {});
    EXPECT_EQ(objects(), std::vector<std::string>{"run/.ckptfs/renames/2"});
}

// The next mount would take them away from one that lives.
TEST_F(JournaledObjects, AreNotThoseThatAnotherMountHas) {
    store_.put_object(record_, "theirs");
    const auto put_over = [&](const std::string& seen) {
        PutRequest request;
        request.key = record_;
        request.if_match = seen;
        request.if_none_match = seen.empty();
        journaled_.put(std::move(request), [](const Result<PutResponse>& put) { EXPECT_FALSE(put); });
    };
    put_over("\"of before\"");
    put_over("");
    EXPECT_TRUE(objects().empty());
    Error lost = testing::store_error(ESTALE, "PreconditionFailed", 412);
    lost.outcome_unknown = true;
    store_.inject({testing::Operation::kPut, record_, lost, 0, 1, false});
    put_over("\"of before\"");
    EXPECT_EQ(objects(), std::vector<std::string>{record_}) << "it may be there";
    put_over("\"of before\"");
    EXPECT_EQ(objects(), std::vector<std::string>{record_}) << "it was open before";
}

TEST_F(JournaledObjects, AreFilesWithoutANameToo) {
    const std::string hidden = "run/.ckptfs/tmp/step/file-1/model.pt";
    CreateUploadRequest request;
    request.key = hidden;
    UploadId upload;
    journaled_.create_upload(request, [&](Result<UploadId> begun) { upload = begun.value(); });
    EXPECT_TRUE(objects().empty());
    // Also where nobody hears of it.
    journaled_.complete_upload({upload, {}, "", 0}, [](const Result<PutResponse>&) {});
    EXPECT_EQ(objects(), std::vector<std::string>{hidden});
    journaled_.remove(hidden, [](const Status& removed) { EXPECT_TRUE(removed); });
    EXPECT_TRUE(objects().empty());
}

TEST_F(JournaledObjects, AreOverWhereSomebodyElseHasEndedThem) {
    made_->object_begun(record_);
    get(record_);
    EXPECT_TRUE(objects().empty());
}

class GivenUpUploads : public JournaledObjects {
protected:
    UploadId begin() {
        CreateUploadRequest request;
        request.key = "run/f.bin";
        UploadId upload;
        journaled_.create_upload(request, [&](Result<UploadId> begun) { upload = begun.value(); });
        return upload;
    }
    using JournaledObjects::save;
    void save() { save(begin()); }
    UploadId give_up() {
        UploadId upload = begin();
        store_.inject(
            {testing::Operation::kAbortUpload, "", testing::store_error(EIO, "InternalError", 500), 0, 1, false});
        journaled_.abort_upload(upload, [](const Status& ended) { EXPECT_FALSE(ended); });
        return upload;
    }
    // This mount is killed: the keys that the next one tells others of.
    std::vector<std::string> told_by_the_next_mount() {
        leave("place-1.uploads", content_of(made_->path()));
        std::vector<std::string> told;
        const auto next = journal();
        end_leftovers(take_leftovers(directory_, "place"), store_, *next,
                      [&](const std::string& key, const std::string& /*upload*/, const StoreDone<void>& done) {
                          told.push_back(key);
                          done({});
                      });
        EXPECT_FALSE(stdfs::exists(directory_ + "/place-1.uploads"));
        return told;
    }
};

TEST_F(GivenUpUploads, AreNoFailureOfAFileThatAnotherOneSaved) {
    const UploadId upload = give_up();
    EXPECT_EQ(contents().uploads.size(), 1U);
    save();
    save();
    EXPECT_TRUE(contents().uploads.empty());
    ASSERT_EQ(contents().made_good.size(), 1U);
    EXPECT_EQ(contents().made_good[0].id, upload.id);
    store_.remove("run/f.bin", [](const Status& renamed) { EXPECT_TRUE(renamed); });
    EXPECT_TRUE(told_by_the_next_mount().empty());
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(GivenUpUploads, AreNoFailureOfAFileThatWasSavedInOneRequest) {
    give_up();
    put("run/f.bin");
    store_.remove("run/f.bin", [](const Status& renamed) { EXPECT_TRUE(renamed); });
    EXPECT_TRUE(told_by_the_next_mount().empty());
}

TEST_F(GivenUpUploads, AreNoFailureOfAFileThatWasSavedWhileTheyWereBeingEnded) {
    store_.hold(testing::Operation::kAbortUpload);
    journaled_.abort_upload(begin(), [](const Status& ended) { EXPECT_TRUE(ended); });
    save();
    EXPECT_TRUE(contents().uploads.empty());
    EXPECT_EQ(contents().made_good.size(), 1U);
    store_.release(testing::Operation::kAbortUpload);
    EXPECT_EQ(contents().size(), 0U);
}

TEST_F(GivenUpUploads, TellOfAFileThatWasSavedBefore) {
    save();
    give_up();
    EXPECT_TRUE(contents().made_good.empty());
    EXPECT_EQ(told_by_the_next_mount(), std::vector<std::string>{"run/f.bin"});
    EXPECT_EQ(store_.open_uploads(), 0);
}

// It waits for the record of its failure.
TEST_F(GivenUpUploads, AreNoFailureOfAFileThatWasSavedBeforeTheyWereToBeEnded) {
    for (const bool is_small : {false, true}) {
        const UploadId upload = begin();
        if (is_small) {
            put("run/f.bin");
        } else {
            save();
        }
        store_.inject(
            {testing::Operation::kAbortUpload, "", testing::store_error(EIO, "InternalError", 500), 0, 1, false});
        journaled_.abort_upload(upload, [](const Status& ended) { EXPECT_FALSE(ended); });
        EXPECT_TRUE(contents().uploads.empty());
        ASSERT_EQ(contents().made_good.size(), 1U);
        EXPECT_EQ(contents().made_good[0].id, upload.id);
        store_.remove("run/f.bin", [](const Status& renamed) { EXPECT_TRUE(renamed); });
        journaled_.abort_upload(upload, [](const Status& ended) { EXPECT_TRUE(ended); });
    }
}

TEST_F(GivenUpUploads, TellOfAFileThatWasSavedByAnUploadBegunBefore) {
    const UploadId first = begin();
    const UploadId later = begin();
    save(first);
    EXPECT_TRUE(contents().made_good.empty());
    ASSERT_EQ(contents().uploads.size(), 1U);
    EXPECT_EQ(contents().uploads[0].id, later.id);
}

// An upload whose creation was answered once and lost once: the first answer was lost, and both began.
class TwiceBegunUploads : public JournaledObjects {
protected:
    UploadId create(const std::string& key) {
        CreateUploadRequest request;
        request.key = key;
        store_.create_upload(request, [](const Result<UploadId>& lost) { EXPECT_TRUE(lost); });
        UploadId upload;
        store_.hold(testing::Operation::kCreateUpload);
        journaled_.create_upload(request, [&](Result<UploadId> begun) { upload = begun.value(); });
        s3::Attempt attempt;
        attempt.operation = "CreateMultipartUpload";
        attempt.key = key;
        attempt.outcome_unknown = true;
        answers_.ended(attempt);
        store_.release(testing::Operation::kCreateUpload);
        return upload;
    }
    // The store begins it, and nobody hears of it.
    void lose(const std::string& key) {
        Error lost = testing::store_error(EIO, "", 0);
        lost.outcome_unknown = true;
        store_.inject({testing::Operation::kCreateUpload, key, lost, 0, 1, true});
        CreateUploadRequest request;
        request.key = key;
        journaled_.create_upload(request, [](const Result<UploadId>& begun) { EXPECT_FALSE(begun); });
    }
    // This mount is killed: what the next one tells others of, with what it finds in the journal.
    std::vector<std::string> told_by_the_next_mount() {
        const std::unique_ptr<MountJournal> journal = MountJournal::in_memory();
        testing::SteppedTimer timer;
        LostAnswers answers;
        LostUploads lost({store_, timer, clock_, *journal, answers});
        std::vector<std::string> told;
        adopt(lost, parse_journal(content_of(made_->path())).intents,
              [&](const UploadIntent& last, const StoreDone<void>& done) {
                  told.push_back(last.key);
                  done({});
              });
        clock_.move(std::chrono::seconds(3));
        timer.run();
        return told;
    }
};

TEST_F(TwiceBegunUploads, AreNoFailureOfAFileThatWasSaved) {
    save(create("run/a.pt.tmp"));
    ASSERT_EQ(parse_journal(content_of(made_->path())).intents.size(), 1U);
    store_.remove("run/a.pt.tmp", [](const Status& renamed) { EXPECT_TRUE(renamed); });
    EXPECT_TRUE(told_by_the_next_mount().empty());
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(TwiceBegunUploads, AreNoFailureOfAFileThatWasSavedAfterEveryAnswerWasLost) {
    for (const bool is_small : {false, true}) {
        lose("run/a.pt.tmp");
        if (is_small) {
            put("run/a.pt.tmp");
        } else {
            save(create("run/a.pt.tmp"));
        }
        store_.remove("run/a.pt.tmp", [](const Status& renamed) { EXPECT_TRUE(renamed); });
        EXPECT_TRUE(told_by_the_next_mount().empty());
        EXPECT_EQ(store_.open_uploads(), 0);
    }
    lose("run/a.pt.tmp");
    EXPECT_EQ(told_by_the_next_mount(), std::vector<std::string>{"run/a.pt.tmp"}) << "it was not saved after that";
}

TEST_F(TwiceBegunUploads, AreNoFailureOfAFileThatWasGivenUp) {
    journaled_.abort_upload(create("run/a.pt.tmp"), [](const Status& ended) { EXPECT_TRUE(ended); });
    EXPECT_TRUE(told_by_the_next_mount().empty());
}

TEST_F(TwiceBegunUploads, TellOfAFileThatIsNotSaved) {
    save(create("run/a.pt"));
    create("run/a.pt");
    EXPECT_EQ(parse_journal(content_of(made_->path())).uploads.size(), 1U);
    EXPECT_EQ(told_by_the_next_mount(), std::vector<std::string>{"run/a.pt"});
}

// What is sent was acknowledged by a disk, which has it: the next mount sends it again, and nothing has failed.
TEST_F(TwiceBegunUploads, AreNoFailureOfAFileThatADiskHas) {
    JournaledStore behind_disk(store_, *made_, lost_, aborts_, "run/", true);
    CreateUploadRequest request;
    request.key = "run/a.pt.tmp";
    UploadId upload;
    store_.hold_answers(testing::Operation::kCreateUpload);
    behind_disk.create_upload(request, [&](Result<UploadId> begun) { upload = begun.value(); });
    EXPECT_EQ(contents().intents.size(), 1U);
    EXPECT_TRUE(told_by_the_next_mount().empty()) << "the request is under way";
    EXPECT_EQ(store_.open_uploads(), 0);
    store_.release(testing::Operation::kCreateUpload);
    EXPECT_TRUE(contents().uploads.empty());
    ASSERT_EQ(contents().made_good.size(), 1U);
    EXPECT_EQ(contents().made_good[0].id, upload.id);
}

// The version before may have been acknowledged long ago, and is sent by the mount that follows.
TEST_F(TwiceBegunUploads, OfWhatADiskSendsSayNothingOfAFileThatWasBeingWritten) {
    JournaledStore behind_disk(store_, *made_, lost_, aborts_, "run/", true);
    int told = 0;
    adopt(lost_, {{"run/a.pt", clock_.wall_now(), 1}},
          [&told](const UploadIntent& /*last*/, const StoreDone<void>& done) {
              done(++told == 1 ? failure(EIO, "the record was refused") : Status());
          });
    PutRequest request;
    request.key = "run/a.pt";
    request.body = Payload::from_string("the version before");
    behind_disk.put(request, [](const Result<PutResponse>& sent) { EXPECT_TRUE(sent); });
    clock_.move(std::chrono::minutes(1));
    timer_.run();
    EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace ckptfs
