// SPDX-License-Identifier: Apache-2.0
// `ckptfs wait`: until what the disk has acknowledged by now is in the bucket. Asks the daemon again and again: a wait
// of hours keeps no connection, and goes on with a daemon that replaces this one at once, if that has its places.
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/text.h"
#include "ckptfs/log.h"
#include "cli/commands.h"
#include "daemon/mount_status.h"
#include "daemon/mounted_daemon.h"
#include "daemon/status_json.h"
#include "fuse/mount_table.h"

namespace ckptfs {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};
constexpr std::chrono::seconds kPatience{10};
// Replies missed in a row before the wait fails: one may be late if the daemon is busy.
constexpr int kMostSilent = 3;

Result<MountStatus> status_of(const MountEntry& mount) {
    const Result<std::string> json = ask_for_status(mount, kPatience);
    return json ? parse_status(*json) : failure(json.error());
}

std::string described(const UnsentActivity& unsent) {
    return format("{}, {} MiB, not in the bucket yet", counted(unsent.changes, "change"), mebibytes(unsent.bytes));
}

// Does not touch a path in a mount, because its daemon may hang. In other paths links are followed.
Result<MountEntry> mount_with(const std::string& path) {
    namespace stdfs = std::filesystem;
    const auto table = read_mount_table();
    if (!table) {
        return failure(table.error());
    }
    std::error_code problem;
    auto mount = mount_holding(*table, stdfs::absolute(path, problem).lexically_normal().string());
    if (!problem && (!mount || mount->type != kFileSystemType)) {
        const stdfs::path resolved = stdfs::canonical(path, problem);
        mount = problem ? std::nullopt : mount_holding(*table, resolved.string());
    }
    if (problem || !mount || mount->type != kFileSystemType) {
        return failure(EINVAL, format("{} is in no mount of ckptfs", escaped(path)));
    }
    return made_by_daemon(*table, *mount);
}

class Wait {
public:
    explicit Wait(const WaitRequest& request)
        : timeout_(request.timeout),
          deadline_(std::chrono::steady_clock::now() + request.timeout.value_or(Milliseconds(0))) {}

    // What the mount has acknowledged by now; empty if it does not answer.
    static std::optional<AcknowledgedByNow> acknowledged(const MountEntry& mount) {
        const Result<MountStatus> status = status_of(mount);
        return status ? std::optional(AcknowledgedByNow(*status)) : std::nullopt;
    }

    // `waited_for`: empty for what was acknowledged by the first status.
    Status until_sent(const MountEntry& mount, std::optional<AcknowledgedByNow> waited_for) {
        for (int silent = 0;;) {
            const Result<MountStatus> status = status_of(mount);
            if (!status && ++silent >= kMostSilent) {
                return failure(status.error());
            }
            if (status) {
                silent = 0;
                const UnsentActivity& unsent = status->unsent;
                waited_for = waited_for.value_or(AcknowledgedByNow(*status));
                const Result<bool> is_sent = waited_for->is_sent(*status);
                if (!is_sent) {
                    return failure(is_sent.error());
                }
                if (*is_sent) {
                    return others_sent(mount, unsent);
                }
                tell(unsent);
                if (is_over()) {
                    return failure(ETIMEDOUT, format("{}: {}{}", escaped(mount.mount_point), described(unsent),
                                                     unsent.failure.empty() ? ""
                                                                            : "; " + escaped(unsent.failing_key) +
                                                                                  ": " + escaped(unsent.failure)));
                }
            }
            std::this_thread::sleep_for(kPeriod);
        }
    }

private:
    // What the mount itself has nothing more to do for.
    static Status others_sent(const MountEntry& mount, const UnsentActivity& unsent) {
        if (unsent.places_left > 0) {
            return failure(EIO, format("{}: {} before this one left changes on the disk that are not in the bucket: "
                                       "unmount, and mount again, to send them",
                                       escaped(mount.mount_point), counted(unsent.places_left, "mount")));
        }
        return unsent.given_up == 0
                   ? Status()
                   : failure(EIO, format("{}: {} given up, though acknowledged by the disk: {}{}; the log says why; "
                                         "write again",
                                         escaped(mount.mount_point), counted(unsent.given_up, "commit marker"),
                                         escaped(unsent.given_up_key), unsent.given_up > 1 ? ", ..." : ""));
    }
    [[nodiscard]] bool is_over() const { return timeout_ && std::chrono::steady_clock::now() >= deadline_; }

    // Prints each failure once.
    void tell(const UnsentActivity& unsent) {
        if (!unsent.failure.empty() && unsent.failure != told_) {
            std::fprintf(stderr, "ckptfs: still waiting: %s: %s\n", escaped(unsent.failing_key).c_str(),
                         escaped(unsent.failure).c_str());
            told_ = unsent.failure;
        }
    }

    const std::optional<Milliseconds> timeout_;
    const std::chrono::steady_clock::time_point deadline_;
    std::string told_;
};

}  // namespace

int wait_command(const WaitRequest& request) {
    Wait wait(request);
    // Asks all of them now, and not when their turn comes.
    std::vector<std::pair<Result<MountEntry>, std::optional<AcknowledgedByNow>>> mounts;
    for (const std::string& path : request.paths) {
        Result<MountEntry> mount = mount_with(path);
        const auto waited_for = mount ? Wait::acknowledged(*mount) : std::nullopt;
        mounts.emplace_back(std::move(mount), waited_for);
    }
    for (const auto& [mount, waited_for] : mounts) {
        const Status sent = mount ? wait.until_sent(*mount, waited_for) : failure(mount.error());
        if (!sent) {
            std::fprintf(stderr, "ckptfs: %s\n", sent.error().message.c_str());
            return 1;
        }
    }
    return 0;
}

}  // namespace ckptfs
