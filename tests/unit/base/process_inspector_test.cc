// SPDX-License-Identifier: Apache-2.0
// Against the running kernel, with children of our own.
#include "base/process_inspector.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/io_priority.h"
#include "base/text_file.h"

namespace ckptfs {
namespace {

constexpr pid_t kNobodysPid = 0x3FFFFFFF;

constexpr auto kDeadline = std::chrono::seconds(30);

void wait_for_ever() {
    while (true) {
        pause();
    }
}

// A child that tells when it has begun, and is killed and reaped at the end.
class Child {
public:
    explicit Child(const std::function<void()>& work, const std::function<void()>& rest = wait_for_ever) {
        int ends[2];
        EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
        const FileDescriptor reading(ends[0]);
        FileDescriptor writing(ends[1]);
        pid_ = fork();
        if (pid_ == 0) {
            work();
            [[maybe_unused]] const auto written = write(writing.get(), "x", 1);
            rest();
        }
        writing.reset();
        char begun = 0;
        [[maybe_unused]] const auto count = read(reading.get(), &begun, 1);
    }
    ~Child() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    // Dead, and left unreaped so that it can be looked at.
    void wait_until_dead() const {
        siginfo_t info{};
        ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
    }

private:
    pid_t pid_ = -1;
};

class TemporaryFile {
public:
    TemporaryFile() : fd_(mkstemp(path_)) {
        struct stat attributes {};
        EXPECT_EQ(fstat(fd_.get(), &attributes), 0);
        inode_ = attributes.st_ino;
    }
    ~TemporaryFile() { unlink(path_); }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    [[nodiscard]] FileDescriptor open(int flags) const { return FileDescriptor(::open(path_, flags | O_CLOEXEC)); }
    [[nodiscard]] std::uint64_t inode() const { return inode_; }
    void close() { fd_.reset(); }

private:
    char path_[32] = "/tmp/ckptfs_inspect_XXXXXX";
    FileDescriptor fd_;
    std::uint64_t inode_ = 0;
};

TEST(ProcInspector, MapsAThreadToItsProcess) {
    const ProcInspector inspector;
    EXPECT_EQ(inspector.thread_group(getpid()), getpid());
    std::promise<std::optional<pid_t>> seen;
    std::thread([&] { seen.set_value(inspector.thread_group(gettid())); }).join();
    EXPECT_EQ(seen.get_future().get(), getpid());
    EXPECT_EQ(inspector.thread_group(kNobodysPid), std::nullopt);
    // Of a process in another PID namespace.
    EXPECT_EQ(inspector.thread_group(0), std::nullopt);
}

TEST(ProcInspector, CountsWritableDescriptorsOfOneInode) {
    const ProcInspector inspector;
    TemporaryFile file;
    const TemporaryFile other;
    EXPECT_EQ(inspector.writable_descriptors(getpid(), file.inode(), ProcInspector::kAnyAccess), 1);
    const FileDescriptor second = file.open(O_WRONLY);
    const FileDescriptor duplicate(dup(second.get()));
    const FileDescriptor reader = file.open(O_RDONLY);
    EXPECT_EQ(inspector.writable_descriptors(getpid(), file.inode(), ProcInspector::kAnyAccess), 3);
    EXPECT_EQ(inspector.writable_descriptors(getpid(), file.inode(), O_WRONLY), 2);
    EXPECT_EQ(inspector.writable_descriptors(getpid(), file.inode(), O_RDWR), 1);
    file.close();
    EXPECT_EQ(inspector.writable_descriptors(getpid(), file.inode(), ProcInspector::kAnyAccess), 2);
    EXPECT_EQ(inspector.writable_descriptors(getpid(), other.inode(), ProcInspector::kAnyAccess), 1);
    EXPECT_EQ(inspector.writable_descriptors(kNobodysPid, file.inode(), ProcInspector::kAnyAccess), std::nullopt);
    EXPECT_EQ(inspector.writable_descriptors(0, file.inode(), ProcInspector::kAnyAccess), std::nullopt);
}

TEST(ProcInspector, AChildIsHandedWhatAnExecWouldLeaveOpen) {
    const ProcInspector inspector;
    TemporaryFile file;
    const FileDescriptor writing = file.open(O_WRONLY);
    file.close();
    const Child inheritor([] {});
    EXPECT_EQ(inspector.writable_descriptors(inheritor.pid(), file.inode(), ProcInspector::kAnyAccess), 1);
    EXPECT_FALSE(inspector.handed_down(file.inode(), getpid())) << "closed by an exec";
    const auto hand_over = [&file] { fcntl(file.open(O_WRONLY).release(), F_SETFD, 0); };
    const auto hand_to_reader = [&file] { fcntl(file.open(O_RDONLY).release(), F_SETFD, 0); };
    {
        const Child reader(hand_to_reader);
        EXPECT_FALSE(inspector.handed_down(file.inode(), getpid()));
    }
    const Child child([&] {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            hand_over();
            wait_for_ever();
        }
    });
    while (!inspector.handed_down(file.inode(), getpid())) {
        std::this_thread::yield();
    }
    EXPECT_TRUE(inspector.handed_down(file.inode(), child.pid()));
    EXPECT_FALSE(inspector.handed_down(file.inode(), inheritor.pid()));
    EXPECT_FALSE(inspector.handed_down(file.inode(), kNobodysPid));
}

TEST(ProcInspector, CountsOnlyOnItsOwnMount) {
    ProcInspector inspector;
    const TemporaryFile file;
    // /proc is mounted, and holds no file of /tmp.
    ASSERT_TRUE(inspector.set_mount_point("/proc"));
    EXPECT_EQ(inspector.writable_descriptors(getpid(), file.inode(), ProcInspector::kAnyAccess), 0);
    EXPECT_FALSE(inspector.set_mount_point("/no/such/mount"));
    EXPECT_EQ(inspector.set_mount_point("/no/such/mount").error().errno_value, ENOENT);
}

TEST(ProcInspector, FindsOtherWriters) {
    const ProcInspector inspector;
    TemporaryFile file;
    EXPECT_TRUE(inspector.written_by_others(file.inode(), kNobodysPid));
    EXPECT_FALSE(inspector.written_by_others(file.inode(), getpid()));
    {
        const Child child([&] { static FileDescriptor held = file.open(O_WRONLY); });
        EXPECT_TRUE(inspector.written_by_others(file.inode(), getpid()));
        EXPECT_TRUE(inspector.written_by_others(file.inode(), child.pid()));
        file.close();
        // The child has both the inherited descriptor and its own.
        EXPECT_EQ(inspector.writable_descriptors(child.pid(), file.inode(), ProcInspector::kAnyAccess), 2);
        EXPECT_FALSE(inspector.written_by_others(file.inode(), child.pid()));
    }
    EXPECT_FALSE(inspector.written_by_others(file.inode(), kNobodysPid));
}

TEST(ProcInspector, CountsThroughAThreadWhenTheMainThreadIsGone) {
    const ProcInspector inspector;
    const TemporaryFile file;
    // The bare call: pthread_exit would unwind the stack and close the file.
    const Child child([] { std::thread(wait_for_ever).detach(); }, [] { syscall(SYS_exit, 0); });
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    const std::string status_file = "/proc/" + std::to_string(child.pid()) + "/status";
    while (read_text_file(AT_FDCWD, status_file.c_str()).value_or("").find("State:\tZ") == std::string::npos) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "its main thread goes on";
        std::this_thread::yield();
    }
    EXPECT_EQ(inspector.writable_descriptors(child.pid(), file.inode(), ProcInspector::kAnyAccess), 1);
    EXPECT_TRUE(inspector.written_by_others(file.inode(), getpid()));
}

