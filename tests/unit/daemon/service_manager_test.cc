// SPDX-License-Identifier: Apache-2.0
#include "daemon/service_manager.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>

#include "base/file_descriptor.h"
#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

using Variables = std::map<std::string, std::string>;

ServiceManager manager_of(const Variables& variables) {
    return ServiceManager([&variables](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
}

// Plays systemd.
class ServiceManagerTest : public ::testing::Test {
protected:
    // '@' begins the name of an abstract socket.
    void listen(const std::string& name) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        name.copy(address.sun_path, sizeof address.sun_path - 1);
        if (name.front() == '@') {
            address.sun_path[0] = '\0';
        }
        socket_ = FileDescriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
        ASSERT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
    }
    // A datagram that was sent is there.
    [[nodiscard]] std::string received() const {
        std::array<char, 512> text{};
        const ssize_t size = recv(socket_.get(), text.data(), text.size(), MSG_DONTWAIT);
        return size < 0 ? "nothing" : std::string(text.data(), static_cast<std::size_t>(size));
    }

    const testing::TemporaryDirectory temporary_;
    const std::string directory_ = temporary_.path();
    FileDescriptor socket_;
};

TEST_F(ServiceManagerTest, HearsOfTheMountsLife) {
    for (const std::string& name : {directory_ + "/notify", "@ckptfs-notify-test-" + std::to_string(getpid())}) {
        listen(name);
        const ServiceManager manager = manager_of({{"NOTIFY_SOCKET", name}});
        manager.ready("s3://bucket is mounted\nat /mnt");
        EXPECT_EQ(received(), "READY=1\nSTATUS=s3://bucket is mounted\\x0aat /mnt");
        manager.alive();
        EXPECT_EQ(received(), "WATCHDOG=1");
        manager.stopping("saving 1 file", Milliseconds(60'000));
        EXPECT_EQ(received(), "STOPPING=1\nSTATUS=saving 1 file\nEXTEND_TIMEOUT_USEC=60000000");
    }
}

TEST_F(ServiceManagerTest, NobodyThereIsNoProblem) {
    manager_of({}).ready("mounted");
    manager_of({{"NOTIFY_SOCKET", directory_ + "/none"}}).ready("mounted");
    manager_of({{"NOTIFY_SOCKET", std::string(200, 'x')}}).ready("mounted");
}

TEST_F(ServiceManagerTest, TheWatchdogIsOfTheProcessThatItNames) {
    const std::string self = std::to_string(getpid());
    EXPECT_EQ(manager_of({}).watchdog(), Milliseconds(0));
    EXPECT_EQ(manager_of({{"WATCHDOG_USEC", "60000000"}}).watchdog(), Milliseconds(60'000));
    EXPECT_EQ(manager_of({{"WATCHDOG_USEC", "500000"}, {"WATCHDOG_PID", self}}).watchdog(), Milliseconds(500));
    EXPECT_EQ(manager_of({{"WATCHDOG_USEC", "500000"}, {"WATCHDOG_PID", "1"}}).watchdog(), Milliseconds(0));
    EXPECT_EQ(manager_of({{"WATCHDOG_USEC", "soon"}}).watchdog(), Milliseconds(0));
}

}  // namespace
}  // namespace ckptfs
