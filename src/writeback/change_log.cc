// SPDX-License-Identifier: Apache-2.0
#include "writeback/change_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "base/text_file.h"
#include "base/thread.h"
#include "ckptfs/log.h"
#include "writeback/room_on_disk.h"

namespace ckptfs {
namespace {

constexpr std::string_view kEnding = ".log";

std::optional<std::uint64_t> segment_number(std::string_view name) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    const bool is_one = error == std::errc{} && std::string_view(end, name.data() + name.size()) == kEnding;
    return is_one ? std::optional(number) : std::nullopt;
}

std::string segment_path(const std::string& directory, std::uint64_t number) {
    return format("{}/{}{}", directory, number, kEnding);
}

bool lies_in_files(const UnsentChange& change) {
    return std::any_of(change.body.begin(), change.body.end(),
                       [](const BodyPiece& piece) { return piece.place == BodyPiece::Place::kFile; });
}

// Whether these entries may follow a segment that is cut off: the disk did not take its last batch, so the next segment
// voids that, or is empty. A segment that is followed by any other one was flushed. No change has number 0.
bool may_follow_a_cut(const std::vector<LogEntry>& entries) {
    const auto* const first = entries.empty() ? nullptr : std::get_if<SentChange>(&entries.front());
    return entries.empty() || (first != nullptr && first->number == 0);
}

}  // namespace

ChangeLog::ChangeLog(std::string directory, FileDescriptor directory_file, std::uint64_t segment_size,
                     std::function<bool()> make_room)
    : directory_(std::move(directory)),
      directory_file_(std::move(directory_file)),
      segment_size_(segment_size),
      make_room_(std::move(make_room)) {}

Result<ChangeLog::Opened> ChangeLog::open(const std::string& directory, std::uint64_t segment_size,
                                          std::function<bool()> make_room) {
    FileDescriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!file) {
        const int error = errno;
        return failure(error, format("cannot open {}: {}", escaped(directory), std::strerror(error)));
    }
    Opened opened;
    opened.log.reset(new ChangeLog(directory, std::move(file), segment_size, std::move(make_room)));
    if (Status read = opened.log->read_segments(opened); !read) {
        return failure(std::move(read.error()));
    }
    opened.log->thread_ = start_thread("ckptfs-log", [log = opened.log.get()] { log->run(); });
    return opened;
}

ChangeLog::~ChangeLog() {
    stop();
}

void ChangeLog::stop() {
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (!thread_.joinable()) {
        return;
    }
    thread_.join();
    bool is_all_made = false;
    {
        const MutexLock lock(mutex_);
        is_all_made =
            std::all_of(segments_.begin(), segments_.end(), [](const Segment& each) { return each.unsent.empty(); });
    }
    if (is_all_made) {
        remove_made(0);
    }
}

// Oldest first, each removal flushed before the next: a segment that is there after a power cut needs the later ones,
// which say which of its changes were made. So one that cannot be removed keeps them, and is tried again.
void ChangeLog::remove_made(std::size_t stay) {
    for (;;) {
        std::string path;
        {
            const MutexLock lock(mutex_);
            if (segments_.size() <= stay || !segments_.front().unsent.empty()) {
                return;
            }
            path = segments_.front().path;
        }
        if ((::unlink(path.c_str()) != 0 && errno != ENOENT) || ::fsync(directory_file_.get()) != 0) {
            if (std::exchange(kept_, path) != path) {
                log_warning(format("cannot remove {}: {}", escaped(path), std::strerror(errno)));
            }
            return;
        }
        const MutexLock lock(mutex_);
        segments_.pop_front();
    }
}

Failure ChangeLog::failed(const std::string& path, const char* what) const {
    const int error = errno;
    return failure(error, format("cannot {} {}: {}", what, escaped(path), std::strerror(error)));
}

// --- what earlier mounts have left

