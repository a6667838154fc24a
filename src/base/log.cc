// SPDX-License-Identifier: Apache-2.0
#include "ckptfs/log.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <memory>
#include <mutex>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "base/utf8.h"

namespace ckptfs {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
    switch (level) {
        case LogLevel::kError:
            return spdlog::level::err;
        case LogLevel::kWarning:
            return spdlog::level::warn;
        case LogLevel::kInfo:
            return spdlog::level::info;
        case LogLevel::kDebug:
            return spdlog::level::debug;
    }
    return spdlog::level::info;
}

using Recent = spdlog::sinks::ringbuffer_sink_mt;
constexpr std::size_t kRecentProblems = 10;

// Never destroyed: threads may still log while static objects go.
const std::shared_ptr<Recent>& recent() {
    static auto* instance = new std::shared_ptr<Recent>(std::make_shared<Recent>(kRecentProblems));
    return *instance;
}

// syslog(3).
char priority_of(spdlog::level::level_enum level) {
    switch (level) {
        case spdlog::level::critical:
        case spdlog::level::err:
            return '3';
        case spdlog::level::warn:
            return '4';
        case spdlog::level::debug:
        case spdlog::level::trace:
            return '7';
        default:
            return '6';
    }
}

class Priority final : public spdlog::custom_flag_formatter {
public:
    void format(const spdlog::details::log_msg& message, const std::tm& /*time*/, spdlog::memory_buf_t& line) override {
        line.push_back(priority_of(message.level));
    }
    [[nodiscard]] std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
        return std::make_unique<Priority>();
    }
};

std::unique_ptr<spdlog::formatter> format_for(LogReader reader) {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<Priority>('*').set_pattern(
        reader == LogReader::kJournal ? "<%*>%l: %v" : "%Y-%m-%dT%H:%M:%S.%e%z ckptfs[%P] %l: %v");
    return formatter;
}

// A terminal may have room for some bytes but not for a line, and another program's line may be waiting for it.
// O_NONBLOCK belongs to an open file description, which is shared by all that share standard error: this is another
// one, and open for one line only, since standard error may become something else. Empty if it is no terminal.
FileDescriptor own_terminal() {
    const int errno_before = errno;
    FileDescriptor terminal(
        isatty(STDERR_FILENO) != 0 ? open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1);
    // The caller may not have looked at errno yet.
    errno = errno_before;
    return terminal;
}

// Writes to standard error without waiting for its reader: a terminal that was paused, or a container's log that is not
// read any more, would stop every thread that logs. Lines for which there is no room are counted.
class PatientSink final : public spdlog::sinks::base_sink<std::mutex> {
protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        const FileDescriptor terminal = own_terminal();
        const int target = terminal ? terminal.get() : STDERR_FILENO;
        if (lost_ > 0) {
            const std::string told =
                format("{}ckptfs: {} lines of the log were dropped, because standard error did not take them\n",
                       is_torn_ ? "\n" : "", lost_);
            lost_ = write_all(target, told) ? 0 : lost_;
        }
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        lost_ += lost_ == 0 && write_all(target, std::string_view(line.data(), line.size())) ? 0 : 1;
    }
    void flush_() override {}

private:
    // pipe(7): if there is any room, so many bytes do not block. Sockets have as much.
    static constexpr std::size_t kAtOnce = 4096;

    bool write_all(int target, std::string_view text) {
        while (!text.empty()) {
            pollfd room{target, POLLOUT, 0};
            if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) {
                return false;
            }
            const ssize_t written = write(target, text.data(), std::min(text.size(), kAtOnce));
            if (written <= 0) {
                return false;
            }
            text.remove_prefix(static_cast<std::size_t>(written));
            is_torn_ = !text.empty();
        }
        return true;
    }

    std::uint64_t lost_ = 0;
    // What was written last ends within a line.
    bool is_torn_ = false;
};

spdlog::logger& logger() {
    // Never destroyed, either.
    static auto* instance = [] {
        recent()->set_level(spdlog::level::warn);
        const auto shown = std::make_shared<PatientSink>();
        shown->set_formatter(format_for(LogReader::kPeople));
        auto* made = new spdlog::logger("ckptfs", {shown, recent()});
        recent()->set_pattern("%Y-%m-%dT%H:%M:%S%z %l: %v");
        made->set_level(spdlog::level::info);
        made->flush_on(spdlog::level::debug);
        return made;
    }();
    return *instance;
}

std::atomic<std::uint64_t> errors{0};
std::atomic<std::uint64_t> warnings{0};

bool steers_terminal(char32_t value) {
    const bool line_break = value == 0x2028 || value == 0x2029;
    const bool direction = (value >= 0x202A && value <= 0x202E) || (value >= 0x2066 && value <= 0x2069);
    return is_control(value) || line_break || direction;
}

void append_escaped_byte(std::string& target, unsigned char byte) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    target += "\\x";
    target += kDigits[byte >> 4];
    target += kDigits[byte & 0x0F];
}

}  // namespace

void set_log_level(LogLevel level) {
    logger().set_level(to_spdlog(level));
}

void set_log_reader(LogReader reader) {
    logger().sinks().front()->set_formatter(format_for(reader));
}

void log(LogLevel level, std::string_view line) {
    if (level == LogLevel::kError || level == LogLevel::kWarning) {
        (level == LogLevel::kError ? errors : warnings).fetch_add(1, std::memory_order_relaxed);
    }
    logger().log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

LogCounts log_counts() {
    return {errors, warnings};
}

std::vector<std::string> recent_problems() {
    std::vector<std::string> lines = recent()->last_formatted();
    for (std::string& line : lines) {
        line.erase(line.find_last_not_of('\n') + 1);
    }
    return lines;
}

std::string escaped(std::string_view text) {
    std::string safe;
    safe.reserve(text.size());
    while (!text.empty()) {
        const auto point = first_code_point(text);
        const std::size_t size = point ? point->size : 1;
        if (!point || steers_terminal(point->value)) {
            for (const char each : text.substr(0, size)) {
                append_escaped_byte(safe, static_cast<unsigned char>(each));
            }
        } else {
            safe += text.substr(0, size);
        }
        text.remove_prefix(size);
    }
    return safe;
}

}  // namespace ckptfs
