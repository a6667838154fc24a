// SPDX-License-Identifier: Apache-2.0
#include "daemon/control.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>

#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

constexpr std::chrono::seconds kPatience{30};

namespace stdfs = std::filesystem;

// Empty where nobody listens.
FileDescriptor connected(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    FileDescriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        client.reset();
    }
    return client;
}

bool ask_to_unmount(const FileDescriptor& client) {
    constexpr std::string_view kRequest = "unmount\n";
    return send(client.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL) == std::ssize(kRequest);
}

// Until the daemon's end.
std::string all_of(const FileDescriptor& client) {
    std::string text;
    std::array<char, 256> some{};
    for (ssize_t size = 1; size > 0;) {
        size = recv(client.get(), some.data(), some.size(), 0);
        text.append(some.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    }
    return text;
}

class ControlTest : public ::testing::Test {
protected:
    static bool wait_for_client(const ControlServer& server) {
        pollfd readable{server.descriptor(), POLLIN, 0};
        return poll(&readable, 1, 20'000) == 1;
    }

    const testing::TemporaryDirectory temporary_;
    const std::string directory_ = temporary_.path();
};

TEST_F(ControlTest, CarriesARequestAndItsAnswer) {
    auto server = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(server);
    std::vector<std::string> lines;
    Result<pid_t> asked = 0;
    std::thread client([&] {
        asked = call_daemon(control_path(directory_ + "/run", "/mnt/a"), geteuid(), "unmount", kPatience,
                            [&](std::string_view line) { lines.emplace_back(line); });
    });
    const bool connected = wait_for_client(*server);
    EXPECT_TRUE(connected);
    EXPECT_TRUE(server->accept([] { return "unasked"; }));
    server->tell(progress_line({2, 300, 100}));
    server->tell("done");
    { const ControlServer ended = std::move(*server); }
    client.join();
    ASSERT_TRUE(asked);
    EXPECT_EQ(*asked, getpid());
    EXPECT_EQ(lines, (std::vector<std::string>{"progress 2 300 100", "done"}));
    EXPECT_FALSE(stdfs::exists(control_path(directory_ + "/run", "/mnt/a")));
}

TEST_F(ControlTest, TellsMoreThanASocketHolds) {
    auto server = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(server);
    std::size_t lines = 0;
    std::string last;
    std::thread client([&] {
        static_cast<void>(call_daemon(control_path(directory_ + "/run", "/mnt/a"), geteuid(), "unmount", kPatience,
                                      [&](std::string_view line) {
                                          ++lines;
                                          last = line;
                                      }));
    });
    EXPECT_TRUE(wait_for_client(*server));
    EXPECT_TRUE(server->accept([] { return "unasked"; }));
    constexpr std::size_t kLost = 20'000;
    for (std::size_t i = 0; i < kLost; ++i) {
        server->tell("lost " + std::string(200, 'k'));
    }
    server->tell("done");
    { const ControlServer ended = std::move(*server); }
    client.join();
    EXPECT_EQ(lines, kLost + 1);
    EXPECT_EQ(last, "done");
}

TEST_F(ControlTest, OnlyItsUserMayEnter) {
    auto server = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(server);
    struct stat status {};
    ASSERT_EQ(stat((directory_ + "/run").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700U);
    ASSERT_EQ(stat(control_path(directory_ + "/run", "/mnt/a").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);

    stdfs::create_directory(directory_ + "/open");
    stdfs::permissions(directory_ + "/open", stdfs::perms::all);
    EXPECT_FALSE(ControlServer::create(directory_ + "/open", "/mnt/a"));
}

TEST_F(ControlTest, ASocketLeftByADeadDaemonIsReplaced) {
    auto first = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(first);
    const auto second = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(second);
    // It was not dead, and ends now.
    { const ControlServer ended = std::move(*first); }
    EXPECT_TRUE(stdfs::exists(control_path(directory_ + "/run", "/mnt/a")));
}

TEST_F(ControlTest, TellsTheStatus) {
    auto server = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(server);
    std::string told;
    std::thread client([&] {
        EXPECT_TRUE(call_daemon(control_path(directory_ + "/run", "/mnt/a"), geteuid(), "status", kPatience,
                                [&](std::string_view line) { told = line; }));
    });
    EXPECT_TRUE(wait_for_client(*server));
    EXPECT_FALSE(server->accept([] { return "{}\n"; }));
    client.join();
    EXPECT_EQ(told, "{}");
}

TEST_F(ControlTest, UnknownRequestsAreRefused) {
    auto server = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(server);
    std::thread client([&] {
        EXPECT_TRUE(call_daemon(control_path(directory_ + "/run", "/mnt/a"), geteuid(), "dance", kPatience,
                                [](std::string_view) { FAIL(); }));
    });
    EXPECT_TRUE(wait_for_client(*server));
    EXPECT_FALSE(server->accept([] { return "unasked"; }));
    client.join();
}

TEST_F(ControlTest, ADaemonThatSaysNothingIsNotWaitedForForEver) {
    const auto server = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(server);
    const auto asked = call_daemon(control_path(directory_ + "/run", "/mnt/a"), geteuid(), "status",
                                   std::chrono::seconds(1), [](std::string_view) {});
    ASSERT_FALSE(asked);
    EXPECT_EQ(asked.error().errno_value, ETIMEDOUT);
}

// As two that unmount at once: the daemon ends when all is saved, whoever still waits then.
TEST_F(ControlTest, WhoeverHasConnectedIsToldHowItEnds) {
    auto server = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(server);
    const std::string path = control_path(directory_ + "/run", "/mnt/a");
    const FileDescriptor first = connected(path);
    ASSERT_TRUE(ask_to_unmount(first));
    EXPECT_TRUE(server->accept([] { return "unasked"; }));
    server->tell("progress 1 0 0");
    const FileDescriptor second = connected(path);
    ASSERT_TRUE(ask_to_unmount(second));
    const FileDescriptor third = connected(path);
    ASSERT_TRUE(ask_to_unmount(third));
    server->tell_outcome("lost a");
    server->finish();
    EXPECT_FALSE(connected(path));
    { const ControlServer ended = std::move(*server); }
    EXPECT_EQ(all_of(first), "progress 1 0 0\nlost a\ndone\n");
    EXPECT_EQ(all_of(second), "lost a\ndone\n");
    EXPECT_EQ(all_of(third), "lost a\ndone\n");
}

// As after some status calls to a daemon that is stopped.
TEST_F(ControlTest, ADaemonThatTakesNoMoreConnectionsIsNotWaitedForForEver) {
    const auto server = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(server);
    const std::string path = control_path(directory_ + "/run", "/mnt/a");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    std::vector<FileDescriptor> clients;
    do {
        clients.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        ASSERT_LT(clients.size(), 1000U);
    } while (connect(clients.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    ASSERT_EQ(errno, EAGAIN);
    const auto asked = call_daemon(path, geteuid(), "status", std::chrono::seconds(1), [](std::string_view) {});
    ASSERT_FALSE(asked);
    EXPECT_EQ(asked.error().errno_value, ETIMEDOUT);
}

TEST_F(ControlTest, WithoutADaemonItSaysSo) {
    const auto asked = call_daemon(directory_ + "/none.sock", geteuid(), "unmount", kPatience, [](std::string_view) {});
    ASSERT_FALSE(asked);
    EXPECT_EQ(asked.error().errno_value, ENOENT);
}

TEST_F(ControlTest, PlacesByUser) {
    const Environment runtime = [](const char* name) -> std::optional<std::string> {
        return std::string_view(name) == "XDG_RUNTIME_DIR" ? std::optional<std::string>("/run/user/77") : std::nullopt;
    };
    EXPECT_EQ(control_directory(0, 0, runtime), "/run/ckptfs");
    EXPECT_EQ(control_directory(77, 77, runtime), "/run/user/77/ckptfs");
    EXPECT_NE(control_path("/run", "/a"), control_path("/run", "/b"));
}

const Environment kNoRuntime = [](const char*) -> std::optional<std::string> { return std::nullopt; };

// Of another user than root: a directory that others could have made is passed over, whatever its name.
TEST_F(ControlTest, BesideOthersOnlyADirectoryOfTheUsersOwnIsTaken) {
    ASSERT_EQ(geteuid(), 0U) << "makes directories of another user: run it as root";
    constexpr uid_t kUser = 4711;
    const auto make = [&](const std::string& name, uid_t owner, mode_t mode) {
        const std::string path = directory_ + "/" + name;
        EXPECT_EQ(mkdir(path.c_str(), mode), 0);
        EXPECT_EQ(chmod(path.c_str(), mode), 0);
        EXPECT_EQ(chown(path.c_str(), owner, owner), 0);
        return path;
    };
    make("ckptfs-4711-AAAAAA", 4712, 0700);
    make("ckptfs-4711-BBBBBB", kUser, 0755);
    EXPECT_EQ(symlink("/", (directory_ + "/ckptfs-4711-CCCCCC").c_str()), 0);
    EXPECT_FALSE(stdfs::exists(control_directory(kUser, 0, kNoRuntime, directory_)));
    const std::string own = make("ckptfs-4711-DDDDDD", kUser, 0700);
    make("ckptfs-4711-EEEEEE", kUser, 0700);
    EXPECT_EQ(control_directory(kUser, 0, kNoRuntime, directory_), own);
}

TEST_F(ControlTest, AnotherUsersDaemonIsNotBelieved) {
    auto server = ControlServer::create(directory_ + "/run", "/mnt/a");
    ASSERT_TRUE(server);
    const auto asked = call_daemon(control_path(directory_ + "/run", "/mnt/a"), geteuid() + 1, "status", kPatience,
                                   [](std::string_view) { FAIL(); });
    ASSERT_FALSE(asked);
    EXPECT_EQ(asked.error().errno_value, EPERM);
    if (geteuid() != 0) {
        return;
    }
    // In a directory of his own he listens for somebody else.
    ASSERT_EQ(chown((directory_ + "/run").c_str(), 4711, 4711), 0);
    const auto there = call_daemon(control_path(directory_ + "/run", "/mnt/a"), 4711, "status", kPatience,
                                   [](std::string_view) { FAIL(); });
    ASSERT_FALSE(there);
    EXPECT_EQ(there.error().errno_value, EPERM);
}

TEST(Progress, LinesAreReadAsTheyAreWritten) {
    const DrainProgress progress{3, 1234567890123, 42};
    EXPECT_EQ(parse_progress(progress_line(progress)), progress);
    for (const char* wrong : {"", "progress", "progress 1 2", "progress a b c", "done"}) {
        EXPECT_FALSE(parse_progress(wrong)) << wrong;
    }
}

TEST(Progress, SaysWhatIsInTheStore) {
    EXPECT_EQ(progress_text({1, 3 << 20, 1 << 19}), "saving 1 file: 0.5 of 3.0 MiB in the store");
}

}  // namespace
}  // namespace ckptfs
