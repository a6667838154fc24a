// SPDX-License-Identifier: Apache-2.0
// Going to the background: the command that was typed waits for the mount to answer, then returns.
//
// To be used before any thread is started; threads do not survive fork().
#pragma once

#include <cstdint>
#include <string>

#include "base/environment.h"
#include "base/file_descriptor.h"
#include "ckptfs/status.h"

namespace ckptfs {

// Reports from the mount's process to the command that started it and waits. In the foreground no command waits.
class Readiness {
public:
    Readiness() = default;
    explicit Readiness(FileDescriptor pipe) : pipe_(std::move(pipe)) {}

    // The waiting process prints the line before it exits with 0. Ignored in the foreground.
    void warn(std::string line) { warning_ = std::move(line); }
    // False once the waiting process has ended, by a signal: the mount is no longer wanted. True in the foreground.
    [[nodiscard]] bool is_awaited() const;
    // Makes the waiting process exit with 0, and replaces this process's standard input and output by /dev/null. Does
    // nothing in the foreground.
    void ready();
    // Makes the waiting process print the line and exit with the code given to go_to_background(). In the foreground
    // the line goes to standard error.
    void failed(const std::string& line);

private:
    // Empty in the foreground.
    FileDescriptor pipe_;
    std::string warning_;
};

// Forks. Returns in the background process, which has left the terminal's session; the original process waits in this
// call and exits with 0 or with `failed`.
Result<Readiness> go_to_background(int failed);

// Whether this process has a terminal, whose signals may come. Call it at the start: a terminal that is gone is not
// found.
[[nodiscard]] bool has_terminal();
// Redirects standard error to this file, opened with O_APPEND and created with mode 0600.
Status log_to_file(const std::string& path);
// Redirects standard error to the journal; if there is none, to /dev/null, and returns false.
[[nodiscard]] bool log_to_journal();

// Writes one line to standard error, with the priority of an error if the journal reads it.
void complain(const std::string& line);
// Whether systemd has connected this descriptor to the journal ($JOURNAL_STREAM, systemd.exec(5)).
[[nodiscard]] bool is_read_by_journal(int descriptor, const Environment& environment);

// Prevents core dumps and reads by other processes of the same user: memory and environment hold secrets.
void hide_memory();

// The limit of open files that allow_open_files() sets: 65,536 or the hard limit, but at least the current one. 0 where
// it cannot be read.
std::uint64_t most_open_files();
// Raises the limit to most_open_files(): shells set 1,024, for programs that cannot cope with more.
void allow_open_files();

}  // namespace ckptfs
