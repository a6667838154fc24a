// SPDX-License-Identifier: Apache-2.0
#include "journal/journal_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/private_directory.h"
#include "base/text.h"
#include "base/thread.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// Bytes that may wait beside a rewrite while a directory does not respond: lines of some thousand uploads.
constexpr std::size_t kMostQueued = std::size_t{1} << 20;
// The destructor waits so many times the longest wait.
constexpr int kWaitsAtTheEnd = 5;

struct Replaced {
    std::string path;
    FileDescriptor lock;
};

// What the thread does next, in this order. Calls that come while it is in the directory are merged.
struct Work {
    // `lines` replace what is in the file.
    bool is_rewrite = false;
    std::string lines;
    // Bytes of `lines` that are of the rewrite.
    std::size_t rewritten = 0;
    std::vector<Replaced> replaced;
    bool is_removal = false;
};

}  // namespace

void remove_journal(const std::string& path) {
    unlink((path + std::string(kNewJournalEnding)).c_str());
    unlink(path.c_str());
}

// Shared with the thread, which may hang in the directory for longer than the journal lives.
class JournalFile::State {
public:
    State(std::string path, FileDescriptor file, JournalKept kept)
        : path_(std::move(path)), is_flushed_(kept == JournalKept::kOnDisk), file_(std::move(file)) {}

    // Runs on the thread.
    void run();

    void queue(const std::function<void(Work&)>& change);
    void settle(std::chrono::milliseconds longest);
    void end(std::chrono::milliseconds longest);
    [[nodiscard]] bool wants_rewrite();
    [[nodiscard]] std::size_t size();

private:
    // After the lines were written, or were not: returns the files they replace that are to be removed.
    [[nodiscard]] std::vector<Replaced> take_replaced(Work& work, int problem) REQUIRES(mutex_);
    // 0, or an errno if not all lines are in the file; whole lines stay.
    [[nodiscard]] int write_lines(const Work& work);
    [[nodiscard]] int add(const std::string& lines);
    [[nodiscard]] int rewrite(const std::string& lines);
    [[nodiscard]] bool is_kept(const FileDescriptor& file) const { return !is_flushed_ || fdatasync(file.get()) == 0; }
    [[nodiscard]] Status keep_names() const {
        return is_flushed_ ? flush_directory(path_.substr(0, path_.rfind('/') + 1)) : Status();
    }
    [[nodiscard]] bool has_work() const REQUIRES(mutex_) { return done_ < queued_; }

    const std::string path_;
    const bool is_flushed_;
    // Used by the thread alone.
    FileDescriptor file_;
    std::size_t written_ = 0;

    Mutex mutex_;
    Condition changed_;
    Work next_ GUARDED_BY(mutex_);
    // Calls, and how many of them the thread has carried out.
    std::uint64_t queued_ GUARDED_BY(mutex_) = 0;
    std::uint64_t done_ GUARDED_BY(mutex_) = 0;
    std::size_t file_size_ GUARDED_BY(mutex_) = 0;
    bool is_stale_ GUARDED_BY(mutex_) = false;
    // A caller has waited in vain, and the file has not caught up since.
    bool is_behind_ GUARDED_BY(mutex_) = false;
    // Files that are still needed, because this one is stale.
    std::vector<Replaced> replaced_ GUARDED_BY(mutex_);
    bool is_ending_ GUARDED_BY(mutex_) = false;
    bool has_ended_ GUARDED_BY(mutex_) = false;
};

void JournalFile::State::run() {
    MutexLock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this]() REQUIRES(mutex_) { return is_ending_ || has_work(); });
        if (!has_work()) {
            break;
        }
        Work work = std::exchange(next_, {});
        const std::uint64_t carried_out = queued_;
        lock.unlock();
        const int problem = write_lines(work);
        lock.lock();
        const std::vector<Replaced> replaced = take_replaced(work, problem);
        lock.unlock();
        for (const Replaced& each : replaced) {
            remove_journal(each.path);
        }
        // What has ended in this file must not be open again in one of those after a power cut.
        if (const Status kept = replaced.empty() ? Status() : keep_names(); !kept) {
            log_warning(kept.error().message);
        }
        if (work.is_removal && file_) {
            remove_journal(path_);
        }
        lock.lock();
        done_ = carried_out;
        is_behind_ = is_behind_ && has_work();
        changed_.notify_all();
    }
    // Releases the lock before it reports the end: the next mount may look at once.
    std::vector<Replaced> left = std::exchange(replaced_, {});
    lock.unlock();
    left.clear();
    file_.reset();
    lock.lock();
    has_ended_ = true;
    changed_.notify_all();
}

