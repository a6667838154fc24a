// SPDX-License-Identifier: Apache-2.0
// `ckptfs warm` and `ckptfs drop` work through the mount, by the attribute user.ckptfs.kept, so that they read what any
// program would read, with the same rights.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/io_priority.h"
#include "base/json_line.h"
#include "base/mutex.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/thread.h"
#include "ckptfs/file_cache.h"
#include "ckptfs/log.h"
#include "cli/commands.h"

namespace ckptfs {
namespace {

constexpr const char* kKept = "user.ckptfs.kept";
// Files at once, each read with little ahead (ReadPace::kBackground): the shards of a rank's file come one after the
// other.
constexpr int kAtOnce = 4;
constexpr std::size_t kReadSize = std::size_t{1} << 20;
// Reads of a file at most: frames are left out while the disk is too slow.
constexpr int kPasses = 3;
// What is read is written to the disk in the background.
constexpr std::chrono::milliseconds kWritePeriod{50};
constexpr std::chrono::seconds kWrittenWithin{5};
constexpr std::chrono::milliseconds kShowPeriod{200};

struct File {
    std::string path;
    std::uint64_t size = 0;
};

Failure failed(const std::string& path, const std::string& what, int errno_value) {
    return failure(errno_value, format("{}: {}: {}", escaped(path), what, std::strerror(errno_value)));
}

// Adds a regular file, or those in a directory; symbolic links in the directory are not followed.
Status find_files(const std::string& path, std::vector<File>& files) {
    std::error_code problem;
    const auto add = [&files, &problem](const std::filesystem::path& file) {
        const std::uint64_t size = std::filesystem::file_size(file, problem);
        if (!problem) {
            files.push_back({file.string(), size});
        }
    };
    if (!std::filesystem::is_directory(path, problem)) {
        if (!problem) {
            add(path);
        }
    } else {
        auto each = std::filesystem::recursive_directory_iterator(path, problem);
        for (; !problem && each != std::filesystem::end(each); each.increment(problem)) {
            if (each->symlink_status(problem).type() == std::filesystem::file_type::regular) {
                add(each->path());
            }
        }
    }
    return problem ? Status(failed(path, "cannot be looked at", problem.value())) : Status();
}

Result<std::uint64_t> bytes_kept(const std::string& path) {
    std::array<char, 32> text{};
    const ssize_t size = ::getxattr(path.c_str(), kKept, text.data(), text.size());
    if (size >= 0) {
        return whole_number<std::uint64_t>(std::string_view(text.data(), static_cast<std::size_t>(size))).value_or(0);
    }
    if (errno != ENODATA && errno != EOPNOTSUPP) {
        return failed(path, "what is kept of it cannot be told", errno);
    }
    const bool is_saved = ::getxattr(path.c_str(), "user.ckptfs.etag", nullptr, 0) > 0;
    return failure(ENODATA, format("{}: {}", escaped(path),
                                   is_saved ? "its mount keeps no files; mount it with --cache-dir"
                                            : "not a saved file in a mount of ckptfs"));
}

// Bypasses the page cache: this is not what the job reads.
Status read_all_of(const File& file) {
    const FileDescriptor opened(::open(file.path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    if (!opened) {
        return failed(file.path, "cannot be opened", errno);
    }
    const std::unique_ptr<void, decltype(&std::free)> room(std::aligned_alloc(kReadSize, kReadSize), &std::free);
    for (std::uint64_t offset = 0; room != nullptr;) {
        const ssize_t size = ::pread(opened.get(), room.get(), kReadSize, static_cast<off_t>(offset));
        if (size < 0 && errno != EINTR) {
            return failed(file.path, "cannot be read", errno);
        }
        if (size == 0) {
            return {};
        }
        offset += static_cast<std::uint64_t>(std::max<ssize_t>(size, 0));
    }
    return failed(file.path, "cannot be read", ENOMEM);
}

// The bytes kept, once they are all, or no more have been added for kWrittenWithin.
Result<std::uint64_t> bytes_written(const File& file) {
    Result<std::uint64_t> kept = bytes_kept(file.path);
    for (auto since = std::chrono::steady_clock::now();
         kept && *kept < file.size && std::chrono::steady_clock::now() - since < kWrittenWithin;) {
        std::this_thread::sleep_for(kWritePeriod);
        const Result<std::uint64_t> now = bytes_kept(file.path);
        if (!now || *now != *kept) {
            since = std::chrono::steady_clock::now();
        }
        kept = now;
    }
    return kept;
}

Status warm(const File& file) {
    // Small files come with the first request of an open, and are recorded then.
    if (file.size <= kSmallestKept) {
        return read_all_of(file);
    }
    Result<std::uint64_t> kept = bytes_kept(file.path);
    for (int pass = 0; kept && *kept < file.size && pass < kPasses; ++pass) {
        if (Status read = read_all_of(file); !read) {
            return read;
        }
        kept = bytes_written(file);
    }
    if (!kept) {
        return failure(kept.error());
    }
    return *kept >= file.size ? Status()
                              : failure(ENOSPC, format("{}: {} of {} bytes are kept; the disk is full or too slow, see "
                                                       "ckptfs status",
                                                       escaped(file.path), *kept, file.size));
}

Status drop(const File& file) {
    if (const Result<std::uint64_t> kept = bytes_kept(file.path); !kept) {
        return failure(kept.error());
    }
    if (::removexattr(file.path.c_str(), kKept) == 0) {
        return {};
    }
    return errno == EBUSY ? Status(failure(EBUSY, escaped(file.path) + ": in use, and so still kept"))
                          : Status(failed(file.path, "cannot be dropped", errno));
}

// The files that the threads work on, and how far they are.
class Round {
public:
    Round(const CacheRequest& request, std::vector<File> files) : request_(request), files_(std::move(files)) {}

    void run() {
        // Readers of a job come first; the daemon follows this priority as well.
        take_idle_io_priority();
        for (std::optional<File> file = next(); file; file = next()) {
            ended(*file, request_.drops ? drop(*file) : warm(*file));
        }
    }

    [[nodiscard]] int finish() {
        const MutexLock lock(mutex_);
        show(false);
        if (request_.json) {
            std::fputs(json_line({{"files", done_}, {"bytes", bytes_}, {"failed", failed_}}).c_str(), stdout);
        }
        return failed_ == 0 ? 0 : 1;
    }

private:
    std::optional<File> next() {
        const MutexLock lock(mutex_);
        return next_ < files_.size() ? std::optional(files_[next_++]) : std::nullopt;
    }

    void ended(const File& file, const Status& status) {
        const MutexLock lock(mutex_);
        if (!status) {
            ++failed_;
            show(false);
            std::fprintf(stderr, "ckptfs: %s\n", status.error().message.c_str());
        } else {
            ++done_;
            bytes_ += file.size;
        }
        const auto now = std::chrono::steady_clock::now();
        if (now - shown_ >= kShowPeriod) {
            shown_ = now;
            show(true);
        }
    }

    void show(bool progress) REQUIRES(mutex_) {
        if (is_terminal_ && !request_.json) {
            std::fprintf(stderr, "%s%s", kClearLine,
                         progress ? format("{} of {} files, {}", done_, files_.size(), mebibytes(bytes_)).c_str() : "");
        }
    }

    const CacheRequest& request_;
    const std::vector<File> files_;
    const bool is_terminal_ = isatty(STDERR_FILENO) != 0;

    Mutex mutex_;
    std::size_t next_ GUARDED_BY(mutex_) = 0;
    std::size_t done_ GUARDED_BY(mutex_) = 0;
    std::size_t failed_ GUARDED_BY(mutex_) = 0;
    std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;
    std::chrono::steady_clock::time_point shown_ GUARDED_BY(mutex_);
};

}  // namespace

int cache_command(const CacheRequest& request) {
    std::vector<File> files;
    for (const std::string& path : request.paths) {
        if (const Status found = find_files(path, files); !found) {
            std::fprintf(stderr, "ckptfs: %s\n", found.error().message.c_str());
            return 1;
        }
    }
    Round round(request, std::move(files));
    run_on_threads("ckptfs-kept", kAtOnce, [&round] { round.run(); });
    return round.finish();
}

}  // namespace ckptfs
