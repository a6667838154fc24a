// SPDX-License-Identifier: Apache-2.0
#include "fuse/mount.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

void log_from_libfuse(enum fuse_log_level level, const char* pattern, va_list arguments) {
    std::array<char, 512> line{};
    std::vsnprintf(line.data(), line.size(), pattern, arguments);
    std::string text(line.data());
    while (!text.empty() && text.back() == '\n') {
        text.pop_back();
    }
    log(level <= FUSE_LOG_ERR ? LogLevel::kWarning : LogLevel::kDebug, escaped(text));
}

struct SessionDeleter {
    void operator()(fuse_session* session) const { fuse_session_destroy(session); }
};
using SessionPointer = std::unique_ptr<fuse_session, SessionDeleter>;

struct OptionText {
    OptionText() = default;
    OptionText(const OptionText&) = delete;
    OptionText& operator=(const OptionText&) = delete;
    ~OptionText() { std::free(text); }
    char* text = nullptr;
};

// Escaped, because a source may hold commas.
Result<std::string> mount_options(const MountConfig& config, bool read_only) {
    OptionText options;
    bool added = fuse_opt_add_opt_escaped(&options.text, ("fsname=" + config.source).c_str()) == 0 &&
                 fuse_opt_add_opt(&options.text, "subtype=ckptfs,nosuid,nodev") == 0;
    if (config.allow_other) {
        added = added && fuse_opt_add_opt(&options.text, "allow_other,default_permissions") == 0;
    }
    if (config.no_exec) {
        added = added && fuse_opt_add_opt(&options.text, "noexec") == 0;
    }
    if (read_only) {
        added = added && fuse_opt_add_opt(&options.text, "ro") == 0;
    }
    if (!added) {
        return failure(ENOMEM, "not enough memory for the mount options");
    }
    return std::string(options.text);
}

// This session only mounts: libfuse mixes mounting with serving, but closes the descriptor when it unmounts, which must
// not happen while replies are still being written to it.
Result<SessionPointer> mounting_session(const std::string& options) {
    std::array<std::string, 3> words{"ckptfs", "-o", options};
    std::array<char*, 3> arguments{words[0].data(), words[1].data(), words[2].data()};
    fuse_args args = FUSE_ARGS_INIT(static_cast<int>(arguments.size()), arguments.data());
    const fuse_lowlevel_ops nothing{};
    SessionPointer session(fuse_session_new(&args, &nothing, sizeof nothing, nullptr));
    fuse_opt_free_args(&args);
    if (session == nullptr) {
        return failure(EINVAL, format("libfuse refuses the mount options \"{}\"", options));
    }
    return session;
}

Error mount_error(const MountConfig& config, int reason) {
    const std::string where = escaped(config.mount_point);
    if (config.allow_other && geteuid() != 0) {
        return failure(EPERM, format("cannot mount at {}: --allow-other needs user_allow_other in /etc/fuse.conf, or "
                                     "root; fusermount3 (package fuse3) must be installed",
                                     where))
            .value();
    }
    return failure(reason == 0 ? EPERM : reason,
                   format("cannot mount at {}: {}; mounting needs root, or fusermount3 (package fuse3) and write "
                          "permission on the directory",
                          where, reason == 0 ? "refused" : std::strerror(reason)))
        .value();
}

// The unique id of the topmost mount there, which is never given twice. Nothing is asked of the daemon. Empty before
// Linux 6.8.
std::optional<std::uint64_t> unique_mount_id(const std::string& mount_point) {
    // linux/stat.h
    constexpr unsigned kUniqueMountId = 0x4000;
    struct statx found {};
    const int flags = AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW;
    if (statx(AT_FDCWD, mount_point.c_str(), flags, kUniqueMountId, &found) != 0 ||
        (found.stx_mask & kUniqueMountId) == 0) {
        return std::nullopt;
    }
    return found.stx_mnt_id;
}

class FuseMount final : public Mount {
public:
    FuseMount(SessionPointer session, MountEntry entry)
        : entry_(std::move(entry)), unique_id_(unique_mount_id(entry_.mount_point)), session_(std::move(session)) {}

    ~FuseMount() override {
        static_cast<void>(detach());
        free_session();
    }

