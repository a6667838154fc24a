// SPDX-License-Identifier: Apache-2.0
// What the programs of the benchmark share: data, clocks, and the line of JSON that bench/run reads.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace ckptfs::bench {

// Wall time, and CPU time of this process, since construction.
class Stopwatch {
public:
    double wall_seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    }
    double cpu_seconds() const { return cpu_now() - cpu_at_start_; }

private:
    static double seconds(const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    }
    static double cpu_now() {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        return seconds(usage.ru_utime) + seconds(usage.ru_stime);
    }

    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
    double cpu_at_start_ = cpu_now();
};

// Bytes that no codec and no store can make smaller; the same in every run.
inline std::vector<std::byte> random_bytes(std::size_t size) {
    std::mt19937_64 generator(1);
    std::vector<std::byte> bytes(size);
    for (std::size_t offset = 0; offset < size; offset += sizeof(std::uint64_t)) {
        const std::uint64_t word = generator();
        std::memcpy(bytes.data() + offset, &word, std::min(sizeof(word), size - offset));
    }
    return bytes;
}

inline double peak_memory_mb() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / 1024;
}

inline void print_result(const std::string& action, std::uint64_t bytes, const Stopwatch& stopwatch) {
    const double wall = stopwatch.wall_seconds();
    std::printf(R"({"action": "%s", "bytes": %llu, "wall_s": %.4f, "mb_per_s": %.1f, "cpu_s": %.4f, "peak_mb": %.0f})"
                "\n",
                action.c_str(), static_cast<unsigned long long>(bytes), wall, static_cast<double>(bytes) / wall / 1e6,
                stopwatch.cpu_seconds(), peak_memory_mb());
}

}  // namespace ckptfs::bench