// A pipe: who opens it to write waits for one who reads.
class OpenOfAPipe {
public:
    OpenOfAPipe(int flags, const std::string& way) {
        EXPECT_NE(mkdtemp(directory_), nullptr);
        pipe_ = std::string(directory_) + "/pipe";
        EXPECT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
        const std::string path = directory_ + way + "/pipe";
        child_.emplace([] {}, [path, flags] { static_cast<void>(open(path.c_str(), flags, 0600)); });
        const auto deadline = std::chrono::steady_clock::now() + kDeadline;
        while (!is_waiting() && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::yield();
        }
        EXPECT_TRUE(is_waiting());
    }
    ~OpenOfAPipe() {
        child_.reset();
        unlink(pipe_.c_str());
        rmdir(directory_);
    }
    OpenOfAPipe(const OpenOfAPipe&) = delete;
    OpenOfAPipe& operator=(const OpenOfAPipe&) = delete;

    [[nodiscard]] pid_t pid() const { return child_->pid(); }

private:
    [[nodiscard]] bool is_waiting() const {
        const auto text = read_text_file(AT_FDCWD, ("/proc/" + std::to_string(pid()) + "/syscall").c_str());
        return text && parse_open_call(*text);
    }

    char directory_[32] = "/tmp/ckptfs_inspect_XXXXXX";
    std::string pipe_;
    std::optional<Child> child_;
};

