// SPDX-License-Identifier: Apache-2.0
#include "daemon/unsent_places.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/executors.h"
#include "base/numbers.h"
#include "base/private_directory.h"
#include "base/text.h"
#include "base/xxhash.h"
#include "ckptfs/log.h"
#include "journal/mount_journal.h"

namespace ckptfs {
namespace {

// Mounts of one source on one machine.
constexpr int kMostMounts = 1'000;
// A mount that umount(8) has ended says within this time that it is about to end.
constexpr std::chrono::milliseconds kSaysSo{500};
// Longest wait for a mount that is about to end: it sends nothing more, and cancels what is under way.
constexpr std::chrono::seconds kHandOver{60};
constexpr std::chrono::milliseconds kLockPause{10};
constexpr Milliseconds kBetweenLooks{std::chrono::seconds(10)};
// Much longer than a look at one place takes.
constexpr std::chrono::milliseconds kLooksFor{100};

// Empty if another mount has the lock, or its file was removed meanwhile.
FileDescriptor lock_of(const std::string& directory, int kind = LOCK_EX) {
    FileDescriptor file(::open((directory + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct stat status {};
    const bool is_ours =
        file && ::flock(file.get(), kind | LOCK_NB) == 0 && ::fstat(file.get(), &status) == 0 && status.st_nlink > 0;
    return is_ours ? std::move(file) : FileDescriptor();
}

// Of the mount that has the place, or had it last.
void note_mount_point(const FileDescriptor& lock, const std::string& mount_point) {
    if (::ftruncate(lock.get(), 0) != 0 ||
        ::pwrite(lock.get(), mount_point.data(), mount_point.size(), 0) != static_cast<ssize_t>(mount_point.size())) {
        log_warning(format("cannot note the mount point on the disk: {}", std::strerror(errno)));
    }
}

std::string mount_point_of(const FileDescriptor& lock) {
    std::string text(PATH_MAX, '\0');
    const ssize_t size = ::pread(lock.get(), text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    return text;
}

bool is_there(const std::string& path) {
    std::error_code problem;
    return std::filesystem::exists(path, problem);
}

std::string ending_of(const std::string& directory) {
    return directory + "/ending";
}
std::string wanted_of(const std::string& directory) {
    return directory + "/wanted";
}

FileDescriptor make_file(const std::string& path) {
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!file) {
        log_warning(format("cannot create {}: {}", escaped(path), std::strerror(errno)));
    }
    return file;
}

// The lock of the directory; if another mount that is about to end has it, once that has ended. `until`: when it would
// have said so.
FileDescriptor lock_of_ending(const std::string& directory, std::chrono::steady_clock::time_point until) {
    FileDescriptor lock;
    while (!(lock = lock_of(directory)) && !is_there(ending_of(directory))) {
        if (std::chrono::steady_clock::now() >= until) {
            return {};
        }
        std::this_thread::sleep_for(kLockPause);
    }
    FileDescriptor wanted;
    if (!lock) {
        log_info("waiting for what the mount before this one has not sent");
        wanted = make_file(wanted_of(directory));
    }
    const auto deadline = std::chrono::steady_clock::now() + kHandOver;
    // Once the file is gone another mount has the lock by now: that removes the file.
    while (!lock && is_there(ending_of(directory)) && std::chrono::steady_clock::now() < deadline) {
        // Fails while another waiter has it, or the mount before checks it (is_wanted()); so it is tried each time.
        static_cast<void>(wanted && ::flock(wanted.get(), LOCK_EX | LOCK_NB));
        std::this_thread::sleep_for(kLockPause);
        lock = lock_of(directory);
    }
    if (!lock) {
        log_warning("the mount before this one does not end: what it has not sent is not seen here yet");
    }
    return lock;
}

// One more than the highest number of a place; `name`: the path of a place without its number. They are made in this
// order, but an administrator may have removed one.
Result<int> end_of_places(const std::string& name) {
    const std::filesystem::path path(name + "-");
    int end = 0;
    std::error_code problem;
    for (std::filesystem::directory_iterator each(path.parent_path(), problem), last; !problem && each != last;
         each.increment(problem)) {
        const std::string file = each->path().filename().string();
        if (file.starts_with(path.filename().string())) {
            const auto number = whole_number<int>(std::string_view(file).substr(path.filename().string().size()));
            end = number && *number < kMostMounts ? std::max(end, *number + 1) : end;
        }
    }
    if (problem) {
        return failure(problem.value(),
                       format("cannot read {}: {}", escaped(path.parent_path().string()), problem.message()));
    }
    return end;
}

// Whether there are changes that no mount has sent, or the journal of one.
bool has_left(const std::string& directory) {
    std::error_code problem;
    for (std::filesystem::directory_iterator each(directory, problem), end; !problem && each != end;
         each.increment(problem)) {
        if (each->path().extension() == ".log" || each->path().extension() == kJournalEnding) {
            return true;
        }
    }
    return false;
}

}  // namespace

Result<std::vector<UnsentPlace>> lock_unsent_places(const std::string& cache_dir, const std::string& source,
                                                    const std::string& mount_point) {
    const std::string top = cache_dir + "/unsent";
    if (Status made = make_private_directory(top); !made) {
        return failure(std::move(made.error()));
    }
    std::vector<UnsentPlace> places;
    const std::string name = format("{}/{:016x}", top, xxh3(source));
    const auto until = std::chrono::steady_clock::now() + kSaysSo;
    const Result<int> end = end_of_places(name);
    if (!end) {
        return failure(end.error());
    }
    for (int number = 0; number < kMostMounts && (number < *end || places.empty()); ++number) {
        const std::string directory = format("{}-{}", name, number);
        if (!is_there(directory) && !places.empty()) {
            continue;
        }
        if (Status made = make_private_directory(directory); !made) {
            return failure(std::move(made.error()));
        }
        // Another mount may be looking at it (LeftPlaces).
        const auto looked = std::chrono::steady_clock::now() + kLooksFor;
        FileDescriptor lock = lock_of_ending(directory, std::max(until, looked));
        if (lock) {
            ::unlink(ending_of(directory).c_str());
            ::unlink(wanted_of(directory).c_str());
        }
        if (lock && (places.empty() || has_left(directory))) {
            note_mount_point(lock, mount_point);
            places.push_back({directory, std::make_shared<const FileDescriptor>(std::move(lock))});
        }
    }
    // A power cut loses what is acknowledged there if it loses a name on the path to it. The directory above the cache
    // existed before in most cases, and may be one that this user cannot read: its flush may fail.
    std::error_code problem;
    static_cast<void>(flush_directory(std::filesystem::canonical(cache_dir, problem).parent_path().string()));
    for (const std::string& each : {top, cache_dir}) {
        if (Status flushed = flush_directory(each); !flushed) {
            return failure(std::move(flushed.error()));
        }
    }
    return places.empty() ? failure(EBUSY, format("{}: too many mounts of one source", escaped(top)))
                          : Result<std::vector<UnsentPlace>>(std::move(places));
}

void tell_of_end(const UnsentPlace& place) {
    // This mount's request to the mount before it.
    ::unlink(wanted_of(place.directory).c_str());
    make_file(ending_of(place.directory));
}

// A waiter has the file locked.
bool is_wanted(const UnsentPlace& place) {
    const FileDescriptor wanted(::open(wanted_of(place.directory).c_str(), O_RDONLY | O_CLOEXEC));
    return wanted && ::flock(wanted.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Shared with the thread that looks.
struct LeftPlaces::Look {
    explicit Look(const UnsentPlace& own)
        : name(own.directory.substr(0, own.directory.rfind('-'))), mount_point(mount_point_of(*own.lock)) {}

    void run() {
        std::uint64_t left = 0;
        const Result<int> end = end_of_places(name);
        if (!end) {
            // What was found before counts.
            log_debug(end.error().message);
            return;
        }
        for (int number = 0; number < *end; ++number) {
            const std::string directory = format("{}-{}", name, number);
            if (!is_there(directory)) {
                continue;
            }
            // Those of this mount are locked.
            const FileDescriptor lock = lock_of(directory, LOCK_SH);
            const bool is_ours = lock && !mount_point.empty() && mount_point_of(lock) == mount_point;
            left += is_ours && has_left(directory) ? 1 : 0;
        }
        count = left;
    }

    // Of all places, without their numbers.
    const std::string name;
    const std::string mount_point;
    const std::unique_ptr<Executor> thread = make_detached_executor("ckptfs-places");
    std::atomic<std::uint64_t> count = 0;
    std::atomic<bool> is_under_way = false;
};

LeftPlaces::LeftPlaces(Timer& timer, const UnsentPlace& own)
    : look_(std::make_shared<Look>(own)), periodic_(std::make_unique<Periodic>(timer, kBetweenLooks, [look = look_] {
          if (!look->is_under_way.exchange(true)) {
              // Also if the look is dropped, for want of a thread.
              const std::shared_ptr<void> under_way(nullptr, [look](void*) { look->is_under_way = false; });
              look->thread->post([look, under_way] { look->run(); });
          }
      })) {}

LeftPlaces::~LeftPlaces() = default;

std::uint64_t LeftPlaces::count() const {
    return look_->count;
}

}  // namespace ckptfs
