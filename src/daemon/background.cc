// SPDX-License-Identifier: Apache-2.0
#include "daemon/background.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "base/text_file.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

constexpr char kReady = '+';
constexpr char kFailed = '-';

// Writes to a terminal or a pipe. Errors are ignored: without a reader they do not matter.
void tell(int fd, std::string_view text) {
    static_cast<void>(write_text(fd, text));
}

std::string read_to_end(int fd) {
    std::string text;
    std::array<char, 1024> chunk{};
    for (;;) {
        const ssize_t size = read(fd, chunk.data(), chunk.size());
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size <= 0) {
            return text;
        }
        text.append(chunk.data(), static_cast<std::size_t>(size));
    }
}

// Ends this process with what the background process reported. Skips static destructors, which belong to that process.
[[noreturn]] void wait_and_exit(const FileDescriptor& pipe, pid_t child, int failed) {
    const std::string said = read_to_end(pipe.get());
    if (said.starts_with(kReady)) {
        if (said.size() > 1) {
            tell(STDERR_FILENO, said.substr(1) + "\n");
        }
        _exit(0);
    }
    if (said.starts_with(kFailed)) {
        complain(said.substr(1));
    } else {
        int status = 0;
        waitpid(child, &status, 0);
        complain("ckptfs: ended before the mount answered; see its log");
    }
    _exit(failed);
}

void replace(int target, const char* path, int flags) {
    const FileDescriptor file(open(path, flags | O_CLOEXEC));
    if (file) {
        dup2(file.get(), target);
    }
}

// sd_journal_stream_fd(3): the lines of this stream become messages of this program.
FileDescriptor journal_stream() {
    FileDescriptor stream(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    constexpr std::string_view kPath = "/run/systemd/journal/stdout";
    kPath.copy(address.sun_path, sizeof address.sun_path - 1);
    if (!stream || connect(stream.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        return {};
    }
    // Identifier, unit, priority (6: informational) of lines without one, whether lines may begin with a priority (1),
    // and no forwarding.
    tell(stream.get(), "ckptfs\n\n6\n1\n0\n0\n0\n");
    return stream;
}

}  // namespace

bool Readiness::is_awaited() const {
    // pipe(7), poll(2): POLLERR for the end that is written to, once it has no reader.
    pollfd reader{pipe_.get(), 0, 0};
    return !pipe_ || poll(&reader, 1, 0) != 1 || (reader.revents & POLLERR) == 0;
}

void Readiness::ready() {
    if (!pipe_) {
        return;
    }
    tell(pipe_.get(), kReady + warning_);
    pipe_.reset();
    replace(STDIN_FILENO, "/dev/null", O_RDONLY);
    replace(STDOUT_FILENO, "/dev/null", O_WRONLY);
}

void Readiness::failed(const std::string& line) {
    if (pipe_) {
        tell(pipe_.get(), kFailed + line);
        pipe_.reset();
    } else {
        complain(line);
    }
}

Result<Readiness> go_to_background(int failed) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return failure(errno, format("cannot make a pipe: {}", std::strerror(errno)));
    }
    FileDescriptor reader(ends[0]);
    FileDescriptor writer(ends[1]);
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) {
        return failure(errno, format("cannot start a process: {}", std::strerror(errno)));
    }
    if (child > 0) {
        writer.reset();
        wait_and_exit(reader, child, failed);
    }
    reader.reset();
    // The caller's locks must not stay held for as long as the mount is there; nothing of ours is open yet.
    close_all_but(writer.get(), STDERR_FILENO + 1);
    setsid();
    // The leader of a session could get a terminal again; its child cannot.
    if (const pid_t grandchild = fork(); grandchild != 0) {
        _exit(grandchild < 0 ? 1 : 0);
    }
    return Readiness(std::move(writer));
}

bool has_terminal() {
    return static_cast<bool>(FileDescriptor(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)));
}

Status log_to_file(const std::string& path) {
    const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!file || dup2(file.get(), STDERR_FILENO) < 0) {
        return failure(errno, format("--log-file {}: {}", escaped(path), std::strerror(errno)));
    }
    return {};
}

bool log_to_journal() {
    const FileDescriptor journal = journal_stream();
    if (journal) {
        dup2(journal.get(), STDERR_FILENO);
        set_log_reader(LogReader::kJournal);
    } else {
        replace(STDERR_FILENO, "/dev/null", O_WRONLY);
    }
    return static_cast<bool>(journal);
}

void complain(const std::string& line) {
    constexpr std::string_view kPriority = "<3>";
    const bool to_journal = is_read_by_journal(STDERR_FILENO, process_environment());
    tell(STDERR_FILENO, format("{}{}\n", to_journal ? kPriority : "", line));
}

bool is_read_by_journal(int descriptor, const Environment& environment) {
    struct stat stream {};
    const auto named = environment("JOURNAL_STREAM");
    return named && fstat(descriptor, &stream) == 0 && *named == format("{}:{}", stream.st_dev, stream.st_ino);
}

std::uint64_t most_open_files() {
    // As in packaging/systemd/ckptfs@.service. No more, because programs that a mount runs inherit the limit, and some
    // close every number up to it.
    constexpr rlim_t kEnough = 65'536;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    return std::max(limit.rlim_cur, std::min(limit.rlim_max, kEnough));
}

void allow_open_files() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = most_open_files();
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

void hide_memory() {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
#ifndef CKPTFS_SANITIZED
    // The limit above does not bind a core_pattern that names a program. LeakSanitizer traces its own process, which
    // this forbids.
    prctl(PR_SET_DUMPABLE, 0);
#endif
}

}  // namespace ckptfs
