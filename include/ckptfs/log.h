// SPDX-License-Identifier: Apache-2.0
// One line per event, to standard error or the journal.
//
// Text that came from outside (keys, server messages) must pass through escaped() before it is logged: it may hold
// control sequences. Secrets are never passed to these functions.
// Threads: all functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ckptfs {

enum class LogLevel : std::uint8_t { kError, kWarning, kInfo, kDebug };

// The reader of standard error. Lines for people begin with the time and the process; the journal knows these, and its
// lines begin with the priority (sd-daemon(3)).
enum class LogReader : std::uint8_t { kPeople, kJournal };

void set_log_level(LogLevel level);
void set_log_reader(LogReader reader);
void log(LogLevel level, std::string_view line);

// The last errors and warnings, oldest first, as they were logged.
[[nodiscard]] std::vector<std::string> recent_problems();

struct LogCounts {
    std::uint64_t errors = 0;
    std::uint64_t warnings = 0;
};
// Counts since the process began.
[[nodiscard]] LogCounts log_counts();

inline void log_error(std::string_view line) {
    log(LogLevel::kError, line);
}
inline void log_warning(std::string_view line) {
    log(LogLevel::kWarning, line);
}
inline void log_info(std::string_view line) {
    log(LogLevel::kInfo, line);
}
inline void log_debug(std::string_view line) {
    log(LogLevel::kDebug, line);
}

// Control characters and invalid UTF-8 as \xNN, so that one event stays one line on any terminal.
std::string escaped(std::string_view text);

}  // namespace ckptfs
