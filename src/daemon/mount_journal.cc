// SPDX-License-Identifier: Apache-2.0
#include "daemon/mount_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "base/mutex.h"
#include "base/numbers.h"
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
// One word without spaces or line ends, whatever the store's IDs and others' keys hold.
std::string encoded(std::string_view text) {
    std::string word;
    for (const char each : text) {
        const auto byte = static_cast<unsigned char>(each);
        word += byte <= ' ' || byte == '%' || byte == 0x7F ? format("%{:02X}", byte) : std::string(1, each);
    }
    return word;
}

std::string decoded(std::string_view word) {
    std::string text;
    for (std::size_t i = 0; i < word.size(); ++i) {
        unsigned byte = 0;
        const char* digits = word.data() + i + 1;
        if (word[i] == '%' && i + 2 < word.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
            text += static_cast<char>(byte);
            i += 2;
        } else {
            text += word[i];
        }
    }
    return text;
}

// "SECONDS KEY"
std::optional<UploadIntent> parse_intent(std::string_view text) {
    const auto seconds = take_number<std::int64_t>(text);
    if (!seconds || !text.starts_with(' ')) {
        return std::nullopt;
    }
    return UploadIntent{decoded(text.substr(1)), WallTime(std::chrono::seconds(*seconds)), 0};
}

struct OpenLines {
    std::map<std::string, UploadIntent, std::less<>> intents;
    std::map<std::string, UploadId> uploads;
    // Of these uploads.
    std::set<std::string> made_good;
    std::set<std::string> objects;
    std::map<std::string, std::string> failures;
};

void parse_line(std::string_view line, OpenLines& open) {
    const std::size_t space = line.find(' ');
    if (line.starts_with('?') && space != std::string_view::npos) {
        if (std::optional<UploadIntent> intent = parse_intent(line.substr(space + 1))) {
            open.intents[std::string(line.substr(1, space - 1))] = std::move(*intent);
        }
    } else if (line.starts_with('=')) {
        if (const auto answered = open.intents.find(line.substr(1)); answered != open.intents.end()) {
            answered->second.file_ended = true;
        }
    } else if (line.starts_with('!')) {
        if (const auto ended = open.intents.find(line.substr(1)); ended != open.intents.end()) {
            open.intents.erase(ended);
        }
    } else if (line.starts_with('+') && space != std::string_view::npos) {
        const std::string id = decoded(line.substr(1, space - 1));
        open.uploads[id] = {decoded(line.substr(space + 1)), id};
    } else if (line.starts_with('-')) {
        open.uploads.erase(decoded(line.substr(1)));
    } else if (line.starts_with('*')) {
        open.made_good.insert(decoded(line.substr(1)));
    } else if (line.starts_with('>')) {
        open.objects.insert(decoded(line.substr(1)));
    } else if (line.starts_with('<')) {
        open.objects.erase(decoded(line.substr(1)));
    } else if (line.starts_with('@') && space != std::string_view::npos) {
        open.failures[decoded(line.substr(1, space - 1))] = decoded(line.substr(space + 1));
    } else if (line.starts_with('~')) {
        open.failures.erase(decoded(line.substr(1)));
    }
}

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

JournalContents parse_journal(std::string_view text) {
    OpenLines open;
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
        parse_line(text.substr(0, end), open);
        text.remove_prefix(end + 1);
    }
    JournalContents contents;
    std::set<std::string> unfinished;
    for (auto& [id, upload] : open.uploads) {
        if (open.made_good.contains(id)) {
            contents.made_good.push_back(std::move(upload));
        } else {
            unfinished.insert(upload.key);
            contents.uploads.push_back(std::move(upload));
        }
    }
    for (auto& [number, intent] : open.intents) {
        intent.file_ended = intent.file_ended && !unfinished.contains(intent.key);
        contents.intents.push_back(std::move(intent));
    }
    contents.objects.assign(open.objects.begin(), open.objects.end());
    for (auto& [key, record] : open.failures) {
        contents.failures.push_back({key, std::move(record)});
    }
    return contents;
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
    const auto seconds = std::chrono::floor<std::chrono::seconds>(asked.time_since_epoch()).count();
    const MutexLock lock(mutex_);
    const std::uint64_t number = ++last_intent_;
    const std::string line = format("?{} {} {}\n", number, seconds, encoded(key));
    open_.emplace(format("?{}", number), line);
    append(line);
    return {key, asked, number};
}

void MountJournal::intent_answered(const UploadIntent& intent) {
    const std::string line = format("={}\n", intent.number);
    const MutexLock lock(mutex_);
    const auto open = open_.find(format("?{}", intent.number));
    if (open != open_.end() && !open->second.ends_with("\n" + line)) {
        open->second += line;
        append(line);
    }
}

void MountJournal::intent_ended(const UploadIntent& intent) {
    note_ended(format("?{}", intent.number), format("!{}\n", intent.number));
}

void MountJournal::begun(const UploadId& upload) {
    if (note_begun("+" + upload.id, format("+{} {}\n", encoded(upload.id), encoded(upload.key)))) {
        const MutexLock lock(mutex_);
        uploads_.push_back(upload);
    }
}

void MountJournal::ended(const UploadId& upload) {
    note_ended("+" + upload.id, format("-{}\n", encoded(upload.id)));
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
    const std::string line = format("*{}\n", encoded(upload.id));
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
    return note_begun(">" + key, format(">{}\n", encoded(key)));
}

void MountJournal::object_ended(const std::string& key) {
    note_ended(">" + key, format("<{}\n", encoded(key)));
}

void MountJournal::failure_begun(const std::string& key, const std::string& record) {
    const std::string line = format("@{} {}\n", encoded(key), encoded(record));
    const MutexLock lock(mutex_);
    std::string& open = open_["@" + key];
    if (open != line) {
        open = line;
        append(line);
        shorten();
    }
}

void MountJournal::failure_ended(const std::string& key) {
    note_ended("@" + key, format("~{}\n", encoded(key)));
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
