// SPDX-License-Identifier: Apache-2.0
#include "daemon/mount_status.h"

#include <gtest/gtest.h>

#include "daemon/status_json.h"
#include "support/memory_file_system.h"

namespace ckptfs {
namespace {

MountStatus busy() {
    MountStatus status;
    status.source = "s3://bucket/run/";
    status.mount_point = "/mnt/a";
    status.version = "1.2.3";
    status.pid = 77;
    status.seconds_mounted = 7384;
    status.files_open = 3;
    status.files_unsaved = 1;
    status.files_failed = 2;
    status.files_held_back = 1;
    status.names_known = 65'536;
    status.files_unwritten = 2;
    status.unwritten = {{"run/lost.pt", "PutObject: AccessDenied"}};
    status.files = {{"run/model.pt", 3 << 20, 2 << 20, 1 << 20, 4, true, ""},
                    {"run/bad.pt", 1, 0, 0, 0, true, "AccessDenied"}};
    status.renames = {"step-1"};
    status.failures_untold = 1;
    status.files_read = 2;
    status.reads = {{"run/old.pt", 8 << 20, 2 << 20}};
    status.totals = {50 << 20, 8 << 20, 40 << 20, 7 << 20};
    status.rates = {5 << 20, 0, 4 << 20, 1 << 20};
    status.store = {70, 3, 0, 1, 9, 2, 64};
    status.cache_hits = 3;
    status.cache_misses = 1;
    status.memory_used = 300 << 20;
    status.memory_for_reading = 100 << 20;
    status.memory_total = 1000 << 20;
    status.memory_resident = 640 << 20;
    status.disk = {"/nvme/kept", 8 << 20, {5 << 20, 6 << 20, 7 << 20, 3, 2, "cannot read /nvme/kept/a: EIO"}, 0, 2,
                   false};
    status.unsent = {true,           3, 7 << 20,         90 << 20,         75, 1, 12, 9, "run/a.pt",
                     "AccessDenied", 2, "run/.metadata", {"own", "other"}, 1};
    status.problems = {"2026-01-01T00:00:00 warning: slow"};
    return status;
}

TEST(MountStatus, IsReadAsItIsWritten) {
    EXPECT_EQ(parse_status(json_of(busy())), busy());
    EXPECT_EQ(parse_status(json_of(MountStatus())), MountStatus());
    for (const char* wrong : {"", "{}", "[]", "1", R"({"files": [{}]})"}) {
        EXPECT_FALSE(parse_status(wrong)) << wrong;
    }
    const std::string good = json_of(MountStatus());
    const std::string pid = "\"pid\":0";
    ASSERT_NE(good.find(pid), std::string::npos) << good;
    const auto with = [&](const std::string& number) {
        return parse_status(std::string(good).replace(good.find(pid), pid.size(), "\"pid\":" + number));
    };
    EXPECT_TRUE(with("7.5"));
    EXPECT_FALSE(with("3.3e58"));
    EXPECT_FALSE(with("-0.5"));
}

class CountedFileSystem final : public fs::MemoryFileSystem {
public:
    CountedFileSystem() : MemoryFileSystem({}) {}
    [[nodiscard]] fs::FileStatistics statistics() const override {
        fs::FileStatistics statistics;
        statistics.files_failed = 2;
        statistics.files_held_back = 3;
        statistics.names_known = 65'536;
        statistics.removals_under_way = 5;
        statistics.failures_untold = 7;
        return statistics;
    }
};

TEST(MountStatus, SaysWhatTheFileSystemCounts) {
    MountStatus status;
    set_files(status, CountedFileSystem());
    EXPECT_EQ(status.files_failed, 2U);
    EXPECT_EQ(status.files_held_back, 3U);
    EXPECT_EQ(status.names_known, 65'536U);
    EXPECT_EQ(status.removals, 5U);
    EXPECT_EQ(status.failures_untold, 7U);
    // Scripts ask for it by its name.
    EXPECT_NE(json_of(status).find(R"("names_known":65536,)"), std::string::npos);
}

TEST(MountStatus, ADaemonOfBeforeAnUpgradeIsUnderstood) {
    std::string earlier = json_of(MountStatus());
    const std::size_t begin = earlier.find(R"("disk":{)");
    const std::string disk = earlier.substr(begin, earlier.find('}', begin) + 2 - begin);
    const std::size_t unsent_begin = earlier.find(R"("unsent":{)");
    const std::string unsent = earlier.substr(unsent_begin, earlier.find('}', unsent_begin) + 2 - unsent_begin);
    for (const std::string& field :
         {std::string(R"("files_unwritten":0,)"), std::string(R"("unwritten":[],)"),
          std::string(R"("memory_resident":0,)"), std::string(R"("late_reads":0,)"), std::string(R"("names_known":0,)"),
          std::string(R"("failures_untold":0,)"), disk, unsent}) {
        ASSERT_NE(earlier.find(field), std::string::npos) << earlier;
        earlier.erase(earlier.find(field), field.size());
    }
    EXPECT_EQ(parse_status(earlier), MountStatus());
}

TEST(MountStatus, IsToldInWords) {
    EXPECT_EQ(
        status_text(busy()),
        "s3://bucket/run/ at /mnt/a: ckptfs 1.2.3, pid 77, mounted for 2 h 3 min\n"
        "safe to stop: no, 1 file not saved yet, 1 rename under way, 1 failed file not recorded for other mounts yet, "
        "3 changes on the disk only\n"
        "failed since it was mounted: 2 files\n"
        "not published, because their writer was killed: 1 file\n"
        "still failed (not written again or removed; commit markers are held back): 2 files\n"
        "  run/lost.pt: PutObject: AccessDenied\n"
        "  and 1 that failed before\n"
        "now: 5.0 MiB/s written, 0.0 read; 4.0 sent to the store, 1.0 received\n"
        "store: 9 requests in flight (limit 64), 2 waiting; 70 in total, 3 retried, 1 late read asked again\n"
        "memory: 300.0 of 1000.0 MiB (640.0 resident), 100.0 MiB of it read ahead or cached; 75 % of 4 reads "
        "came from it\n"
        "disk: 7.0 of 8.0 MiB in /nvme/kept; 5.0 MiB read from it, 6.0 written, 2 files to be kept yet, 3 MiB "
        "left out because it is too slow, "
        "2 MiB damaged; not all of it is used for now: cannot read /nvme/kept/a: EIO\n"
        "acknowledged by the disk: 3 changes, 7.0 of 90.0 MiB, not in the bucket yet, the oldest for 1 min; 1 call "
        "waits for room\n"
        "  2 commit markers given up, not in the bucket (write again): run/.metadata, ...\n"
        "  run/a.pt: cannot be sent, and holds back what comes after it: AccessDenied\n"
        "open for writing: 3 files\n"
        "  run/model.pt: 3.0 MiB written, 1.0 MiB in the store, 4 parts in flight\n"
        "  run/bad.pt: failed: AccessDenied\n"
        "  and 1 smaller\n"
        "being read: 2 files\n"
        "  run/old.pt: 2.0 of 8.0 MiB\n"
        "  and 1 smaller\n"
        "renaming: step-1\n"
        "last problems:\n"
        "  2026-01-01T00:00:00 warning: slow\n");
}

TEST(MountStatus, ItIsSafeToStopOnceAllIsSaved) {
    MountStatus status = busy();
    EXPECT_FALSE(status.safe_to_stop());
    status.files_unsaved = 0;
    EXPECT_FALSE(status.safe_to_stop());
    status.renames.clear();
    EXPECT_FALSE(status.safe_to_stop());
    EXPECT_NE(status_text(status).find("safe to stop: no, 1 failed file not recorded for other mounts yet, 3 changes"),
              std::string::npos);
    status.failures_untold = 0;
    EXPECT_FALSE(status.safe_to_stop());
    EXPECT_NE(status_text(status).find("safe to stop: no, 3 changes on the disk only\n"), std::string::npos);
    status.unsent.changes = 0;
    EXPECT_TRUE(status.safe_to_stop());
    status.unsent.places_left = 1;
    EXPECT_FALSE(status.safe_to_stop());
    EXPECT_NE(status_text(status).find("safe to stop: no, 1 mount before this one left changes on the disk"),
              std::string::npos);
    status.unsent.places_left = 0;
    status.removals = 40;
    EXPECT_FALSE(status.safe_to_stop());
    EXPECT_NE(status_text(status).find("safe to stop: no, 40 removals under way\n"), std::string::npos);
    status.removals = 0;
    EXPECT_NE(status_text(status).find("safe to stop: yes\n"), std::string::npos);
}

MountStatus acknowledging(std::int64_t pid, std::uint64_t last_acknowledged, std::uint64_t all_sent_up_to,
                          std::vector<std::string> places = {"place"}, std::uint64_t elsewhere = 0) {
    MountStatus status;
    status.pid = pid;
    status.unsent.acknowledges = true;
    status.unsent.last_acknowledged = last_acknowledged;
    status.unsent.all_sent_up_to = all_sent_up_to;
    status.unsent.places = std::move(places);
    status.unsent.changes_elsewhere = elsewhere;
    return status;
}

bool is_sent(const MountStatus& before, const MountStatus& now) {
    return AcknowledgedByNow(before).is_sent(now).value();
}

TEST(AcknowledgedByNow, IsSentOnceTheMountSaysSo) {
    EXPECT_FALSE(is_sent(acknowledging(17, 500, 499), acknowledging(17, 500, 499)));
    EXPECT_TRUE(is_sent(acknowledging(17, 500, 499), acknowledging(17, 501, 500)));
    EXPECT_TRUE(is_sent(MountStatus(), acknowledging(18, 3, 0))) << "the bucket acknowledged";
    EXPECT_TRUE(is_sent(acknowledging(17, 5, 5), acknowledging(18, 3, 0, {"another"}))) << "nothing was left";
    EXPECT_TRUE(is_sent(acknowledging(17, 5, 5), MountStatus()));
}

// An end that leaves nothing lets the numbers begin anew.
TEST(AcknowledgedByNow, IsAlsoWhatIsBeingRemovedInABatch) {
    for (const bool acknowledges : {true, false}) {
        MountStatus status = acknowledging(17, 500, 500);
        status.unsent.acknowledges = acknowledges;
        status.removals = 20;
        AcknowledgedByNow acknowledged(status);
        EXPECT_FALSE(acknowledged.is_sent(status).value());
        // The disk has taken it.
        status.removals = 0;
        status.unsent.last_acknowledged = 520;
        EXPECT_EQ(acknowledged.is_sent(status).value(), !acknowledges);
        status.removals = 7;
        status.unsent.last_acknowledged = 540;
        status.unsent.all_sent_up_to = 520;
        EXPECT_TRUE(acknowledged.is_sent(status).value()) << "later ones do not count";
    }
}

TEST(AcknowledgedByNow, OfTheNextMountItIsWhatThatHas) {
    AcknowledgedByNow acknowledged(acknowledging(17, 500, 0));
    EXPECT_FALSE(acknowledged.is_sent(acknowledging(18, 2, 1)).value());
    EXPECT_TRUE(acknowledged.is_sent(acknowledging(18, 3, 2)).value());
    // From before an upgrade.
    EXPECT_FALSE(is_sent(acknowledging(17, 500, 0, {}), acknowledging(18, 2, 1)));
    EXPECT_TRUE(is_sent(acknowledging(17, 500, 0, {}), acknowledging(18, 2, 2)));
}

TEST(AcknowledgedByNow, IsAlsoWhatIsLeftOnOtherPlaces) {
    EXPECT_FALSE(is_sent(acknowledging(17, 0, 0, {"own", "place"}, 3), acknowledging(17, 0, 0, {"own", "place"}, 1)));
    EXPECT_TRUE(is_sent(acknowledging(17, 0, 0, {"own", "place"}, 3), acknowledging(17, 0, 0, {"own", "place"}, 0)));
    // Which the next mount has as another one.
    EXPECT_FALSE(is_sent(acknowledging(17, 500, 400), acknowledging(18, 0, 0, {"own", "place"}, 3)));
    EXPECT_TRUE(is_sent(acknowledging(17, 500, 400), acknowledging(18, 9, 0, {"own", "place"}, 0)));
}

TEST(AcknowledgedByNow, OfAMountWithoutThePlaceItIsNotKnown) {
    AcknowledgedByNow acknowledged(acknowledging(17, 500, 400));
    EXPECT_EQ(acknowledged.is_sent(acknowledging(17, 0, 0, {"another"})).error().errno_value, EIO);
    // One of several, which the next one could not open.
    AcknowledgedByNow both(acknowledging(17, 500, 400, {"place", "other"}, 3));
    EXPECT_EQ(both.is_sent(acknowledging(18, 0, 0, {"place"})).error().errno_value, EIO);
    EXPECT_FALSE(both.is_sent(acknowledging(17, 500, 400, {"place", "other"}, 0)).value());
    EXPECT_TRUE(both.is_sent(acknowledging(18, 0, 0, {"place"})).value()) << "nothing was left there";
    // Nor where the next one leaves the disk alone.
    EXPECT_EQ(acknowledged.is_sent(MountStatus()).error().errno_value, EIO);
}

}  // namespace
}  // namespace ckptfs
