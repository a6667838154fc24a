// SPDX-License-Identifier: Apache-2.0
#include "base/proc_text.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <string>

namespace ckptfs {
namespace {

std::string stat_text(const std::string& name, const std::string& flags, const std::string& exit_code) {
    return "3259 (" + name + ") R 3252 3252 4653 0 -1 " + flags +
           " 100 0 0 0 0 0 0 0 20 0 1 0 420888 3133440 383 18446744073709551615 94920690982912 94920691002793 "
           "140728309914096 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 94920691018800 94920691020416 94921564057600 "
           "140728309918422 140728309918442 140728309918442 140728309919723 " +
           exit_code + "\n";
}

TEST(ParseTaskStat, ReadsFlagsAndExitCode) {
    const auto running = parse_task_stat(stat_text("cat", "4194304", "0"));
    ASSERT_TRUE(running);
    EXPECT_FALSE(running->exiting);
    EXPECT_EQ(running->exit_code, 0);
    // PF_EXITING | PF_SIGNALED | PF_RANDOMIZE, core dumped by SIGSEGV.
    const auto killed = parse_task_stat(stat_text("python3", "4195332", "139"));
    ASSERT_TRUE(killed);
    EXPECT_TRUE(killed->exiting);
    EXPECT_EQ(killed->exit_code, 139);
}

TEST(ParseTaskStat, TellsWhatExitsFromWhatHasEnded) {
    for (const char state : {'R', 'S', 'D', 'Z', 'X'}) {
        std::string text = stat_text("cat", "4", "9");
        text[text.find(") R") + 2] = state;
        EXPECT_EQ(parse_task_stat(text)->has_ended, state == 'Z' || state == 'X') << state;
    }
}

TEST(ParseTaskStat, TakesAnyProgramName) {
    for (const char* name : {"", ")", "a) R 1 2 3", "two words", "((", "x\n)"}) {
        const auto stat = parse_task_stat(stat_text(name, "4", "9"));
        ASSERT_TRUE(stat) << name;
        EXPECT_TRUE(stat->exiting) << name;
        EXPECT_EQ(stat->exit_code, 9) << name;
    }
}

TEST(ParseTaskStat, CountsFieldsFromTheFrontWhenNewerKernelsAddSome) {
    std::string text = stat_text("cat", "4", "9");
    text.pop_back();
    EXPECT_EQ(parse_task_stat(text + " 77 88\n")->exit_code, 9);
}

TEST(ParseTaskStat, RefusesWhatIsNotAStat) {
    EXPECT_FALSE(parse_task_stat(""));
    EXPECT_FALSE(parse_task_stat("3259 cat R 1 2 3"));
    EXPECT_FALSE(parse_task_stat("3259 (cat) R 1 2 3"));
    EXPECT_FALSE(parse_task_stat(stat_text("cat", "many", "0")));
    EXPECT_FALSE(parse_task_stat(stat_text("cat", "4", "")));
}

std::string status_text(const std::string& own, const std::string& shared) {
    return "Name:\tTgid:\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4711\nNgid:\t0\nPid:\t4712\nSigQ:\t0/96000\n"
           "SigPnd:\t" +
           own + "\nShdPnd:\t" + shared + "\nSigBlk:\t0000000000000100\nCapEff:\t000001ffffffffff\n";
}

TEST(ParseTaskStatus, ReadsTheThreadGroup) {
    const auto status = parse_task_status(status_text("0000000000000000", "0000000000000000"));
    ASSERT_TRUE(status);
    EXPECT_EQ(status->thread_group, 4711);
    EXPECT_FALSE(status->sigkill_pending);
}

TEST(ParseTaskStatus, SeesSigkillAndNothingElse) {
    EXPECT_TRUE(parse_task_status(status_text("0000000000000100", "0000000000000000"))->sigkill_pending);
    EXPECT_TRUE(parse_task_status(status_text("0000000000000000", "0000000000004100"))->sigkill_pending);
    // SIGALRM, SIGTERM, SIGUSR1.
    EXPECT_FALSE(parse_task_status(status_text("0000000000002000", "0000000000004200"))->sigkill_pending);
}

TEST(ParseTaskStatus, TellsAKilledProcessFromAThreadThatMustEnd) {
    EXPECT_FALSE(parse_task_status(status_text("0000000000000100", "0000000000000000"))->process_sigkill_pending);
    EXPECT_TRUE(parse_task_status(status_text("0000000000000000", "0000000000004100"))->process_sigkill_pending);
}

TEST(ParseTaskStatus, SeesACoreDump) {
    const std::string text = status_text("0000000000000000", "0000000000000000");
    EXPECT_FALSE(parse_task_status(text)->is_dumping_core) << "not told";
    EXPECT_FALSE(parse_task_status(text + "CoreDumping:\t0\n")->is_dumping_core);
    EXPECT_TRUE(parse_task_status(text + "CoreDumping:\t1\n")->is_dumping_core);
}

TEST(ParseTaskStatus, RefusesWhatIsNotAStatus) {
    EXPECT_FALSE(parse_task_status(""));
    EXPECT_FALSE(parse_task_status("Tgid:\t4711\n"));
    EXPECT_FALSE(parse_task_status("Tgid:\nSigPnd:\t0\nShdPnd:\t0\n"));
    EXPECT_FALSE(parse_task_status("Tgid:\t-1\nSigPnd:\t0\nShdPnd:\t0\n"));
}

TEST(MayTraceEveryone, LooksAtTheEffectiveCapabilities) {
    EXPECT_TRUE(may_trace_everyone("CapPrm:\t0000000000000000\nCapEff:\t0000000000080000\n"));
    EXPECT_FALSE(may_trace_everyone("CapPrm:\t000001ffffffffff\nCapEff:\t000001fffff7ffff\n"));
    EXPECT_FALSE(may_trace_everyone(""));
}

TEST(ParseDescriptorInfo, TellsWhoCanWrite) {
    const auto info = [](const std::string& flags) {
        return parse_descriptor_info("pos:\t4096\nflags:\t" + flags + "\nmnt_id:\t24\nino:\t18446744073709551615\n");
    };
    EXPECT_EQ(info("0100000")->inode, 18446744073709551615ULL);
    EXPECT_EQ(info("0100000")->mount_id, 24);
    EXPECT_FALSE(info("0100000")->writable);
    EXPECT_TRUE(info("0100001")->writable);
    EXPECT_TRUE(info("02100002")->writable);
    // O_PATH.
    EXPECT_FALSE(info("012000000")->writable);
}

TEST(ParseDescriptorInfo, CannotTellWithoutTheInode) {
    EXPECT_FALSE(parse_descriptor_info("pos:\t0\nflags:\t0100002\nmnt_id:\t24\n"));
}

TEST(ParseOpenCall, OfAThreadThatWaitsInOpen) {
    const std::string arguments = " 0xffffffffffffff9c 0x7ffd10 0x80241 0x1b6 0x0 0x0 0x7ffc00 0x7f0000\n";
    const auto call = parse_open_call(std::to_string(SYS_openat) + arguments);
    ASSERT_TRUE(call);
    EXPECT_EQ(call->path, 0x7FFD10U);
    EXPECT_EQ(call->flags, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    EXPECT_FALSE(parse_open_call(std::to_string(SYS_mkdirat) + arguments));
    EXPECT_FALSE(parse_open_call("running\n"));
    EXPECT_FALSE(parse_open_call("-1 0x7ffc00 0x7f0000\n"));
    EXPECT_FALSE(parse_open_call(std::to_string(SYS_openat) + " 1 2 3 4\n"));
    EXPECT_FALSE(parse_open_call(""));
}

TEST(OnlyEndsIn, TheLastComponentCountsIfNoOtherHasItsName) {
    EXPECT_TRUE(only_ends_in("/mnt/step_5/shard", "shard"));
    EXPECT_TRUE(only_ends_in("shard", "shard"));
    EXPECT_TRUE(only_ends_in("a//./../shard", "shard"));
    EXPECT_FALSE(only_ends_in("/mnt/step_5/shard", "step_5"));
    EXPECT_FALSE(only_ends_in("/mnt/shard/shard", "shard"));
    EXPECT_FALSE(only_ends_in("shard/../shard", "shard"));
    EXPECT_FALSE(only_ends_in("/mnt/shard/", "shard"));
    EXPECT_FALSE(only_ends_in("/mnt/a_shard", "shard"));
    EXPECT_FALSE(only_ends_in("/mnt/", ""));
    EXPECT_FALSE(only_ends_in("", "shard"));
}

constexpr std::string_view kMountinfo =
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "24 22 0:5 / /mnt/check\\040points rw,nosuid,nodev shared:9 - fuse.ckptfs s3://bucket/run rw\n"
    "25 22 0:6 / /mnt/twice rw - tmpfs tmpfs rw\n"
    "26 25 0:7 / /mnt/twice rw - fuse.ckptfs s3://bucket/x rw\n"
    "nonsense\n";

TEST(FindMount, ByDirectory) {
    EXPECT_EQ(find_mount_on(kMountinfo, "/mnt/check points")->mount_id, 24);
    EXPECT_EQ(find_mount_on(kMountinfo, "/mnt/check points")->device, "0:5");
    EXPECT_EQ(find_mount_on(kMountinfo, "/")->mount_id, 22);
    EXPECT_FALSE(find_mount_on(kMountinfo, "/mnt"));
    EXPECT_FALSE(find_mount_on(kMountinfo, ""));
}

TEST(FindMount, TheOneOnTopCounts) {
    EXPECT_EQ(find_mount_on(kMountinfo, "/mnt/twice")->mount_id, 26);
}

TEST(FindMount, ById) {
    EXPECT_EQ(find_mount_by_id(kMountinfo, 25)->device, "0:6");
    EXPECT_FALSE(find_mount_by_id(kMountinfo, 23));
}

TEST(IsLocked, ByWhoHoldsTheLockAndNotByWhoWaits) {
    constexpr std::string_view kLocks =
        "1: FLOCK  ADVISORY  WRITE 3443 00:2f:12 0 EOF\n"
        "2: FLOCK  ADVISORY  WRITE 3443 00:2f:1 0 EOF\n"
        "2: -> FLOCK  ADVISORY  WRITE 3444 00:2f:13 0 EOF\n"
        "3: POSIX  ADVISORY  READ  17 103:100:4096 0 99\n"
        "nonsense\n";
    EXPECT_TRUE(is_locked(kLocks, "0:47", 12, {}));
    EXPECT_FALSE(is_locked(kLocks, "0:47", 13, {}));
    EXPECT_FALSE(is_locked(kLocks, "0:47", 2, {}));
    EXPECT_FALSE(is_locked(kLocks, "0:4", 12, {}));
    EXPECT_TRUE(is_locked(kLocks, "259:256", 4096, {}));
    EXPECT_FALSE(is_locked(kLocks, "259", 4096, {}));
    EXPECT_FALSE(is_locked(kLocks, "", 12, {}));
    EXPECT_FALSE(is_locked("", "0:47", 12, {}));
    EXPECT_TRUE(is_locked(kLocks, "0:47", 12, 3443));
    EXPECT_FALSE(is_locked(kLocks, "0:47", 12, 443));
    EXPECT_FALSE(is_locked(kLocks, "0:47", 13, 3444));
}

}  // namespace
}  // namespace ckptfs
