// SPDX-License-Identifier: Apache-2.0
#include "fuse/kernel_passthrough.h"

#include <sys/ioctl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// Definitions of linux/fuse.h that it lacks in Debian 12.
struct BackingMap {
    std::int32_t file = -1;
    std::uint32_t flags = 0;
    std::uint64_t padding = 0;
};
constexpr unsigned kFuseDevice = 229;
constexpr unsigned long kBackingOpen = _IOW(kFuseDevice, 1, BackingMap);
constexpr unsigned long kBackingClose = _IOW(kFuseDevice, 2, std::uint32_t);

class RegisteredFile final : public fs::BackingFile {
public:
    RegisteredFile(int connection, int number) : connection_(connection), number_(number) {}
    ~RegisteredFile() override {
        const auto number = static_cast<std::uint32_t>(number_);
        // This fails only if the connection has ended, which drops all of them.
        static_cast<void>(::ioctl(connection_, kBackingClose, &number));
    }
    RegisteredFile(const RegisteredFile&) = delete;
    RegisteredFile& operator=(const RegisteredFile&) = delete;

    [[nodiscard]] int number() const override { return number_; }

private:
    const int connection_;
    const int number_;
};

}  // namespace

std::shared_ptr<fs::BackingFile> KernelPassthrough::offer(int file) {
    if (!is_possible()) {
        return nullptr;
    }
    const BackingMap map{file};
    const int number = ::ioctl(connection_, kBackingOpen, &map);
    if (number > 0) {
        return std::make_shared<RegisteredFile>(connection_, number);
    }
    const int refusal = errno;
    // Memory may be there the next time; a right, or a file system that is not itself stacked, will not.
    if (refusal != ENOMEM && refusal != EINTR && !is_refused_.exchange(true)) {
        log_info(
            format("files in --cache-dir are read through this process, as the kernel does not read them itself: "
                   "{}{}",
                   std::strerror(refusal), refusal == EPERM ? "; it does so for mounts that root makes" : ""));
    }
    return nullptr;
}

}  // namespace ckptfs