// The answer is false, too, where the path could not be read in time: on a busy machine.
bool is_seen_to_make_anew(const ProcInspector& inspector, pid_t thread, const char* name) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!inspector.makes_anew(thread, name)) {
        if (std::chrono::steady_clock::now() > deadline) {
            return false;
        }
    }
    return true;
}

TEST(ProcInspector, SeesWhoMakesAFileAnew) {
    const ProcInspector inspector;
    const OpenOfAPipe made(O_WRONLY | O_CREAT | O_TRUNC, "");
    EXPECT_TRUE(is_seen_to_make_anew(inspector, made.pid(), "pipe"));
    EXPECT_FALSE(inspector.makes_anew(made.pid(), "ipe"));
    EXPECT_FALSE(inspector.makes_anew(made.pid(), "tmp"));
    const OpenOfAPipe opened(O_WRONLY | O_CREAT, "");
    EXPECT_FALSE(inspector.makes_anew(opened.pid(), "pipe"));
    EXPECT_FALSE(inspector.makes_anew(getpid(), "pipe"));
    EXPECT_FALSE(inspector.makes_anew(kNobodysPid, "pipe"));
    EXPECT_FALSE(inspector.makes_anew(0, "pipe"));
}

TEST(ProcInspector, ReadsPathsThatCrossPages) {
    const ProcInspector inspector;
    std::string way;
    while (way.size() < 4000) {
        way += "/.";
    }
    const OpenOfAPipe made(O_WRONLY | O_CREAT | O_TRUNC, way);
    EXPECT_TRUE(is_seen_to_make_anew(inspector, made.pid(), "pipe"));
}

TEST(ProcInspector, SeesWhoLeavesItsTurnToOthers) {
    const ProcInspector inspector;
    EXPECT_FALSE(inspector.is_in_background(getpid()));
    EXPECT_FALSE(inspector.is_in_background(0));
    EXPECT_FALSE(inspector.is_in_background(kNobodysPid));
    pid_t thread = 0;
    bool is_in_background = false;
    std::thread([&] {
        thread = static_cast<pid_t>(::syscall(SYS_gettid));
        take_idle_io_priority();
        is_in_background = inspector.is_in_background(thread);
    }).join();
    EXPECT_TRUE(is_in_background);
}

TEST(ProcInspector, TellsARunningProcessFromADeadOne) {
    const ProcInspector inspector;
    EXPECT_EQ(inspector.exit_state(getpid()), ExitState::kRunning);
    EXPECT_EQ(inspector.exit_state(kNobodysPid), ExitState::kUnknown);
    EXPECT_EQ(inspector.exit_state(0), ExitState::kUnknown);
    EXPECT_FALSE(inspector.is_dying(getpid()));
    EXPECT_FALSE(inspector.is_dying(kNobodysPid));
}

