// SPDX-License-Identifier: Apache-2.0
#include "journal/mount_journal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "journal/journal_leftovers.h"
#include "journal/journaled_store.h"
#include "journal_fixture.h"
#include "support/fake_store.h"
#include "support/manual_clock.h"
#include "support/stepped_timer.h"

namespace {
bool has_locks = true;
std::function<void()> before_shared_lock;
std::function<void()> before_exclusive_lock;
}  // namespace

// In the place of the C library's: some filesystems have none.
extern "C" int flock(int file, int operation) noexcept {
    if (!has_locks) {
        errno = ENOLCK;
        return -1;
    }
    if ((operation & LOCK_SH) != 0 && before_shared_lock) {
        std::exchange(before_shared_lock, nullptr)();
    }
    if ((operation & LOCK_EX) != 0 && before_exclusive_lock) {
        std::exchange(before_exclusive_lock, nullptr)();
    }
    return static_cast<int>(syscall(SYS_flock, file, operation));
}

namespace ckptfs {
namespace {

namespace stdfs = std::filesystem;

TEST_F(MountJournalTest, HoldsWhatHasBegunAndNotEnded) {
    const auto made = journal();
    made->begun({"run/a.pt", "id1"});
    made->begun({"run/b c%\n", "id 2"});
    made->begun({"run/d.pt", "id3"});
    made->ended({"run/a.pt", "id1"});
    made->ended({"run/a.pt", "id1"});
    const auto open = parse_journal(content_of(made->path())).uploads;
    ASSERT_EQ(open.size(), 2U);
    EXPECT_EQ(open[0].id, "id 2");
    EXPECT_EQ(open[0].key, "run/b c%\n");
    EXPECT_EQ(open[1].key, "run/d.pt");
}

// setrlimit(2): writes behind this size fail, as on a disk that is full.
class FullDisk {
public:
    explicit FullDisk(rlim_t size) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
        EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
        const rlimit full{size, before_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
    }
    ~FullDisk() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, signal_);
    }
    FullDisk(const FullDisk&) = delete;
    FullDisk& operator=(const FullDisk&) = delete;

private:
    void (*signal_)(int);
    rlimit before_{};
};

TEST_F(MountJournalTest, OnceADiskThatWasFullHasRoomItIsRightAgain) {
    const auto made = journal();
    made->begun({"run/a.pt", "id1"});
    made->begun({"run/b.pt", "id2"});
    {
        const FullDisk disk(stdfs::file_size(made->path()) + 2);
        made->ended({"run/a.pt", "id1"});
    }
    made->begun({"run/c.pt", "id3"});
    const auto open = parse_journal(content_of(made->path())).uploads;
    ASSERT_EQ(open.size(), 2U);
    EXPECT_EQ(open[0].id, "id2");
    EXPECT_EQ(open[1].id, "id3");
}

TEST_F(MountJournalTest, WhatWasWrittenBeforeTheDiskWasFullStays) {
    const auto made = journal();
    made->begun({"run/c.pt", "id3"});
    made->begun({"run/d.pt", "id4"});
    const std::string before = content_of(made->path());
    {
        const FullDisk disk(before.size() + 2);
        made->begun({"run/a.pt", "id1"});
        made->begun({"run/b.pt", "id2"});
        made->begun({"run/e.pt", "id5"});
        EXPECT_EQ(content_of(made->path()), before);
    }
    made->ended({"run/c.pt", "id3"});
    EXPECT_EQ(content_of(made->path()), "+id1 run/a.pt\n+id2 run/b.pt\n+id4 run/d.pt\n+id5 run/e.pt\n");
}

