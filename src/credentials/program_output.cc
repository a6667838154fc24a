// SPDX-License-Identifier: Apache-2.0
#include "credentials/program_output.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = std::size_t{1} << 20;
// The end of a program's error output says why it failed.
constexpr std::size_t kShownErrors = 500;
constexpr std::chrono::milliseconds kLookForStop{100};

struct Pipe {
    FileDescriptor reader;
    FileDescriptor writer;
};

std::optional<Pipe> make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        return std::nullopt;
    }
    return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// A child has nothing of this process except its environment: no descriptors, no blocked or ignored signals.
class SpawnSettings {
public:
    SpawnSettings(int output, int errors) {
        posix_spawn_file_actions_init(&files_);
        posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&files_, output, STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&files_, errors, STDERR_FILENO);
        posix_spawn_file_actions_addclosefrom_np(&files_, STDERR_FILENO + 1);
        sigset_t none;
        sigset_t all;
        sigemptyset(&none);
        sigfillset(&all);
        posix_spawnattr_init(&attributes_);
        posix_spawnattr_setsigmask(&attributes_, &none);
        posix_spawnattr_setsigdefault(&attributes_, &all);
        // A process group of its own, so that its children can be killed with it.
        posix_spawnattr_setpgroup(&attributes_, 0);
        posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    }
    ~SpawnSettings() {
        posix_spawn_file_actions_destroy(&files_);
        posix_spawnattr_destroy(&attributes_);
    }
    SpawnSettings(const SpawnSettings&) = delete;
    SpawnSettings& operator=(const SpawnSettings&) = delete;

    [[nodiscard]] const posix_spawn_file_actions_t* files() const { return &files_; }
    [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

private:
    posix_spawn_file_actions_t files_{};
    posix_spawnattr_t attributes_{};
};

// A program that was started; it never outlives this object.
class Child {
public:
    explicit Child(pid_t pid) : pid_(pid), ended_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
    ~Child() {
        if (!waited_) {
            wait();
        }
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    // A pidfd, readable once the program has ended; -1 if the kernel has none (before Linux 5.3, and under some
    // filters).
    [[nodiscard]] int descriptor() const { return ended_.get(); }
    [[nodiscard]] bool has_ended() const {
        siginfo_t ended{};
        if (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0) {
            // If SIGCHLD is ignored, nothing is left of the program, and its PID may be that of another one.
            return errno == ECHILD;
        }
        return ended.si_pid == pid_;
    }
    void kill_all() const { kill(-pid_, SIGKILL); }
    // Kills the program and its children unless it has ended. Returns the status of waitpid(2).
    int wait() {
        kill_all_unless_ended();
        int status = 0;
        while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        waited_ = true;
        return status;
    }

private:
    void kill_all_unless_ended() const {
        if (!has_ended()) {
            kill_all();
        }
    }

    const pid_t pid_;
    const FileDescriptor ended_;
    bool waited_ = false;
};

// True once the pipe has come to its end.
bool drain(int pipe, std::string& text) {
    std::array<char, 4096> piece{};
    const ssize_t count = read(pipe, piece.data(), piece.size());
    if (count > 0) {
        text.append(piece.data(), static_cast<std::size_t>(count));
    }
    return count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN);
}

struct Printed {
    std::string output;
    std::string errors;
    // Why the program was not waited for; null where it has ended.
    const char* cut = nullptr;
};

