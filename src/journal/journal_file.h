// SPDX-License-Identifier: Apache-2.0
// The file of a mount's journal, which a thread of its own writes: a directory that does not answer, such as a home on
// NFS whose server is away, holds up the threads that move data once, for a second, and not until it answers.
//
// A file in which lines are missing is stale. It wants a rewrite, with all lines that still count, and keeps the files
// that it replaces until then.
// Threads: any. Nothing here waits for the disk, except settle() and the destructor, which wait for a limited time.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace ckptfs {

// Behind the path of one that is being made or rewritten.
inline constexpr std::string_view kNewJournalEnding = ".new";

// How much of it is there after a power cut.
enum class JournalKept {
    // What the kernel had written.
    kByTheKernel,
    // All lines for which settle() has returned in time.
    kOnDisk,
};

class JournalFile {
public:
    // Longer than any disk takes for a line, and shorter than what a program notices as a hang.
    static constexpr std::chrono::milliseconds kLongestWait{1'000};

    // `file`: none for a journal in memory, which only removes what it replaces.
    JournalFile(std::string path, FileDescriptor file, std::chrono::milliseconds longest_wait,
                JournalKept kept = JournalKept::kByTheKernel);
    // Waits for what is queued; if the directory does not answer, not for longer than five times the longest wait.
    ~JournalFile();
    JournalFile(const JournalFile&) = delete;
    JournalFile& operator=(const JournalFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] bool is_in_memory() const { return is_in_memory_; }
    // Lines are missing in the file, or too many wait for it: the next call is rewrite().
    [[nodiscard]] bool wants_rewrite() const;
    // With what is queued.
    [[nodiscard]] std::size_t size() const;

    // Whole lines.
    void append(const std::string& lines);
    // In place of all that is in the file or queued. The file that is there stays until the new one is whole.
    void rewrite(std::string lines);
    // Removes the file at `path` once all lines that are queued by now are in this one. Holds `lock` until then.
    void replace(std::string path, FileDescriptor lock);
    // None of its lines counts any more: removes the file, and what it replaces.
    void remove();

    // Returns when all that is queued by now is done; does not wait if an earlier call has waited in vain and the file
    // has not caught up since.
    void settle();

private:
    class State;

    const std::string path_;
    const bool is_in_memory_;
    const std::chrono::milliseconds longest_wait_;
    const std::shared_ptr<State> state_;
};

// The file, and what a mount leaves that is killed while it rewrites it.
void remove_journal(const std::string& path);

}  // namespace ckptfs