Status ChangeLog::read_segments(Opened& into) {
    std::vector<std::uint64_t> numbers;
    std::error_code error;
    std::filesystem::directory_iterator each(directory_, error);
    for (; !error && each != std::filesystem::directory_iterator(); each.increment(error)) {
        if (const auto number = segment_number(each->path().filename().string())) {
            numbers.push_back(*number);
        }
    }
    if (error) {
        return failure(error.value(), format("cannot read {}: {}", escaped(directory_), error.message()));
    }
    std::sort(numbers.begin(), numbers.end());
    std::optional<CutSegment> cut;
    for (const std::uint64_t number : numbers) {
        next_segment_ = number + 1;
        const std::string path = segment_path(directory_, number);
        const std::optional<std::string> text = read_text_file(AT_FDCWD, path.c_str());
        if (!text) {
            return failed(path, "read");
        }
        LogContents contents = parse_log(*text);
        if (contents.is_foreign) {
            return failure(ENOTSUP,
                           format("{} holds acknowledged changes in a form that this version of ckptfs does not know: "
                                  "mount with the version that wrote them, which sends them to the bucket",
                                  escaped(path)));
        }
        if (cut && !may_follow_a_cut(contents.entries)) {
            return is_damaged(cut->path, cut->whole);
        }
        if (contents.is_damaged_inside) {
            return is_damaged(path, contents.whole);
        }
        cut.reset();
        if (contents.whole != text->size()) {
            cut = CutSegment{path, contents.whole};
            log_warning(
                format("{}: the last {} bytes are not whole: what a power cut or a full disk has cut off, which "
                       "was not acknowledged",
                       escaped(path), text->size() - contents.whole));
        }
        struct stat segment {};
        if (::stat(path.c_str(), &segment) == 0) {
            // Rounded up: at the latest.
            into.last_written = std::max(into.last_written, WallTime(std::chrono::seconds(segment.st_mtim.tv_sec + 1)));
        }
        const MutexLock lock(mutex_);
        count(contents.entries, path);
        std::move(contents.entries.begin(), contents.entries.end(), std::back_inserter(into.entries));
    }
    // So that the cut is not treated as damage once another segment follows.
    return cut ? shorten(*cut) : Status();
}

Failure ChangeLog::is_damaged(const std::string& path, std::uint64_t at) const {
    return failure(EIO,
                   format("{} is damaged at byte {}, and acknowledged changes follow: the disk is failing. Copy {} "
                          "to another disk before anything else; what it holds is not in the bucket. To mount without "
                          "it, move its files away, and leave the directory",
                          escaped(path), at, escaped(directory_)));
}

Status ChangeLog::shorten(const CutSegment& cut) const {
    const FileDescriptor file(::open(cut.path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file || ::ftruncate(file.get(), static_cast<off_t>(cut.whole)) != 0 || ::fsync(file.get()) != 0) {
        return failed(cut.path, "shorten");
    }
    return {};
}

void ChangeLog::count(const std::vector<LogEntry>& entries, const std::string& path) {
    segments_.push_back({path, {}});
    for (const LogEntry& entry : entries) {
        if (const auto* const change = std::get_if<UnsentChange>(&entry)) {
            segments_.back().unsent.insert(change->number);
        } else if (const auto* const given_up = std::get_if<GivenUpChange>(&entry)) {
            note_made(given_up->number);
            segments_.back().unsent.insert(given_up->number);
            notes_[given_up->number] = encode_entry(*given_up);
        } else {
            note_made(std::get<SentChange>(entry).number);
        }
    }
}

// --- calls

void ChangeLog::add(Waiting waiting) {
    const MutexLock lock(mutex_);
    waiting_.push_back(std::move(waiting));
    // With the lock held: `done` may lead to the end of the log.
    changed_.notify_all();
}

void ChangeLog::append(const UnsentChange& change, std::function<void(Status)> done) {
    add({encode_entry(change), change.number, false, true, lies_in_files(change), std::move(done)});
}

void ChangeLog::sent(const SentChange& change, std::function<void(Status)> done) {
    add({encode_entry(change), change.number, true, false, false, std::move(done)});
}

void ChangeLog::given_up(const GivenUpChange& change, std::function<void(Status)> done) {
    add({encode_entry(change), change.number, true, true, false, std::move(done)});
}

// Does nothing for a change whose segment is gone.
void ChangeLog::note_made(std::uint64_t number) {
    for (Segment& segment : segments_) {
        segment.unsent.erase(number);
    }
    notes_.erase(number);
}

// --- the log's thread

void ChangeLog::run() {
    MutexLock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this]() REQUIRES(mutex_) { return stopping_ || !waiting_.empty(); });
        if (waiting_.empty()) {
            return;
        }
        std::vector<Waiting> batch = std::exchange(waiting_, {});
        lock.unlock();
        // Also where an earlier batch of this segment failed.
        const bool begins_segment = !file_ || size_ == 0 || size_ >= segment_size_;
        const Status written = write(batch);
        if (written) {
            note_written(batch, begins_segment);
            answer(batch, written);
            // Not the segment being written. Only after the callbacks: until a change is noted elsewhere as sent, the
            // next mount must find the change and its note here.
            remove_made(1);
        } else {
            cut_off(batch);
            // Entries appended meanwhile may depend on what has failed.
            for (; !batch.empty(); batch = take_waiting()) {
                answer(batch, written);
            }
        }
        lock.lock();
    }
}