// Reads until the program itself has ended, and what is in the pipes by then: a child of it may hold them open.
Printed collect(const Child& child, int output, int errors, Steady::time_point deadline, const std::stop_token& stop) {
    Printed printed;
    bool output_ended = false;
    bool errors_ended = false;
    while (true) {
        // Checked before the pipes are polled, so that what the program printed last is in them.
        const bool has_ended = child.has_ended();
        std::array<pollfd, 3> events{pollfd{output_ended ? -1 : output, POLLIN, 0},
                                     pollfd{errors_ended ? -1 : errors, POLLIN, 0},
                                     pollfd{child.descriptor(), POLLIN, 0}};
        poll(events.data(), events.size(), static_cast<int>(kLookForStop.count()));
        if (events[0].revents != 0) {
            output_ended = drain(output, printed.output);
        }
        if (events[1].revents != 0) {
            errors_ended = drain(errors, printed.errors);
        }
        const bool quiet = events[0].revents == 0 && events[1].revents == 0;
        if (quiet && has_ended) {
            return printed;
        }
        if (printed.output.size() > kMostOutput || printed.errors.size() > kMostOutput) {
            printed.cut = "printed too much";
            return printed;
        }
        if (stop.stop_requested() || Steady::now() >= deadline) {
            printed.cut = stop.stop_requested() ? "was stopped" : "took too long";
            return printed;
        }
    }
}

std::string said(const std::string& errors) {
    const std::size_t end = errors.find_last_not_of(" \t\r\n");
    if (end == std::string::npos) {
        return {};
    }
    const std::string text = errors.substr(0, end + 1);
    return ": " + escaped(text.size() > kShownErrors ? text.substr(text.size() - kShownErrors) : text);
}

std::string how_it_ended(int status) {
    return WIFSIGNALED(status) ? format("was ended by signal {}", WTERMSIG(status))
                               : format("exited with {}", WEXITSTATUS(status));
}

}  // namespace

Result<std::vector<std::string>> split_words(std::string_view command) {
    std::vector<std::string> words;
    std::string word;
    bool in_word = false;
    char quote = '\0';
    for (std::size_t i = 0; i < command.size(); ++i) {
        const char c = command[i];
        if (quote == '\0' && is_blank(c)) {
            if (std::exchange(in_word, false)) {
                words.push_back(std::exchange(word, {}));
            }
            continue;
        }
        in_word = true;
        const bool escapes = c == '\\' && i + 1 < command.size() &&
                             (quote == '\0' || (quote == '"' && (command[i + 1] == '"' || command[i + 1] == '\\')));
        if (escapes) {
            word += command[++i];
        } else if (quote == '\0' && (c == '"' || c == '\'')) {
            quote = c;
        } else if (c == quote) {
            quote = '\0';
        } else {
            word += c;
        }
    }
    if (quote != '\0') {
        return failure(EINVAL, "unterminated quote");
    }
    if (in_word) {
        words.push_back(std::move(word));
    }
    if (words.empty()) {
        return failure(EINVAL, "no command");
    }
    return words;
}

Result<std::string> program_output(const std::vector<std::string>& words, std::chrono::milliseconds limit,
                                   const std::stop_token& stop) {
    auto output = make_pipe();
    auto errors = make_pipe();
    if (!output || !errors) {
        return failure(errno, format("cannot create a pipe: {}", std::strerror(errno)));
    }
    std::vector<char*> arguments;
    for (const std::string& word : words) {
        arguments.push_back(const_cast<char*>(word.c_str()));
    }
    arguments.push_back(nullptr);
    const SpawnSettings settings(output->writer.get(), errors->writer.get());
    pid_t pid = 0;
    const int refused =
        posix_spawnp(&pid, arguments[0], settings.files(), settings.attributes(), arguments.data(), environ);
    if (refused != 0) {
        return failure(EACCES, format("{} cannot be started: {}", escaped(words[0]), std::strerror(refused)));
    }
    output->writer.reset();
    errors->writer.reset();
    Child child(pid);
    Printed printed = collect(child, output->reader.get(), errors->reader.get(), Steady::now() + limit, stop);
    const int status = child.wait();
    if (printed.cut != nullptr) {
        return failure(ETIMEDOUT, format("{} {}{}", escaped(words[0]), printed.cut, said(printed.errors)));
    }
    if (status != 0) {
        return failure(EACCES, format("{} {}{}", escaped(words[0]), how_it_ended(status), said(printed.errors)));
    }
    return std::move(printed.output);
}

}  // namespace ckptfs
