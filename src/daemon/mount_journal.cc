// SPDX-License-Identifier: Apache-2.0
#include "daemon/mount_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/mutex.h"
#include "base/private_directory.h"
#include "base/text.h"
#include "base/uuid.h"
#include "base/xxhash.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// A file that has grown to this, and to twice what it still says, is rewritten.
constexpr std::size_t kShortenAt = std::size_t{256} << 10;
// Behind the path of one that is being made or rewritten.
constexpr std::string_view kNewEnding = ".new";

}  // namespace

std::optional<std::string> state_directory(const std::string& configured, uid_t self, const Environment& environment) {
    if (!configured.empty()) {
        return configured;
    }
    if (self == 0) {
        return "/var/lib/ckptfs";
    }
    if (const auto state = environment("XDG_STATE_HOME")) {
        return *state + "/ckptfs";
    }
    const auto home = environment("HOME");
    return home ? std::optional(*home + "/.local/state/ckptfs") : std::nullopt;
}

std::string journal_place(const std::string& host, const std::string& source, const std::string& mount_point,
                          const std::string& server) {
    return format("{:016x}.{:016x}", xxh3(host + '\n' + source + '\n' + mount_point), xxh3(server));
}

void remove_journal(const std::string& path) {
    unlink((path + std::string(kNewEnding)).c_str());
    unlink(path.c_str());
}

