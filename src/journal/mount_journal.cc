// SPDX-License-Identifier: Apache-2.0
#include "journal/mount_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>
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

Result<std::unique_ptr<MountJournal>> MountJournal::create(const std::string& directory, const std::string& place,
                                                           std::chrono::milliseconds longest_wait, JournalKept kept) {
    std::error_code problem;
    std::filesystem::create_directories(std::filesystem::path(directory).parent_path(), problem);
    if (auto made = make_private_directory(directory); !made) {
        return failure(made.error());
    }
    const std::string path = format("{}/{}-{}{}", directory, place, random_uuid(), kJournalEnding);
    const std::string new_path = path + std::string(kNewJournalEnding);
    FileDescriptor file(::open(new_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
    // Locked before it has the name by which others find it, who would treat it as a dead mount's.
    if (!file || flock(file.get(), LOCK_EX | LOCK_NB) != 0 || rename(new_path.c_str(), path.c_str()) != 0) {
        const int reason = errno;
        if (file) {
            unlink(new_path.c_str());
        }
        return failure(reason, format("cannot make {}: {}", escaped(path), std::strerror(reason)));
    }
    if (Status flushed = kept == JournalKept::kOnDisk ? flush_directory(directory) : Status(); !flushed) {
        unlink(path.c_str());
        return failure(std::move(flushed.error()));
    }
    return std::unique_ptr<MountJournal>(new MountJournal(path, std::move(file), longest_wait, kept));
}

std::unique_ptr<MountJournal> MountJournal::in_memory() {
    return std::unique_ptr<MountJournal>(
        new MountJournal("", FileDescriptor(), JournalFile::kLongestWait, JournalKept::kByTheKernel));
}

MountJournal::~MountJournal() {
    if (!open_.empty()) {
        return;
    }
    // What was taken over has ended.
    remove_replaced();
    file_.remove();
}

void MountJournal::replace(std::string path, FileDescriptor lock) {
    {
        const MutexLock mutex_lock(mutex_);
        replaced_.push_back({std::move(path), std::move(lock)});
        if (!file_.is_in_memory()) {
            if (file_.wants_rewrite()) {
                rewrite();
            }
            remove_replaced();
        }
    }
    file_.settle();
}

void MountJournal::remove_replaced() {
    for (Replaced& each : std::exchange(replaced_, {})) {
        file_.replace(std::move(each.path), std::move(each.lock));
    }
}

UploadIntent MountJournal::intend(const std::string& key, WallTime asked, UploadedFile file) {
    return take_over({{key, asked, 0, file == UploadedFile::kSafe}}).front();
}

std::vector<UploadIntent> MountJournal::take_over(const std::vector<UploadIntent>& left) {
    std::vector<UploadIntent> ours = left;
    {
        const MutexLock lock(mutex_);
        for (UploadIntent& intent : ours) {
            intent.number = ++last_intent_;
            // All lines at once: a kill may come between two of them.
            const std::string answered = intent.file_ended ? intent_answered_line(intent) : "";
            const std::string earlier = intent.earlier_sent != WallTime{} ? intent_earlier_sent_line(intent) : "";
            const std::string line = intent_line(intent) + earlier + answered;
            open_.emplace(format("?{}", intent.number), line);
            if (!intent.file_ended) {
                unfinished_.emplace(std::pair(intent.key, intent.number), intent);
            }
            append(line);
        }
    }
    file_.settle();
    return ours;
}

UploadIntent MountJournal::outlived(UploadIntent intent) {
    const MutexLock lock(mutex_);
    const auto found = unfinished_.find({intent.key, intent.number});
    return found != unfinished_.end() ? found->second : std::move(intent);
}

void MountJournal::version_sent(const std::string& key, WallTime acknowledged, WallTime now, const std::string& etag) {
    std::vector<UploadIntent> outlived;
    {
        const MutexLock lock(mutex_);
        for (auto each = unfinished_.lower_bound({key, 0}); each != unfinished_.end() && each->first.first == key;
             ++each) {
            if (each->second.asked >= acknowledged) {
                each->second.earlier_sent = now;
                each->second.earlier_etag = etag;
                outlived.push_back(each->second);
            }
        }
    }
    for (const UploadIntent& each : outlived) {
        note_more(format("?{}", each.number), intent_earlier_sent_line(each));
    }
}

void MountJournal::intent_answered(const UploadIntent& intent) {
    note_file_ended(intent);
    note_more(format("?{}", intent.number), intent_answered_line(intent));
}

void MountJournal::intent_ended(const UploadIntent& intent) {
    note_file_ended(intent);
    note_ended(format("?{}", intent.number), intent_ended_line(intent));
}

void MountJournal::begun(const UploadId& upload, UploadedFile file) {
    const std::string made_good = file == UploadedFile::kSafe ? upload_made_good_line(upload) : "";
    {
        const MutexLock lock(mutex_);
        if (!open("+" + upload.id, upload_begun_line(upload) + made_good)) {
            return;
        }
        uploads_.push_back(upload);
    }
    file_.settle();
}

void MountJournal::ended(const UploadId& upload) {
    {
        const MutexLock lock(mutex_);
        std::erase_if(uploads_, [&](const UploadId& each) { return each.id == upload.id; });
    }
    note_ended("+" + upload.id, upload_ended_line(upload));
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
    note_more("+" + upload.id, upload_made_good_line(upload));
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
    {
        const MutexLock lock(mutex_);
        std::string& open = open_["@" + key];
        if (open == line) {
            return;
        }
        open = line;
        append(line);
        shorten();
    }
    file_.settle();
}

void MountJournal::failure_ended(const std::string& key) {
    note_ended("@" + key, failure_ended_line(key));
}

void MountJournal::note_file_ended(const UploadIntent& intent) {
    const MutexLock lock(mutex_);
    unfinished_.erase({intent.key, intent.number});
}

bool MountJournal::open(const std::string& what, const std::string& line) {
    const bool is_new = open_.emplace(what, line).second;
    if (is_new) {
        append(line);
    }
    return is_new;
}

bool MountJournal::note_begun(const std::string& what, const std::string& line) {
    {
        const MutexLock lock(mutex_);
        if (!open(what, line)) {
            return false;
        }
    }
    file_.settle();
    return true;
}

void MountJournal::note_more(const std::string& what, const std::string& line) {
    {
        const MutexLock lock(mutex_);
        const auto open = open_.find(what);
        if (open == open_.end() || open->second.ends_with("\n" + line)) {
            return;
        }
        open->second += line;
        append(line);
    }
    file_.settle();
}

void MountJournal::note_ended(const std::string& what, const std::string& line) {
    {
        const MutexLock lock(mutex_);
        if (open_.erase(what) == 0) {
            return;
        }
        append(line);
        shorten();
    }
    file_.settle();
}

void MountJournal::append(const std::string& line) {
    if (file_.is_in_memory()) {
        if (open_.empty()) {
            remove_replaced();
        }
    } else if (file_.wants_rewrite()) {
        rewrite();
    } else {
        file_.append(line);
    }
}

void MountJournal::rewrite() {
    std::string lines;
    for (const auto& [what, line] : open_) {
        lines += line;
    }
    file_.rewrite(std::move(lines));
}

void MountJournal::shorten() {
    const std::size_t size = file_.size();
    if (size < kShortenAt) {
        return;
    }
    std::size_t needed = 0;
    for (const auto& [what, line] : open_) {
        needed += line.size();
    }
    if (size >= 2 * needed) {
        rewrite();
    }
}

}  // namespace ckptfs
