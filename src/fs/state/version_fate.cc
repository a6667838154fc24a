// SPDX-License-Identifier: Apache-2.0
#include "fs/state/version_fate.h"

#include <algorithm>

namespace ckptfs::fs {

namespace {

constexpr std::size_t kMostWriters = 128;
constexpr std::size_t kMostMakers = 128;

}  // namespace

void VersionFate::made(pid_t opener) {
    const MutexLock lock(mutex_);
    makers_ = {{opener, generation_}};
    begun_ = changed_inside_ = generation_;
    gave_way_ = false;
}

void VersionFate::truncated_again(pid_t opener) {
    const MutexLock lock(mutex_);
    lives(opener);
    if (left_ && !is_written()) {
        left_ = was_told_ = false;
        // Killed processes answer for nothing.
        makers_.clear();
    }
    std::erase_if(makers_, [&](const Maker& maker) { return maker.opener == opener; });
    // The earliest is the most likely to have closed it.
    if (makers_.size() >= kMostMakers) {
        makers_.erase(makers_.begin());
    }
    makers_.push_back({opener, generation_});
    changed_inside_ = generation_;
    gave_way_ = false;
}

bool VersionFate::gives_way(pid_t process) {
    const MutexLock lock(mutex_);
    if (is_written() || !is_made(process) || (!is_made_by_others(process) && is_unsaved(begun_))) {
        return false;
    }
    std::erase_if(makers_, [&](const Maker& maker) { return maker.opener == process; });
    gave_way_ = true;
    return true;
}

void VersionFate::closed_unseen(pid_t process) {
    const MutexLock lock(mutex_);
    for (Maker& maker : makers_) {
        maker.opener = maker.opener == process ? kUnseenProcess : maker.opener;
    }
}

void VersionFate::disowned(pid_t process) {
    const MutexLock lock(mutex_);
    if (is_written() || !is_made(process)) {
        return;
    }
    left_ = left_ || (!is_made_by_others(process) && is_unsaved(begun_));
    gave_way_ = true;
    std::erase_if(makers_, [&](const Maker& maker) { return maker.opener == process; });
}

void VersionFate::resized(pid_t opener) {
    const MutexLock lock(mutex_);
    makers_ = {{opener, generation_}};
    begun_ = resized_ = changed_inside_ = generation_;
    resizer_ = opener;
}

void VersionFate::resized_by_name() {
    const MutexLock lock(mutex_);
    if (!is_unsaved(resized_)) {
        resizer_ = kUnseenProcess;
    }
    if (!is_made_by_others(kUnseenProcess)) {
        makers_ = {{kUnseenProcess, generation_}};
    }
    begun_ = resized_ = changed_inside_ = generation_;
}

void VersionFate::taken_over(pid_t opener) {
    made(opener);
    const MutexLock lock(mutex_);
    writers_.clear();
    many_ = mapped_ = resized_ = std::nullopt;
    resizer_ = kUnseenProcess;
}

void VersionFate::opened(pid_t opener) {
    const MutexLock lock(mutex_);
    lives(opener);
}

void VersionFate::wrote(pid_t process, pid_t opener, Place place, const std::atomic<bool>* has_left) {
    const MutexLock lock(mutex_);
    if (has_left == nullptr || !has_left->load()) {
        lives(process);
        left_ = was_told_ = false;
    }
    if (place == Place::kInside) {
        written_inside_ = changed_inside_ = generation_;
    }
    const auto known = std::find_if(writers_.begin(), writers_.end(), [&](const Writer& writer) {
        return writer.process == process && writer.opener == opener;
    });
    if (known != writers_.end()) {
        known->last_write = generation_;
        return;
    }
    const auto saved = writers_.size() < kMostWriters
                           ? writers_.end()
                           : std::find_if(writers_.begin(), writers_.end(), [&](const Writer& writer) REQUIRES(mutex_) {
                                 return !is_unsaved(writer.last_write);
                             });
    if (saved != writers_.end()) {
        *saved = {process, opener, generation_};
    } else if (writers_.size() < kMostWriters) {
        writers_.push_back({process, opener, generation_});
    } else {
        many_ = generation_;
    }
}

void VersionFate::changed_by_mapping() {
    const MutexLock lock(mutex_);
    mapped_ = written_inside_ = changed_inside_ = generation_;
}

VersionFate::Generation VersionFate::commit_begins() {
    const MutexLock lock(mutex_);
    return ++generation_;
}

bool VersionFate::committed(Generation begun) {
    const MutexLock lock(mutex_);
    // What came after the commit began may be in it, too.
    const bool only_appended = !is_unsaved(changed_inside_);
    first_unsaved_ = std::max(first_unsaved_, begun);
    was_told_ = gave_way_ = false;
    return only_appended;
}

void VersionFate::leave_by_killed_writer(pid_t killed) {
    const MutexLock lock(mutex_);
    left_ = true;
    if (killed != kUnseenProcess && !is_counted(killed) && counted_.size() < kMostWriters) {
        counted_.push_back(killed);
    }
    // So that the next write of those that have written before is noted.
    ++generation_;
}

bool VersionFate::left_by_killed_writer() const {
    const MutexLock lock(mutex_);
    return left_;
}

void VersionFate::tell() {
    const MutexLock lock(mutex_);
    was_told_ = true;
}

bool VersionFate::left_half() const {
    const MutexLock lock(mutex_);
    return left_ && is_written();
}

bool VersionFate::is_written() const {
    return is_unsaved(mapped_) || is_unsaved(many_) ||
           std::any_of(writers_.begin(), writers_.end(),
                       [&](const Writer& writer) REQUIRES(mutex_) { return is_unsaved(writer.last_write); });
}

bool VersionFate::is_made(pid_t process) const {
    return std::any_of(makers_.begin(), makers_.end(), [&](const Maker& maker) REQUIRES(mutex_) {
        return maker.opener == process && is_unsaved(maker.made);
    });
}

bool VersionFate::is_made_by_others(pid_t process) const {
    return std::any_of(makers_.begin(), makers_.end(), [&](const Maker& maker) REQUIRES(mutex_) {
        return maker.opener != process && is_unsaved(maker.made);
    });
}

bool VersionFate::has_left(pid_t process) const {
    const MutexLock lock(mutex_);
    return is_counted(process);
}

bool VersionFate::is_counted(pid_t process) const {
    return std::find(counted_.begin(), counted_.end(), process) != counted_.end();
}

bool VersionFate::answers(pid_t process, bool unsaved_only) const {
    const Generation first = unsaved_only ? first_unsaved_ : 0;
    const auto counts = [first](std::optional<Generation> noted) { return noted && *noted >= first; };
    // A process that only made it answers for it while no process has written, and for the size that it set.
    const bool others_wrote = std::any_of(writers_.begin(), writers_.end(), [&](const Writer& writer) REQUIRES(mutex_) {
        return is_unsaved(writer.last_write);
    });
    const bool is_maker = std::any_of(makers_.begin(), makers_.end(), [&](const Maker& maker) {
        return maker.opener == process && counts(maker.made);
    });
    return (is_maker && (!others_wrote || resizer_ == process)) || counts(many_) ||
           std::any_of(writers_.begin(), writers_.end(), [&](const Writer& writer) {
               return counts(writer.last_write) && (writer.process == process || writer.opener == process);
           });
}

std::vector<pid_t> VersionFate::answering() const {
    const MutexLock lock(mutex_);
    std::vector<pid_t> processes;
    for (const Writer& writer : writers_) {
        if (is_unsaved(writer.last_write)) {
            processes.insert(processes.end(), {writer.process, writer.opener});
        }
    }
    // If several made it, none answers for it before it is written.
    if (processes.empty() && makers_.size() == 1 && is_unsaved(makers_.front().made)) {
        processes.push_back(makers_.front().opener);
    }
    if (is_unsaved(resized_)) {
        processes.push_back(resizer_);
    }
    std::sort(processes.begin(), processes.end());
    processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
    std::erase_if(processes, [&](pid_t process) REQUIRES(mutex_) { return is_counted(process); });
    return processes;
}

VersionState VersionFate::state(pid_t process, pid_t opener) const {
    const MutexLock lock(mutex_);
    VersionState state;
    const bool mapped = is_unsaved(mapped_);
    state.mapped = mapped;
    state.resized = is_unsaved(resized_);
    state.written = is_written();
    state.unseen_wrote = mapped && opener == kUnseenProcess;
    state.wrote = (mapped && process == opener) || is_unsaved(many_);
    for (const Writer& writer : writers_) {
        if (!is_unsaved(writer.last_write)) {
            continue;
        }
        if (writer.process == kUnseenProcess) {
            state.unseen_wrote = true;
        }
        if (writer.process == process) {
            state.wrote = true;
        } else if (writer.process != kUnseenProcess) {
            state.other_writers.push_back(writer.process);
        }
    }
    if (is_unsaved(resized_) && resizer_ != process && resizer_ != kUnseenProcess) {
        state.other_writers.push_back(resizer_);
    }
    state.made = is_made(process);
    state.others_made = is_made_by_others(process);
    state.only_truncated_again = state.made && !state.written && !is_unsaved(begun_);
    state.unsaved = state.written || state.made || state.others_made;
    state.unseen_made = is_made(kUnseenProcess);
    state.gave_way = gave_way_ && state.unsaved && !state.written && !state.unseen_made;
    state.answers_for_it = !is_counted(process) && (state.wrote || answers(process, state.unsaved));
    state.only_appended = !writers_.empty() && !is_unsaved(written_inside_);
    state.left_by_killed_writer = left_;
    state.was_told = was_told_;
    return state;
}

}  // namespace ckptfs::fs