Result<std::unique_ptr<MountJournal>> MountJournal::create(const std::string& directory, const std::string& place) {
    std::error_code problem;
    std::filesystem::create_directories(std::filesystem::path(directory).parent_path(), problem);
    if (auto made = make_private_directory(directory); !made) {
        return failure(made.error());
    }
    const std::string path = format("{}/{}-{}{}", directory, place, random_uuid(), kJournalEnding);
    const std::string new_path = path + std::string(kNewEnding);
    FileDescriptor file(open(new_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
    // Locked before it has the name by which others find it, and would take it for a dead mount's.
    if (!file || flock(file.get(), LOCK_EX | LOCK_NB) != 0 || rename(new_path.c_str(), path.c_str()) != 0) {
        const int reason = errno;
        if (file) {
            unlink(new_path.c_str());
        }
        return failure(reason, format("cannot make {}: {}", escaped(path), std::strerror(reason)));
    }
    return std::unique_ptr<MountJournal>(new MountJournal(path, std::move(file)));
}

std::unique_ptr<MountJournal> MountJournal::in_memory() {
    return std::unique_ptr<MountJournal>(new MountJournal("", FileDescriptor()));
}

MountJournal::~MountJournal() {
    if (!open_.empty()) {
        return;
    }
    // What was taken over has ended.
    is_stale_ = false;
    remove_replaced();
    if (file_) {
        remove_journal(path_);
    }
}

void MountJournal::replace(std::string path, FileDescriptor lock) {
    const MutexLock mutex_lock(mutex_);
    replaced_.push_back({std::move(path), std::move(lock)});
    if (is_stale_) {
        rewrite();
    }
    if (file_) {
        remove_replaced();
    }
}

void MountJournal::remove_replaced() {
    if (file_ ? is_stale_ : !open_.empty()) {
        return;
    }
    for (const Replaced& each : std::exchange(replaced_, {})) {
        remove_journal(each.path);
    }
}

UploadIntent MountJournal::intend(const std::string& key, WallTime asked) {
    const MutexLock lock(mutex_);
    UploadIntent intent{key, asked, ++last_intent_};
    const std::string line = intent_line(intent);
    open_.emplace(format("?{}", intent.number), line);
    append(line);
    return intent;
}

void MountJournal::intent_answered(const UploadIntent& intent) {
    const std::string line = intent_answered_line(intent);
    const MutexLock lock(mutex_);
    const auto open = open_.find(format("?{}", intent.number));
    if (open != open_.end() && !open->second.ends_with("\n" + line)) {
        open->second += line;
        append(line);
    }
}

void MountJournal::intent_ended(const UploadIntent& intent) {
    note_ended(format("?{}", intent.number), intent_ended_line(intent));
}

void MountJournal::begun(const UploadId& upload) {
    if (note_begun("+" + upload.id, upload_begun_line(upload))) {
        const MutexLock lock(mutex_);
        uploads_.push_back(upload);
    }
}

void MountJournal::ended(const UploadId& upload) {
    note_ended("+" + upload.id, upload_ended_line(upload));
    const MutexLock lock(mutex_);
    std::erase_if(uploads_, [&](const UploadId& each) { return each.id == upload.id; });
}

std::vector<UploadId> MountJournal::begun_before(const UploadId& upload) {
    std::vector<UploadId> before;
    const MutexLock lock(mutex_);
    const auto end =
        std::find_if(uploads_.begin(), uploads_.end(), [&](const auto& each) { return each.id == upload.id; });
    std::copy_if(uploads_.begin(), end, std::back_inserter(before),
                 [&](const UploadId& each) { return each.key == upload.key; });
    return before;
}

void MountJournal::made_good(const UploadId& upload) {
    const std::string line = upload_made_good_line(upload);
    const MutexLock lock(mutex_);
    const auto open = open_.find("+" + upload.id);
    if (open != open_.end() && !open->second.ends_with("\n" + line)) {
        open->second += line;
        append(line);
    }
}

bool MountJournal::is_open(const UploadId& upload) {
    const MutexLock lock(mutex_);
    return open_.contains("+" + upload.id);
}

bool MountJournal::object_begun(const std::string& key) {
    return note_begun(">" + key, object_begun_line(key));
}

void MountJournal::object_ended(const std::string& key) {
    note_ended(">" + key, object_ended_line(key));
}

void MountJournal::failure_begun(const std::string& key, const std::string& record) {
    const std::string line = failure_begun_line(key, record);
    const MutexLock lock(mutex_);
    std::string& open = open_["@" + key];
    if (open != line) {
        open = line;
        append(line);
        shorten();
    }
}

void MountJournal::failure_ended(const std::string& key) {
    note_ended("@" + key, failure_ended_line(key));
}

bool MountJournal::note_begun(const std::string& what, const std::string& line) {
    const MutexLock lock(mutex_);
    const bool is_new = open_.emplace(what, line).second;
    if (is_new) {
        append(line);
    }
    return is_new;
}

void MountJournal::note_ended(const std::string& what, const std::string& line) {
    const MutexLock lock(mutex_);
    if (open_.erase(what) > 0) {
        append(line);
        shorten();
    }
}

// After a disk that was full, of all that is open: lines are missing by then.
void MountJournal::append(const std::string& line) {
    if (!file_) {
        remove_replaced();
        return;
    }
    if (is_stale_) {
        rewrite();
        remove_replaced();
        return;
    }
    const int problem = add(line);
    is_stale_ = problem != 0;
    if (!is_stale_) {
        return;
    }
    log_warning(format("{}: {}; if this mount is killed before there is room, its uploads stay in the bucket",
                       escaped(path_), std::strerror(problem)));
}

int MountJournal::add(const std::string& lines) {
    const ssize_t written = write(file_.get(), lines.data(), lines.size());
    if (written == static_cast<ssize_t>(lines.size())) {
        size_ += lines.size();
        return 0;
    }
    const int problem = written < 0 ? errno : ENOSPC;
    size_ += written <= 0 ? 0 : lines.rfind('\n', static_cast<std::size_t>(written) - 1) + 1;
    // Of a line that is there in part, the next would be the rest.
    static_cast<void>(ftruncate(file_.get(), static_cast<off_t>(size_)));
    return problem;
}

// Beside what is there, which stays as long as the disk has no room for it, or where this is killed in between.
void MountJournal::rewrite() {
    std::string lines;
    for (const auto& [what, line] : open_) {
        lines += line;
    }
    const std::string path = path_ + std::string(kNewEnding);
    FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) {
        return;
    }
    // As in create().
    const bool is_whole = flock(file.get(), LOCK_EX | LOCK_NB) == 0 &&
                          write(file.get(), lines.data(), lines.size()) == static_cast<ssize_t>(lines.size());
    if (!is_whole || rename(path.c_str(), path_.c_str()) != 0) {
        unlink(path.c_str());
        return;
    }
    file_ = std::move(file);
    size_ = lines.size();
    is_stale_ = false;
}

void MountJournal::shorten() {
    if (size_ < kShortenAt) {
        return;
    }
    std::size_t needed = 0;
    for (const auto& [what, line] : open_) {
        needed += line.size();
    }
    if (size_ >= 2 * needed) {
        rewrite();
    }
}

}  // namespace ckptfs