    Result<FileDescriptor> connection() const override {
        const MutexLock lock(mutex_);
        FileDescriptor copy(fcntl(fuse_session_fd(session_.get()), F_DUPFD_CLOEXEC, 3));
        if (!copy) {
            return failure(errno, format("cannot duplicate the mount's descriptor: {}", std::strerror(errno)));
        }
        return copy;
    }

    [[nodiscard]] const MountEntry& entry() const override { return entry_; }

    [[nodiscard]] bool is_shown() const override {
        const MutexLock lock(mutex_);
        return is_mounted();
    }

    Status detach() override {
        const MutexLock lock(mutex_);
        if (std::exchange(detached_, true) || !is_mounted()) {
            return {};
        }
        const auto table = read_mount_table();
        if (const std::string inside = table ? mounts_inside(*table, entry_) : ""; !inside.empty()) {
            log_warning(format("unmounting {} hides the mounts below it: {}", escaped(entry_.mount_point), inside));
        }
        // MNT_FORCE ends what still waits, so that every thread that reads requests gets ENODEV.
        if (umount2(entry_.mount_point.c_str(), MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) != 0) {
            // Without root fusermount3 does it.
            fuse_session_unmount(session_.get());
        }
        if (is_mounted()) {
            return failure(EBUSY, format("{} is still mounted: nothing is behind it any more; as root, run: umount {}",
                                         escaped(entry_.mount_point), escaped(entry_.mount_point)));
        }
        return {};
    }

    void leave_dead() override {
        const MutexLock lock(mutex_);
        detached_ = true;
    }

private:
    // The kernel gives the id of a mount that was taken away to the next one. Ours is not free before its connection
    // has ended.
    [[nodiscard]] bool is_mounted() const REQUIRES(mutex_) {
        const auto table = read_mount_table();
        const auto top = table ? mount_at(*table, entry_.mount_point) : std::nullopt;
        return top && top->mount_id == entry_.mount_id &&
               (!has_ended() || (unique_id_ && unique_mount_id(entry_.mount_point) == unique_id_));
    }

    [[nodiscard]] bool has_ended() const REQUIRES(mutex_) {
        pollfd connection{fuse_session_fd(session_.get()), 0, 0};
        return connection.fd >= 0 && poll(&connection, 1, 0) == 1 && (connection.revents & POLLERR) != 0;
    }

    // fuse_session_unmount() is what frees libfuse's copy of the path, but it would unmount whatever is there by now:
    // only when the connection has ended does it leave the tree alone.
    void free_session() {
        const MutexLock lock(mutex_);
        if (has_ended()) {
            fuse_session_unmount(session_.get());
        }
        session_.reset();
    }

    const MountEntry entry_;
    const std::optional<std::uint64_t> unique_id_;
    mutable Mutex mutex_;
    SessionPointer session_ GUARDED_BY(mutex_);
    bool detached_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<Mount>> Mount::create(const MountConfig& config, bool read_only) {
    fuse_set_log_func(log_from_libfuse);
    const auto options = mount_options(config, read_only);
    if (!options) {
        return failure(options.error());
    }
    auto session = mounting_session(*options);
    if (!session) {
        return failure(session.error());
    }
    errno = 0;
    if (fuse_session_mount(session->get(), config.mount_point.c_str()) != 0) {
        return failure(mount_error(config, errno));
    }
    const auto table = read_mount_table();
    auto entry = table ? mount_at(*table, config.mount_point) : std::nullopt;
    if (!entry || entry->type != kFileSystemType) {
        fuse_session_unmount(session->get());
        return failure(EIO, format("mounted at {}, but /proc/self/mountinfo does not show it; give the directory's "
                                   "resolved path",
                                   escaped(config.mount_point)));
    }
    return std::make_unique<FuseMount>(std::move(*session), std::move(*entry));
}

Status set_read_ahead(const MountEntry& mount, unsigned kibibytes) {
    const std::string path = format("/sys/class/bdi/{}:{}/read_ahead_kb", mount.major, mount.minor);
    const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    const std::string text = std::to_string(kibibytes);
    if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
        return failure(errno,
                       format("cannot raise the mount's read-ahead: {}: {}; reads through the page cache will be "
                              "small",
                              path, std::strerror(errno)));
    }
    return {};
}

}  // namespace ckptfs
