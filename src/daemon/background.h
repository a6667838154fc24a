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

// What the process that goes on says to the one that waits.
class Readiness {
public:
    Readiness() = default;
    explicit Readiness(FileDescriptor pipe) : pipe_(std::move(pipe)) {}

    // The waiting process prints the line before it exits with 0. Nothing in the foreground.
    void warn(std::string line) { warning_ = std::move(line); }
    // False once the waiting process has ended, by a signal: the mount is no longer wanted. True in the foreground.
    [[nodiscard]] bool is_awaited() const;
    // The waiting process exits with 0; ours lets go of the terminal.
    void ready();
    // The waiting process prints the line and exits with its code for that. In the foreground the line goes to standard
    // error.
    void failed(const std::string& line);

private:
    // Empty in the foreground.
    FileDescriptor pipe_;
    std::string warning_;
};

// Returns in the process that goes on, which has left the terminal's session; the process that was started waits and
// exits from within, with 0 or with `failed`.
Result<Readiness> go_to_background(int failed);

// Signals of a terminal may come. To be asked at the start: a terminal that is gone is none.
[[nodiscard]] bool has_terminal();
// Standard error becomes this file; O_APPEND, made with mode 0600.
Status log_to_file(const std::string& path);
// Standard error becomes the journal; or, where there is none, /dev/null, and the answer is false.
[[nodiscard]] bool log_to_journal();

// One line to standard error, for the journal as an error.
void complain(const std::string& line);
// Whether systemd has connected this descriptor to the journal ($JOURNAL_STREAM, systemd.exec(5)).
[[nodiscard]] bool is_read_by_journal(int descriptor, const Environment& environment);

// No core dump and no look by other processes of the same user: memory and environment hold secrets.
void hide_memory();

// As many files as a mount may have open, where this user may raise the limit so far.
std::uint64_t most_open_files();
// Shells begin with 1,024, for programs that know no others.
void allow_open_files();

}  // namespace ckptfs
