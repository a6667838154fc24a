// SPDX-License-Identifier: Apache-2.0
// The file of a mount's journal, which a thread of its own writes: a directory that does not respond, such as a home on
// NFS whose server is away, delays the threads that move data once, for a second, and not until it responds.
//
// A file in which lines are missing is stale. It needs a rewrite, with all lines that still count, and keeps the files
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

// Ends the path of a journal that is being created or rewritten.
inline constexpr std::string_view kNewJournalEnding = ".new";

// How much of a journal is there after a power cut.
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
    // Waits for what is queued; if the directory does not respond, not for longer than five times the longest wait.
    ~JournalFile();
    JournalFile(const JournalFile&) = delete;
    JournalFile& operator=(const JournalFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] bool is_in_memory() const { return is_in_memory_; }
    // True if lines are missing in the file, or too many wait for it: the next call is rewrite().
    [[nodiscard]] bool wants_rewrite() const;
    // Bytes in the file, and of what is queued.
    [[nodiscard]] std::size_t size() const;

    // Appends whole lines.
    void append(const std::string& lines);
    // Replaces all that is in the file or queued. The old file stays until the new one is whole.
    void rewrite(std::string lines);
    // Removes the file at `path` once all lines that are queued by now are in this one. Holds `lock` until then.
    void replace(std::string path, FileDescriptor lock);
    // Removes the file, none of whose lines counts any more, and the files that it replaces.
    void remove();

    // Waits until all that is queued by now is done, for the longest wait at most. Does not wait if an earlier call has
    // waited in vain and the file has not caught up since.
    void settle();

private:
    class State;

    const std::string path_;
    const bool is_in_memory_;
    const std::chrono::milliseconds longest_wait_;
    const std::shared_ptr<State> state_;
};

// Removes the file, and the new one that a mount killed during a rewrite leaves.
void remove_journal(const std::string& path);

}  // namespace ckptfs