void ChangeLog::answer(std::vector<Waiting>& batch, const Status& written) {
    for (Waiting& each : batch) {
        each.done(written);
        each.done = nullptr;
    }
}

std::vector<ChangeLog::Waiting> ChangeLog::take_waiting() {
    const MutexLock lock(mutex_);
    return std::exchange(waiting_, {});
}

// The next mount must not make changes that were refused, however much of the batch is on the disk.
void ChangeLog::cut_off(const std::vector<Waiting>& refused) {
    const bool is_nothing_there = !file_;
    if (is_nothing_there || (cut_back() && ::fsync(file_.get()) == 0)) {
        return;
    }
    file_.reset();
    if (refused_.empty()) {
        // The next segment must begin with it (may_follow_a_cut).
        refused_ = encode_entry(SentChange{0, "", "", ""});
    }
    for (const Waiting& each : refused) {
        if (!each.is_sent) {
            refused_ += encode_entry(SentChange{each.number, "", "", ""});
        }
    }
}

// Before a batch is tried again, nothing of it is left on the disk.
Status ChangeLog::write(const std::vector<Waiting>& batch) {
    Status written;
    retry_with_room(make_room_, [&] {
        written = write_once(batch);
        return written || !is_lack_of_room(written.error().errno_value) || !cut_back();
    });
    return written;
}

bool ChangeLog::cut_back() {
    return !file_ || ::ftruncate(file_.get(), static_cast<off_t>(size_)) == 0;
}

Status ChangeLog::write_once(const std::vector<Waiting>& batch) {
    if (!file_ || size_ >= segment_size_) {
        if (Status begun = begin_segment(); !begun) {
            return begun;
        }
    }
    std::string text = refused_ + (size_ == 0 ? notes() : "");
    bool has_files = false;
    for (const Waiting& each : batch) {
        text += each.text;
        has_files = has_files || each.has_files;
    }
    begin_batch(text);
    const std::string path = segment_path(directory_, next_segment_ - 1);
    // An entry whose body files lost their names in a power cut could not be made.
    if (has_files && ::fsync(directory_file_.get()) != 0) {
        return failed(directory_, "flush");
    }
    if (!write_text(file_.get(), text)) {
        return failed(path, "write");
    }
    if (::fdatasync(file_.get()) != 0) {
        return failed(path, "flush");
    }
    size_ += text.size();
    refused_.clear();
    return {};
}

std::string ChangeLog::notes() {
    std::string notes;
    const MutexLock lock(mutex_);
    for (const auto& [number, text] : notes_) {
        notes += text;
    }
    return notes;
}

Status ChangeLog::begin_segment() {
    const std::string path = segment_path(directory_, next_segment_);
    file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!file_) {
        return failed(path, "create");
    }
    size_ = 0;
    ++next_segment_;
    if (::fsync(directory_file_.get()) != 0) {
        Failure not_flushed = failed(directory_, "flush");
        file_.reset();
        return not_flushed;
    }
    const MutexLock lock(mutex_);
    segments_.push_back({path, {}});
    return {};
}

void ChangeLog::note_written(const std::vector<Waiting>& batch, bool begins_segment) {
    const MutexLock lock(mutex_);
    if (begins_segment) {
        for (Segment& segment : segments_) {
            std::erase_if(segment.unsent,
                          [this](std::uint64_t number) REQUIRES(mutex_) { return notes_.contains(number); });
        }
        for (const auto& [number, text] : notes_) {
            segments_.back().unsent.insert(number);
        }
    }
    for (const Waiting& each : batch) {
        if (each.is_sent) {
            note_made(each.number);
        }
        if (each.is_kept) {
            segments_.back().unsent.insert(each.number);
        }
        if (each.is_sent && each.is_kept) {
            notes_[each.number] = each.text;
        }
    }
}

}  // namespace ckptfs
