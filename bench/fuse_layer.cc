// SPDX-License-Identifier: Apache-2.0
// What the FUSE layer alone costs: mounts a filesystem in memory that drops what is written, moves bytes through it
// by 1 MiB, and prints rates and CPU seconds a GB of program and filesystem together.
//
//   bench_fuse_layer DIR [GIB] [direct|cached]      measure
//   bench_fuse_layer DIR serve                      only mount, and keep what is written, until a signal comes
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "ckptfs/clock.h"
#include "fuse/mount.h"
#include "fuse/session.h"
#include "support/heap_buffer_pool.h"
#include "support/inline_executor.h"
#include "support/memory_file_system.h"

namespace ckptfs {
namespace {

class NoProcesses final : public ProcessInspector {
public:
    [[nodiscard]] std::optional<pid_t> thread_group(pid_t /*thread*/) const override { return std::nullopt; }
    [[nodiscard]] std::optional<int> writable_descriptors(pid_t /*process*/, std::uint64_t /*inode*/,
                                                          int /*access*/) const override {
        return std::nullopt;
    }
    [[nodiscard]] bool written_by_others(std::uint64_t /*inode*/, pid_t /*except*/) const override { return false; }
    [[nodiscard]] bool handed_down(std::uint64_t /*inode*/, pid_t /*process*/) const override { return false; }
    [[nodiscard]] ExitState exit_state(pid_t /*thread*/) const override { return ExitState::kUnknown; }
    [[nodiscard]] bool is_being_killed(pid_t /*process*/) const override { return false; }
    [[nodiscard]] bool is_locked(std::uint64_t, std::optional<pid_t>) const override { return false; }
    [[nodiscard]] bool makes_anew(pid_t /*thread*/, std::string_view /*name*/) const override { return false; }
    [[nodiscard]] bool is_in_background(pid_t /*thread*/) const override { return false; }
    [[nodiscard]] bool is_dying(pid_t /*thread*/) const override { return false; }
};

class RealClock final : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return std::chrono::steady_clock::now(); }
    [[nodiscard]] WallTime wall_now() const override { return std::chrono::system_clock::now(); }
};

double cpu_seconds(int who) {
    rusage usage{};
    getrusage(who, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// In a process of its own, so that its CPU time can be told and it cannot lock up the server.
void move_bytes(const std::string& path, bool write, std::size_t mebibytes) {
    std::vector<char> buffer(std::size_t{1} << 20, 'x');
    const int file = write ? open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644) : open(path.c_str(), O_RDONLY);
    for (std::size_t i = 0; i < mebibytes; ++i) {
        const ssize_t moved =
            write ? ::write(file, buffer.data(), buffer.size()) : read(file, buffer.data(), buffer.size());
        if (moved != static_cast<ssize_t>(buffer.size())) {
            std::fprintf(stderr, "moved %zd bytes: %s\n", moved, std::strerror(errno));
            _exit(1);
        }
    }
    _exit(close(file) == 0 ? 0 : 1);
}

bool measure(const std::string& path, bool write, std::size_t mebibytes, bool print) {
    const double before = cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN);
    const auto start = std::chrono::steady_clock::now();
    const pid_t child = fork();
    if (child == 0) {
        move_bytes(path, write, mebibytes);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double cpu = cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN) - before;
    const double megabytes = static_cast<double>(mebibytes) * 1.048576;
    if (print) {
        std::printf("%-6s %8.0f MB/s %6.3f s/GB\n", write ? "write" : "read", megabytes / seconds,
                    cpu / megabytes * 1000);
    }
    return status == 0;
}

int run(const std::string& directory, const std::string& mode, std::size_t gibibytes) {
    const bool serve_only = mode == "serve";
    fs::MemoryFileSystem::Options options;
    options.contents = serve_only ? fs::MemoryFileSystem::Contents::kKeep : fs::MemoryFileSystem::Contents::kDiscard;
    options.direct_io = mode == "direct";
    fs::MemoryFileSystem fs(options);
    HeapBufferPool pool(64);
    NoProcesses processes;
    RealClock clock;
    testing::InlineExecutor disk;

    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);

    MountConfig config;
    config.source = "memory";
    config.mount_point = directory;
    auto mount = Mount::create(config, false);
    if (!mount) {
        std::fprintf(stderr, "%s\n", mount.error().message.c_str());
        return 1;
    }
    auto connection = (*mount)->connection();
    auto session = Session::create(std::move(*connection));
    std::promise<void> ready;
    (*session)->serve({fs, pool, processes, clock, disk, "/var/tmp"}, 8,
                      {[&ready] { ready.set_value(); }, [] { kill(getpid(), SIGTERM); }});
    ready.get_future().wait();
    if (const auto raised = set_read_ahead((*mount)->entry(), 8192); !raised) {
        std::fprintf(stderr, "%s\n", raised.error().message.c_str());
    }

    bool good = true;
    if (serve_only) {
        int signal = 0;
        sigwait(&signals, &signal);
    } else {
        const std::string path = directory + "/file";
        for (const bool write : {true, false}) {
            // The first touch of memory is slow: once unmeasured.
            good =
                measure(path, write, gibibytes * 1024, false) && measure(path, write, gibibytes * 1024, true) && good;
        }
    }
    (*mount)->detach();
    (*session)->stop();
    return good ? 0 : 1;
}

}  // namespace
}  // namespace ckptfs

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s DIR [GIB] [direct|cached] | DIR serve\n", argv[0]);
        return 2;
    }
    const bool serve = argc == 3 && std::strcmp(argv[2], "serve") == 0;
    const std::size_t gibibytes = argc > 2 && !serve ? std::strtoul(argv[2], nullptr, 10) : 4;
    return ckptfs::run(argv[1], serve ? "serve" : argc > 3 ? argv[3] : "direct", gibibytes);
}