std::vector<Replaced> JournalFile::State::take_replaced(Work& work, int problem) {
    if (problem != 0 && !is_stale_) {
        log_warning(format("{}: {}; if this mount is killed before there is room, its uploads stay in the bucket",
                           escaped(path_), std::strerror(problem)));
    }
    is_stale_ = !work.is_removal && (problem != 0 || (is_stale_ && !work.is_rewrite));
    file_size_ = written_;
    std::move(work.replaced.begin(), work.replaced.end(), std::back_inserter(replaced_));
    return is_stale_ ? std::vector<Replaced>() : std::exchange(replaced_, {});
}

int JournalFile::State::write_lines(const Work& work) {
    if (!file_ || work.is_removal) {
        return 0;
    }
    if (work.is_rewrite) {
        return rewrite(work.lines);
    }
    return work.lines.empty() ? 0 : add(work.lines);
}

int JournalFile::State::add(const std::string& lines) {
    const ssize_t written = write(file_.get(), lines.data(), lines.size());
    if (written == static_cast<ssize_t>(lines.size())) {
        written_ += lines.size();
        return is_kept(file_) ? 0 : errno;
    }
    const int problem = written < 0 ? errno : ENOSPC;
    written_ += written <= 0 ? 0 : lines.rfind('\n', static_cast<std::size_t>(written) - 1) + 1;
    // The next line would continue a line that was written in part.
    static_cast<void>(ftruncate(file_.get(), static_cast<off_t>(written_)));
    return problem;
}

// Writes a new file beside the old one, which stays if the disk has no room or this process is killed meanwhile.
int JournalFile::State::rewrite(const std::string& lines) {
    const std::string path = path_ + std::string(kNewJournalEnding);
    FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) {
        return errno;
    }
    errno = ENOSPC;
    // As in MountJournal::create(): locked before it has the name.
    const bool is_whole = flock(file.get(), LOCK_EX | LOCK_NB) == 0 &&
                          write(file.get(), lines.data(), lines.size()) == static_cast<ssize_t>(lines.size()) &&
                          is_kept(file);
    if (!is_whole || rename(path.c_str(), path_.c_str()) != 0) {
        const int problem = errno;
        unlink(path.c_str());
        return problem;
    }
    file_ = std::move(file);
    written_ = lines.size();
    const Status kept = keep_names();
    return kept ? 0 : kept.error().errno_value;
}

void JournalFile::State::queue(const std::function<void(Work&)>& change) {
    const MutexLock lock(mutex_);
    change(next_);
    ++queued_;
    changed_.notify_all();
}

void JournalFile::State::settle(std::chrono::milliseconds longest) {
    MutexLock lock(mutex_);
    const std::uint64_t waited_for = queued_;
    const auto is_done = [this, waited_for]() REQUIRES(mutex_) { return is_behind_ || done_ >= waited_for; };
    if (!changed_.wait_for(lock, longest, is_done)) {
        is_behind_ = true;
        changed_.notify_all();
        log_warning(
            format("{}: its directory does not answer; if this mount is killed before it does, its uploads stay in "
                   "the bucket",
                   escaped(path_)));
    }
}

void JournalFile::State::end(std::chrono::milliseconds longest) {
    MutexLock lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
    if (!changed_.wait_for(lock, longest, [this]() REQUIRES(mutex_) { return has_ended_; })) {
        log_warning(
            format("{} stays: its directory does not answer; the next mount here ends what it names", escaped(path_)));
    }
}

bool JournalFile::State::wants_rewrite() {
    const MutexLock lock(mutex_);
    return is_stale_ || next_.lines.size() - next_.rewritten > kMostQueued;
}

std::size_t JournalFile::State::size() {
    const MutexLock lock(mutex_);
    return next_.lines.size() + (next_.is_rewrite ? 0 : file_size_);
}

JournalFile::JournalFile(std::string path, FileDescriptor file, std::chrono::milliseconds longest_wait,
                         JournalKept kept)
    : path_(std::move(path)),
      is_in_memory_(!file),
      longest_wait_(longest_wait),
      state_(std::make_shared<State>(path_, std::move(file), kept)) {
    start_thread("ckptfs-journal", [state = state_] { state->run(); }).detach();
}

JournalFile::~JournalFile() {
    state_->end(kWaitsAtTheEnd * longest_wait_);
}

bool JournalFile::wants_rewrite() const {
    return state_->wants_rewrite();
}

std::size_t JournalFile::size() const {
    return state_->size();
}

void JournalFile::append(const std::string& lines) {
    state_->queue([&lines](Work& work) { work.lines += lines; });
}

void JournalFile::rewrite(std::string lines) {
    state_->queue([&lines](Work& work) {
        work.is_rewrite = true;
        work.lines = std::move(lines);
        work.rewritten = work.lines.size();
    });
}

void JournalFile::replace(std::string path, FileDescriptor lock) {
    state_->queue([&](Work& work) { work.replaced.push_back({std::move(path), std::move(lock)}); });
}

void JournalFile::remove() {
    state_->queue([](Work& work) { work.is_removal = true; });
}

void JournalFile::settle() {
    state_->settle(longest_wait_);
}

}  // namespace ckptfs