TEST(ProcInspector, SeesTheSignalThatKilled) {
    const ProcInspector inspector;
    for (const int signal : {SIGKILL, SIGTERM, SIGSEGV, SIGABRT}) {
        const Child child([=] { std::signal(signal, SIG_DFL); });
        EXPECT_EQ(inspector.exit_state(child.pid()), ExitState::kRunning);
        EXPECT_FALSE(inspector.is_being_killed(child.pid()));
        kill(child.pid(), signal);
        child.wait_until_dead();
        EXPECT_EQ(inspector.exit_state(child.pid()), ExitState::kKilledBySignal) << signal;
        EXPECT_FALSE(inspector.is_being_killed(child.pid())) << "it has closed all that it had open";
        EXPECT_TRUE(inspector.is_dying(child.pid()));
    }
}

TEST(ProcInspector, AnOrdinaryExitIsNotASignal) {
    const ProcInspector inspector;
    for (const int code : {0, 1, 9, 127}) {
        const Child child([=] { _exit(code); });
        child.wait_until_dead();
        EXPECT_EQ(inspector.exit_state(child.pid()), ExitState::kExiting) << code;
    }
}

TEST(ProcInspector, ASignalThatIsHandledIsNotDying) {
    const ProcInspector inspector;
    const Child child([] {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, nullptr);
    });
    kill(child.pid(), SIGALRM);
    kill(child.pid(), SIGTERM);
    EXPECT_FALSE(inspector.is_dying(child.pid()));
    EXPECT_EQ(inspector.exit_state(child.pid()), ExitState::kRunning);
}

// Of more locks than /proc/locks tells at once.
TEST(ProcInspector, SeesALockWhileOthersAreGivenUp) {
    ProcInspector inspector;
    ASSERT_TRUE(inspector.set_mount_point("/dev/shm"));
    const auto locked_file = [] {
        std::string path = "/dev/shm/ckptfs-test-XXXXXX";
        FileDescriptor file(mkostemp(path.data(), O_CLOEXEC));
        EXPECT_TRUE(file);
        unlink(path.c_str());
        EXPECT_EQ(flock(file.get(), LOCK_EX), 0);
        return file;
    };
    const FileDescriptor held = locked_file();
    struct stat attributes {};
    ASSERT_EQ(fstat(held.get(), &attributes), 0);
    // Told first, as the latest are.
    std::vector<FileDescriptor> others(400);
    std::generate(others.begin(), others.end(), locked_file);
    std::atomic<bool> is_over = false;
    std::thread changes([&] {
        while (!is_over) {
            for (const FileDescriptor& other : others) {
                flock(other.get(), LOCK_UN);
            }
            for (const FileDescriptor& other : others) {
                flock(other.get(), LOCK_EX);
            }
        }
    });
    int missed = 0;
    for (int times = 0; times < 1000; ++times) {
        missed += inspector.is_locked(attributes.st_ino, std::nullopt) ? 0 : 1;
    }
    is_over = true;
    changes.join();
    EXPECT_EQ(missed, 0);
    EXPECT_FALSE(inspector.is_locked(~std::uint64_t{0}, std::nullopt));
}

TEST(ExitCodeSight, OfOurOwnChildrenIsThere) {
    EXPECT_NE(exit_code_sight(), ExitCodeSight::kNone);
}

TEST(ExitCodeSight, WithoutRightsAnExitIsUnknown) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "needs root, to become somebody else";
    }
    const Child killed([] {});
    kill(killed.pid(), SIGKILL);
    killed.wait_until_dead();
    // Another user without capabilities looks at it.
    const pid_t stranger = fork();
    if (stranger == 0) {
        constexpr uid_t kNobody = 65534;
        const bool became_nobody =
            setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0;
        _exit(became_nobody ? static_cast<int>(ProcInspector().exit_state(killed.pid())) : 100);
    }
    int status = 0;
    ASSERT_EQ(waitpid(stranger, &status, 0), stranger);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ExitState::kUnknown));
}

}  // namespace
}  // namespace ckptfs
