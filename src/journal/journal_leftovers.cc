// SPDX-License-Identifier: Apache-2.0
#include "journal/journal_leftovers.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// No journal of ours is larger, however many uploads were open.
constexpr std::uintmax_t kLargest = std::uintmax_t{64} << 20;

// Also for the journal of a version that did not name the server.
bool is_of_place(const std::string& name, const std::string& place) {
    return name.ends_with(kJournalEnding) &&
           (name.starts_with(place + '-') || name.starts_with(place.substr(0, place.find('.')) + '-'));
}

std::vector<std::string> journals_of(const std::string& directory, const std::string& place) {
    std::vector<std::string> paths;
    std::error_code problem;
    for (const auto& entry : std::filesystem::directory_iterator(directory, problem)) {
        const std::string name = entry.path().filename().string();
        if (is_of_place(name, place)) {
            paths.push_back(entry.path().string());
        }
    }
    return paths;
}

// The journal's owner may have removed or replaced it before it released the lock.
bool is_still_named(const FileDescriptor& file, const std::string& path) {
    struct stat opened {};
    struct stat named {};
    return fstat(file.get(), &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

bool is_locked_by_us(const FileDescriptor& file, const std::string& path) {
    return flock(file.get(), LOCK_EX | LOCK_NB) == 0 && is_still_named(file, path);
}

Result<std::string> content_of(const std::string& path) {
    std::error_code problem;
    const auto size = std::filesystem::file_size(path, problem);
    if (problem) {
        return failure(problem.value(), problem.message());
    }
    if (size > kLargest) {
        return failure(EFBIG, format("it has {} bytes", size));
    }
    std::ifstream file(path, std::ios::binary);
    std::string text(size, '\0');
    if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
        return failure(EIO, "it cannot be read");
    }
    return text;
}

// For writing, as NFS gives an exclusive lock for no other descriptor; for reading on a filesystem that has become
// read-only.
FileDescriptor open_journal(const std::string& path) {
    FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    return file || errno != EROFS ? std::move(file)
                                  : FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

// What others could have written is not trusted; that they can see it does not matter.
bool can_only_be_written_by_us(const std::string& directory) {
    struct stat status {};
    return lstat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 0022) == 0;
}

// Progress of end_leftovers(), until the last reply.
struct Ending {
    Ending(std::vector<Leftovers> all, MountJournal& successor) : leftovers(std::move(all)), journal(successor) {
        for (const Leftovers& file : leftovers) {
            left.push_back(file.begun.size());
            total += left.back();
        }
        open = total;
    }

    void replace(std::size_t file) {
        Leftovers& replaced = leftovers[file];
        journal.replace(replaced.path, std::move(replaced.lock));
    }

    std::vector<Leftovers> leftovers;
    MountJournal& journal;
    Mutex mutex;
    // Per file, what could not be ended or has not been yet.
    std::vector<std::size_t> left GUARDED_BY(mutex);
    std::size_t open GUARDED_BY(mutex) = 0;
    std::size_t total GUARDED_BY(mutex) = 0;
    std::string problem GUARDED_BY(mutex);
};

void tell(const Ending& ending) REQUIRES(ending.mutex) {
    std::size_t left = 0;
    for (const std::size_t each : ending.left) {
        left += each;
    }
    log_info(format("ended {} of {} {} that an earlier mount here had begun", ending.total - left, ending.total,
                    ending.total == 1 ? "upload or hidden file" : "uploads and hidden files"));
    if (left > 0) {
        log_warning(format("the rest will be cleaned up by the next mount here: {}", escaped(ending.problem)));
    }
}

void on_ended(Ending& ending, std::size_t file, const Status& result) {
    const MutexLock lock(ending.mutex);
    if (!result) {
        ending.problem = result.error().message;
    } else if (--ending.left[file] == 0) {
        ending.replace(file);
    }
    if (--ending.open == 0) {
        tell(ending);
    }
}

}  // namespace

std::vector<Leftovers> take_leftovers(const std::string& directory, const std::string& place) {
    std::vector<Leftovers> all;
    for (const std::string& path : journals_of(directory, place)) {
        FileDescriptor file = open_journal(path);
        if (file && is_locked_by_us(file, path)) {
            const Result<std::string> content = content_of(path);
            if (!content) {
                // Kept, because what it names is still in the bucket.
                log_warning(format("{} lists what an earlier mount here left, but {}; ckptfs gc finds what is left",
                                   escaped(path), content.error().message));
                continue;
            }
            all.push_back({parse_journal(*content), path, std::move(file)});
        }
    }
    return all;
}

bool is_another_in_use(const std::string& directory, const std::string& place, const std::string& own) {
    const std::vector<std::string> journals = journals_of(directory, place);
    std::error_code problem;
    return std::any_of(journals.begin(), journals.end(), [&own, &problem](const std::string& path) {
        const FileDescriptor file = path == own ? FileDescriptor() : open_journal(path);
        if (!file || flock(file.get(), LOCK_SH | LOCK_NB) != 0) {
            return bool(file);
        }
        return !is_still_named(file, path) && std::filesystem::exists(path, problem);
    });
}

MountJournals open_journals(const std::optional<std::string>& directory, const std::string& place, JournalKept kept) {
    MountJournals journals;
    auto own = directory ? MountJournal::create(*directory, place, JournalFile::kLongestWait, kept)
                         : failure(ENOENT, "this user has no home");
    if (own) {
        journals.own = std::move(*own);
    } else {
        log_warning(
            format("no journal; if this mount is killed, its uploads stay in the bucket: {}", own.error().message));
        journals.own = MountJournal::in_memory();
    }
    // Also if this mount could not create a file: the journals name failures that hold markers back.
    if (directory && can_only_be_written_by_us(*directory)) {
        // Looked at first: a mount that is killed in between is then taken.
        journals.another_lives = is_another_in_use(*directory, place, journals.own->path());
        journals.leftovers = take_leftovers(*directory, place);
    }
    return journals;
}

void end_leftovers(std::vector<Leftovers> leftovers, ObjectStore& store, MountJournal& journal,
                   const BeforeRemoval& before) {
    const auto ending = std::make_shared<Ending>(std::move(leftovers), journal);
    for (std::size_t file = 0; file < ending->leftovers.size(); ++file) {
        if (ending->leftovers[file].begun.size() == 0) {
            ending->replace(file);
        }
    }
    for (std::size_t file = 0; file < ending->leftovers.size(); ++file) {
        const auto ended = [ending, file](const Status& result) { on_ended(*ending, file, result); };
        for (const UploadId& upload : ending->leftovers[file].begun.uploads) {
            before(upload.key, upload.id, [&store, upload, ended](const Status& allowed) {
                if (allowed) {
                    store.abort_upload(upload, ended);
                } else {
                    ended(allowed);
                }
            });
        }
        for (const UploadId& upload : ending->leftovers[file].begun.made_good) {
            store.abort_upload(upload, ended);
        }
        for (const std::string& key : ending->leftovers[file].begun.objects) {
            before(key, "", [&store, key, ended](const Status& allowed) {
                if (allowed) {
                    store.remove(key, ended);
                } else {
                    ended(allowed);
                }
            });
        }
    }
}

}  // namespace ckptfs