TEST_F(MountJournalTest, IsReadableByNobodyElseAndGoneAfterwards) {
    auto made = journal();
    struct stat status {};
    ASSERT_EQ(stat(made->path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    ASSERT_EQ(stat(directory_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0700U);
    made.reset();
    EXPECT_TRUE(stdfs::is_empty(directory_));
}

TEST_F(MountJournalTest, StaysWhereAnUploadIsLeft) {
    auto made = journal();
    made->begun({"run/a.pt", "id1"});
    made.reset();
    const auto leftovers = take_leftovers(directory_, "place");
    ASSERT_EQ(leftovers.size(), 1U);
    EXPECT_EQ(leftovers[0].begun.uploads.size(), 1U);
}

TEST_F(MountJournalTest, StaysSmallHoweverMuchIsWritten) {
    const auto made = journal();
    made->begun({"run/kept", "id"});
    for (int i = 0; i < 20'000; ++i) {
        const UploadId upload{"run/" + std::to_string(i), std::to_string(i)};
        made->begun(upload);
        made->ended(upload);
    }
    EXPECT_LT(stdfs::file_size(made->path()), 300U << 10);
    const auto open = parse_journal(content_of(made->path())).uploads;
    ASSERT_EQ(open.size(), 1U);
    EXPECT_EQ(open[0].key, "run/kept");
}

// Until it is rewritten.
void grow(MountJournal& journal) {
    const auto size = [&] { return stdfs::file_size(journal.path()); };
    for (std::uintmax_t before = 0; size() >= before;) {
        before = size();
        journal.object_begun("run/a");
        journal.object_ended("run/a");
    }
}

TEST_F(MountJournalTest, WhatItHoldsIsThereUntilItIsRewritten) {
    const auto made = journal();
    made->begun({"run/kept", "id"});
    stdfs::create_hard_link(made->path(), directory_ + "/before");
    grow(*made);
    EXPECT_GT(stdfs::file_size(directory_ + "/before"), stdfs::file_size(made->path()));
    EXPECT_EQ(parse_journal(content_of(made->path())).uploads.size(), 1U);
    EXPECT_TRUE(take_leftovers(directory_, "place").empty()) << "it is locked";
    stdfs::remove(directory_ + "/before");
    EXPECT_EQ(std::distance(stdfs::directory_iterator(directory_), {}), 1);
}

TEST_F(MountJournalTest, IsInUseAlsoWhereItIsRewrittenMeanwhile) {
    const auto made = journal();
    made->begun({"run/kept", "id"});
    before_shared_lock = [&] { grow(*made); };
    EXPECT_TRUE(is_another_in_use(directory_, "place", ""));
    EXPECT_FALSE(is_another_in_use(directory_, "place", made->path()));
}

// Else the other one would take it for that of a dead mount.
TEST_F(MountJournalTest, AnotherMountFindsItOnlyOnceItIsLocked) {
    before_exclusive_lock = [this] {
        EXPECT_FALSE(is_another_in_use(directory_, "place", ""));
        EXPECT_TRUE(take_leftovers(directory_, "place").empty());
    };
    const auto made = journal();
    EXPECT_TRUE(is_another_in_use(directory_, "place", ""));
    EXPECT_TRUE(take_leftovers(directory_, "place").empty());
    EXPECT_EQ(std::distance(stdfs::directory_iterator(directory_), {}), 1);
}

// Of a mount that was killed while it rewrote its file, both are removed.
TEST_F(MountJournalTest, OfAnEarlierMountStaysUntilWhatItSaysIsHere) {
    testing::FakeStore store;
    const auto made = journal();
    leave("place-1.uploads", "@run/a.pt reason\n");
    leave("place-1.uploads.new", "");
    {
        const FullDisk disk(2);
        auto leftovers = take_leftovers(directory_, "place");
        ASSERT_EQ(leftovers.size(), 1U);
        leftovers[0].begun.failures.clear();
        made->failure_begun("run/a.pt", "reason");
        end_leftovers(std::move(leftovers), store, *made, nullptr);
        made->begun({"run/b.pt", "id"});
        EXPECT_TRUE(stdfs::exists(directory_ + "/place-1.uploads"));
    }
    EXPECT_TRUE(take_leftovers(directory_, "place").empty()) << "its lock is held";
    made->ended({"run/b.pt", "id"});
    EXPECT_EQ(content_of(made->path()), "@run/a.pt reason\n");
    EXPECT_EQ(std::distance(stdfs::directory_iterator(directory_), {}), 1);
}

class WithoutAJournalOfItsOwn : public MountJournalTest {
protected:
    WithoutAJournalOfItsOwn() {
        leave("place-1.uploads", "@run/a.pt reason\n");
        // Where others can look, no file is made.
        stdfs::permissions(directory_, stdfs::perms(0755));
    }
    // As a mount goes on from there.
    std::unique_ptr<MountJournal> take_over() {
        MountJournals journals = open_journals(directory_, "place");
        for (Leftovers& each : journals.leftovers) {
            for (const UntoldFailure& failure : std::exchange(each.begun.failures, {})) {
                journals.own->failure_begun(failure.key, failure.record);
            }
        }
        end_leftovers(std::move(journals.leftovers), store_, *journals.own, nullptr);
        return std::move(journals.own);
    }
    [[nodiscard]] bool is_there() const { return stdfs::exists(directory_ + "/place-1.uploads"); }

    testing::FakeStore store_;
};

TEST_F(WithoutAJournalOfItsOwn, AMountKnowsWhatEarlierOnesLeft) {
    const MountJournals journals = open_journals(directory_, "place");
    EXPECT_EQ(journals.own->path(), "");
    EXPECT_FALSE(journals.another_lives);
    ASSERT_EQ(journals.leftovers.size(), 1U);
    EXPECT_EQ(journals.leftovers[0].begun.failures.at(0).key, "run/a.pt");
    EXPECT_TRUE(open_journals(directory_, "place").another_lives) << "its lock is held";
}

TEST_F(WithoutAJournalOfItsOwn, NothingIsRemovedBeforeAllHasEnded) {
    EXPECT_NE(take_over(), nullptr);
    EXPECT_TRUE(is_there()) << "of a mount that ended before others were told";
    const auto journal = take_over();
    EXPECT_TRUE(is_there());
    journal->failure_ended("run/a.pt");
    EXPECT_FALSE(is_there());
}

TEST_F(WithoutAJournalOfItsOwn, WhatOthersCouldHaveWrittenIsNotBelieved) {
    stdfs::permissions(directory_, stdfs::perms(0775));
    EXPECT_TRUE(open_journals(directory_, "place").leftovers.empty());
    EXPECT_TRUE(open_journals(std::nullopt, "place").leftovers.empty());
}

TEST_F(MountJournalTest, OneThatCannotBeReadIsKept) {
    leave("place-1.uploads", "+id1 run/a.pt\n");
    stdfs::resize_file(directory_ + "/place-1.uploads", (std::uintmax_t{64} << 20) + 1);
    EXPECT_TRUE(take_leftovers(directory_, "place").empty());
    EXPECT_TRUE(stdfs::exists(directory_ + "/place-1.uploads"));
}

TEST_F(MountJournalTest, ThoseOfALiveMountAreNotLeftOver) {
    const auto alive = journal();
    alive->begun({"run/a.pt", "id1"});
    EXPECT_TRUE(take_leftovers(directory_, "place").empty());
}

TEST_F(MountJournalTest, ThoseOfOtherPlacesAreNotLeftOver) {
    leave("other-1.uploads", "+id1 run/a.pt\n");
    EXPECT_TRUE(take_leftovers(directory_, "place").empty());
    EXPECT_TRUE(take_leftovers("/nowhere", "place").empty());
    const std::string place = journal_place("", "s3://bucket/a", "/mnt", "store:9000");
    EXPECT_NE(place, journal_place("", "s3://bucket/b", "/mnt", "store:9000"));
    EXPECT_NE(place, journal_place("", "s3://bucket/a", "/mnt2", "store:9000"));
    EXPECT_NE(place, journal_place("one", "s3://bucket/a", "/mnt", "store:9000"));
    EXPECT_NE(place, journal_place("", "s3://bucket/a", "/mnt", "store:9001"));
}

TEST_F(MountJournalTest, ThoseOfAnotherStoreAreNotLeftOver) {
    const std::string there = journal_place("", "s3://bucket/a", "/mnt", "there:9000");
    leave(there + "-1.uploads", "+id1 run/a.pt\n");
    EXPECT_TRUE(take_leftovers(directory_, journal_place("", "s3://bucket/a", "/mnt", "amazonaws.com")).empty());
    EXPECT_EQ(take_leftovers(directory_, there).size(), 1U);
}

// Of which nobody knows whose they are.
TEST_F(MountJournalTest, ThoseOfVersionsThatDidNotNameTheStoreAre) {
    const std::string here = journal_place("", "s3://bucket/a", "/mnt", "here:9000");
    leave(here.substr(0, here.find('.')) + "-1.uploads", "+id1 run/a.pt\n");
    EXPECT_EQ(take_leftovers(directory_, here).size(), 1U);
}

TEST_F(MountJournalTest, IsWhereItsUserKeepsSuchThings) {
    std::map<std::string, std::string> variables{{"HOME", "/home/a"}};
    const auto environment = [&variables](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    EXPECT_EQ(state_directory("", 0, environment), "/var/lib/ckptfs");
    EXPECT_EQ(state_directory("", 1000, environment), "/home/a/.local/state/ckptfs");
    variables["XDG_STATE_HOME"] = "/state";
    EXPECT_EQ(state_directory("", 1000, environment), "/state/ckptfs");
    EXPECT_EQ(state_directory("/volume", 0, environment), "/volume");
    EXPECT_EQ(state_directory("/volume", 1000, environment), "/volume");
    variables.clear();
    EXPECT_EQ(state_directory("", 1000, environment), std::nullopt);
}

TEST_F(MountJournalTest, ADirectoryThatOthersCanEnterIsNotUsed) {
    stdfs::create_directories(directory_);
    stdfs::permissions(directory_, stdfs::perms::all);
    EXPECT_FALSE(MountJournal::create(directory_, "place"));
}

TEST_F(MountJournalTest, WhereItCannotBeLockedNoFileStays) {
    has_locks = false;
    const auto made = MountJournal::create(directory_, "place");
    has_locks = true;
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().errno_value, ENOLCK);
    EXPECT_TRUE(stdfs::is_empty(directory_));
}

TEST_F(MountJournalTest, IntentsAreThereUntilTheyEnd) {
    const auto made = journal();
    const WallTime asked{std::chrono::seconds(1'700'000'000)};
    const UploadIntent first = made->intend("run/a b.pt", asked);
    const UploadIntent second = made->intend("run/a b.pt", asked);
    made->intent_ended(first);
    const auto intents = parse_journal(content_of(made->path())).intents;
    ASSERT_EQ(intents.size(), 1U);
    EXPECT_EQ(intents[0].key, "run/a b.pt");
    EXPECT_EQ(intents[0].asked, asked);
    made->intent_ended(second);
    EXPECT_EQ(parse_journal(content_of(made->path())).size(), 0U);
    EXPECT_EQ(parse_journal("?1 17 a\n?2 x b\n?3\n?4 18\n!5\n").intents.size(), 1U);
}

TEST_F(MountJournalTest, OneInMemoryKnowsWhatIsOpenAndLeavesNothing) {
    const auto made = MountJournal::in_memory();
    made->begun({"run/a.pt", "id1"});
    EXPECT_TRUE(made->is_open({"run/a.pt", "id1"}));
    EXPECT_FALSE(made->is_open({"run/a.pt", "id2"}));
    made->ended({"run/a.pt", "id1"});
    EXPECT_FALSE(made->is_open({"run/a.pt", "id1"}));
}

TEST_F(MountJournalTest, IsKeptByTheStoreItself) {
    testing::FakeStore store;
    testing::ManualClock clock;
    testing::SteppedTimer timer;
    const auto made = journal();
    LostAnswers answers;
    LostUploads lost({store, timer, clock, *made, answers});
    UploadAborts aborts(store, timer, *made);
    JournaledStore journaled(store, *made, lost, aborts, "run/");
    UploadId upload;
    CreateUploadRequest request;
    request.key = "run/a.pt";
    journaled.create_upload(request, [&](Result<UploadId> begun) { upload = begun.value(); });
    EXPECT_EQ(parse_journal(content_of(made->path())).uploads.size(), 1U);
    journaled.abort_upload(upload, [](const Status& ended) { EXPECT_TRUE(ended); });
    EXPECT_TRUE(parse_journal(content_of(made->path())).uploads.empty());
}

TEST_F(MountJournalTest, KeepsTheIntentsOfAKilledMountUntilOthersAreTold) {
    testing::FakeStore store;
    testing::ManualClock clock;
    testing::SteppedTimer timer;
    const auto made = journal();
    LostAnswers answers;
    LostUploads lost({store, timer, clock, *made, answers});
    bool can_be_told = false;
    adopt(lost, {{"run/a.pt", clock.wall_now(), 1}}, [&](const UploadIntent& /*last*/, const StoreDone<void>& done) {
        done(can_be_told ? Status() : failure(EIO, "the record was refused"));
    });
    clock.move(std::chrono::minutes(2));
    timer.run();
    const auto intents = parse_journal(content_of(made->path())).intents;
    ASSERT_EQ(intents.size(), 1U);
    EXPECT_EQ(intents[0].key, "run/a.pt");
    can_be_told = true;
    timer.run();
    EXPECT_EQ(parse_journal(content_of(made->path())).size(), 0U);
}

TEST_F(MountJournalTest, HoldsWhichFailuresOthersWereNotToldOf) {
    auto made = journal();
    made->failure_begun("run/a b.pt", "host: node7\n");
    made->failure_begun("run/a b.pt", "host: node7\nreason: no room 100%\n");
    made->failure_begun("run/c.pt", "host: node7\n");
    for (int i = 0; i < 10'000; ++i) {
        made->failure_begun("run/d.pt", "reason: " + std::to_string(i) + "\n");
        made->failure_ended("run/d.pt");
    }
    made->failure_ended("run/c.pt");
    EXPECT_LT(stdfs::file_size(made->path()), 300U << 10);
    made.reset();
    const auto leftovers = take_leftovers(directory_, "place");
    ASSERT_EQ(leftovers.size(), 1U);
    const std::vector<UntoldFailure>& failures = leftovers[0].begun.failures;
    ASSERT_EQ(failures.size(), 1U);
    EXPECT_EQ(leftovers[0].begun.size(), 1U);
    EXPECT_EQ(failures[0].key, "run/a b.pt");
    EXPECT_EQ(failures[0].record, "host: node7\nreason: no room 100%\n");
}

TEST_F(MountJournalTest, OfAnUploadThatWasMadeGoodNothingIsLeftOnceItHasEnded) {
    const JournalContents contents = parse_journal("+id1 a\n*id1\n+id2 b\n*id2\n-id2\n*id9\n+id3 c\n");
    ASSERT_EQ(contents.made_good.size(), 1U);
    EXPECT_EQ(contents.made_good[0].key, "a");
    ASSERT_EQ(contents.uploads.size(), 1U);
    EXPECT_EQ(contents.uploads[0].key, "c");
    EXPECT_TRUE(parse_journal("?1 17 a\n+id a\n=1\n*id\n").intents.at(0).file_ended);
    const auto made = journal();
    made->begun({"run/kept", "i d"});
    made->made_good({"run/kept", "i d"});
    for (int i = 0; i < 20'000; ++i) {
        made->object_begun("run/" + std::to_string(i));
        made->object_ended("run/" + std::to_string(i));
    }
    EXPECT_EQ(parse_journal(content_of(made->path())).made_good.size(), 1U) << "after the file was rewritten";
}

TEST_F(MountJournalTest, OfAnIntentThatWasAnsweredNothingIsLeftOnceItsUploadHasEnded) {
    const auto intent = [](std::string_view text) { return parse_journal(text).intents.at(0); };
    EXPECT_FALSE(intent("?1 17 a\n+id a\n").file_ended);
    EXPECT_FALSE(intent("?1 17 a\n+id a\n=1\n").file_ended);
    EXPECT_TRUE(intent("?1 17 a\n+id a\n=1\n-id\n").file_ended);
    EXPECT_TRUE(parse_journal("=1\n?1 17 a\n=1\n!1\n").intents.empty());
    const auto made = journal();
    const UploadIntent answered = made->intend("run/kept", WallTime(std::chrono::seconds(17)));
    made->intent_answered(answered);
    for (int i = 0; i < 20'000; ++i) {
        made->object_begun("run/" + std::to_string(i));
        made->object_ended("run/" + std::to_string(i));
    }
    EXPECT_TRUE(intent(content_of(made->path())).file_ended) << "after the file was rewritten";
}

}  // namespace
}  // namespace ckptfs
