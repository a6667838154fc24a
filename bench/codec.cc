// SPDX-License-Identifier: Apache-2.0
// What compression saves and costs, file by file:
//
//   bench_codec [--mib N] [--passes N] [--threads N] FILE...
//
// Each file is cut into frames of 1 MiB, which every method compresses one by one; the first N MiB count (64). Rates
// are bytes of the file by seconds of CPU time, the best of N passes (3). With --threads, so many do it side by side,
// and the sum of their rates counts. ckptfs's rows hash what they read and what they store, as the filesystem does; the
// others compress and nothing else. Where a frame refers to earlier bytes of the file, decompressing it does not
// include decompressing those. bench/codec_data.py makes files.
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "codec/plane_frame.h"
#include "codec/plane_split.h"
#include "codec/reference_index.h"

namespace ckptfs {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kFrame = kMaxPlaneFrameRaw;
// As a mount of the default size has.
constexpr std::uint64_t kIndexMemory = std::uint64_t{16} << 20;

double cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Method {
    std::string name;
    // The bytes written to `out`.
    std::function<std::size_t(ByteSpan raw, MutableByteSpan out)> compress;
    std::function<bool(ByteSpan stored, MutableByteSpan raw)> decompress;
    // Called with each file before its first frame, where frames are not independent.
    std::function<void(ByteSpan file)> begin = [](ByteSpan /*file*/) {};
};

Method planes() {
    // Kept by the functions; what a frame's table entry would hold, so that nothing is optimised away.
    struct State {
        PlaneCoder coder;
        std::uint64_t sums = 0;
        ByteSpan file;
        std::unique_ptr<ReferenceIndex> index;
        // Of the frame that was compressed last.
        Payload referenced;
    };
    auto state = std::make_shared<State>();
    Method method;
    method.name = "ckptfs";
    method.begin = [state](ByteSpan file) {
        state->file = file;
        state->index = std::make_unique<ReferenceIndex>(kIndexMemory);
    };
    method.compress = [state](ByteSpan raw, MutableByteSpan out) {
        state->sums += crc32c(raw);
        const auto offset = static_cast<std::uint64_t>(raw.data() - state->file.data());
        const PlaneCoder::Encoded encoded = state->coder.encode_in_file(raw, offset, *state->index, out);
        if (encoded.size == 0) {
            state->sums += crc32c(raw);
            return raw.size();
        }
        state->sums += crc32c(out.first(encoded.size));
        state->referenced = Payload();
        for (const FileRange& range : encoded.references) {
            state->referenced.append(Slice{nullptr, state->file.subspan(range.offset, range.size)});
        }
        return encoded.size;
    };
    method.decompress = [state](ByteSpan stored, MutableByteSpan raw) {
        if (stored.size() == raw.size()) {
            // Handed out where it lies.
            state->sums += crc32c(stored);
            return true;
        }
        const bool good = state->coder.decode(stored, state->referenced, raw).has_value();
        state->sums += crc32c(raw);
        return good;
    };
    return method;
}

Method zstd(int level) {
    const std::shared_ptr<ZSTD_CCtx> compressor(ZSTD_createCCtx(), ZSTD_freeCCtx);
    const std::shared_ptr<ZSTD_DCtx> decompressor(ZSTD_createDCtx(), ZSTD_freeDCtx);
    return {"zstd " + std::to_string(level),
            [compressor, level](ByteSpan raw, MutableByteSpan out) {
                return ZSTD_compressCCtx(compressor.get(), out.data(), out.size(), raw.data(), raw.size(), level);
            },
            [decompressor](ByteSpan stored, MutableByteSpan raw) {
                return ZSTD_decompressDCtx(decompressor.get(), raw.data(), raw.size(), stored.data(), stored.size()) ==
                       raw.size();
            }};
}

std::array<std::byte*, kMaxElementWidth> planes_in(Bytes& buffer, std::size_t count, unsigned width) {
    std::array<std::byte*, kMaxElementWidth> planes{};
    for (unsigned k = 0; k < width; ++k) {
        planes[k] = buffer.data() + k * count;
    }
    return planes;
}

// As HDF5's and Blosc's shuffle filters do: width known, aligned.
Method shuffled(unsigned width) {
    auto buffer = std::make_shared<Bytes>(kFrame);
    const Method inner = zstd(1);
    return {"shuffle " + std::to_string(width) + " + zstd 1",
            [buffer, inner, width](ByteSpan raw, MutableByteSpan out) {
                const std::size_t count = raw.size() / width;
                plane_kernels().split(raw.data(), count, width, false, planes_in(*buffer, count, width));
                const ByteSpan rest = raw.subspan(count * width);
                std::copy(rest.begin(), rest.end(), buffer->begin() + static_cast<std::ptrdiff_t>(count * width));
                return inner.compress({buffer->data(), raw.size()}, out);
            },
            [buffer, inner, width](ByteSpan stored, MutableByteSpan raw) {
                const std::size_t count = raw.size() / width;
                const bool good = inner.decompress(stored, {buffer->data(), raw.size()});
                const auto planes = planes_in(*buffer, count, width);
                std::array<const std::byte*, kMaxElementWidth> sources{};
                std::copy(planes.begin(), planes.end(), sources.begin());
                plane_kernels().merge(sources, count, width, false, raw.data());
                std::copy(buffer->begin() + static_cast<std::ptrdiff_t>(count * width),
                          buffer->begin() + static_cast<std::ptrdiff_t>(raw.size()),
                          raw.begin() + static_cast<std::ptrdiff_t>(count * width));
                return good;
            }};
}

struct Figures {
    std::size_t stored = 0;
    double compress_seconds = 1e9;
    double decompress_seconds = 1e9;
};

void run_pass(const Method& method, const Bytes& file, Figures& figures) {
    Bytes stored(std::max(ZSTD_compressBound(kFrame), PlaneCoder::bound_in_file(kFrame)) + 1024);
    Bytes back(kFrame);
    double compress_seconds = 0;
    double decompress_seconds = 0;
    figures.stored = 0;
    method.begin(file);
    for (std::size_t offset = 0; offset < file.size(); offset += kFrame) {
        const ByteSpan raw = ByteSpan(file).subspan(offset, std::min(kFrame, file.size() - offset));
        const double started = cpu_seconds();
        const std::size_t written = method.compress(raw, stored);
        const double compressed = cpu_seconds();
        const ByteSpan frame = written == raw.size() ? raw : ByteSpan(stored).first(written);
        const bool good = method.decompress(frame, MutableByteSpan(back).first(raw.size()));
        const double decompressed = cpu_seconds();
        if (!good || (written != raw.size() && std::memcmp(back.data(), raw.data(), raw.size()) != 0)) {
            std::fprintf(stderr, "%s: the frame at %zu does not decode\n", method.name.c_str(), offset);
            std::exit(1);
        }
        figures.stored += written;
        compress_seconds += compressed - started;
        decompress_seconds += decompressed - compressed;
    }
    figures.compress_seconds = std::min(figures.compress_seconds, compress_seconds);
    figures.decompress_seconds = std::min(figures.decompress_seconds, decompress_seconds);
}

Bytes read_file(const std::string& path, std::size_t limit) {
    Bytes bytes(std::min<std::uintmax_t>(std::filesystem::file_size(path), limit));
    std::ifstream file(path, std::ios::binary);
    if (bytes.empty() ||
        !file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) {
        std::fprintf(stderr, "%s: cannot be read, or is empty\n", path.c_str());
        std::exit(1);
    }
    return bytes;
}

constexpr std::size_t kZstd1 = 1;
std::vector<Method> all_methods() {
    return {planes(), zstd(1), zstd(3), shuffled(2), shuffled(4)};
}

struct Settings {
    std::size_t limit = std::size_t{64} << 20;
    int passes = 3;
    int threads = 1;
};

// What one of the threads works with.
struct Worker {
    std::vector<Method> methods = all_methods();
    std::vector<Figures> figures = std::vector<Figures>(methods.size());
};

double rate(const std::vector<Worker>& workers, std::size_t method, double size, double Figures::*seconds) {
    double sum = 0;
    for (const Worker& worker : workers) {
        sum += size / (worker.figures[method].*seconds) / 1e9;
    }
    return sum;
}

void measure(const std::string& path, const Settings& settings) {
    const Bytes file = read_file(path, settings.limit);
    std::vector<Worker> workers(static_cast<std::size_t>(settings.threads));
    const std::vector<Method>& methods = workers[0].methods;
    // In turn, so that what else the machine does meets all of them.
    for (int pass = 0; pass < settings.passes; ++pass) {
        for (std::size_t i = 0; i < methods.size(); ++i) {
            std::vector<std::thread> threads;
            threads.reserve(workers.size());
            for (Worker& worker : workers) {
                threads.emplace_back([&] { run_pass(worker.methods[i], file, worker.figures[i]); });
            }
            for (std::thread& thread : threads) {
                thread.join();
            }
        }
    }
    const auto size = static_cast<double>(file.size());
    std::printf("%s, %.1f MB\n", std::filesystem::path(path).filename().c_str(), size / 1e6);
    const auto compress = [&](std::size_t i) { return rate(workers, i, size, &Figures::compress_seconds); };
    for (std::size_t i = 0; i < methods.size(); ++i) {
        std::printf("  %-18s %6.2f %% saved  compress %6.3f GB/s  decompress %6.3f GB/s  %5.2f x zstd 1\n",
                    methods[i].name.c_str(), 100 * (1 - static_cast<double>(workers[0].figures[i].stored) / size),
                    compress(i), rate(workers, i, size, &Figures::decompress_seconds), compress(i) / compress(kZstd1));
    }
    std::fflush(stdout);
}

}  // namespace
}  // namespace ckptfs

int main(int count, char** arguments) {
    ckptfs::Settings settings;
    int next = 1;
    for (; next + 1 < count && std::string_view(arguments[next]).starts_with("--"); next += 2) {
        const std::string_view name = arguments[next];
        const int value = std::max(std::atoi(arguments[next + 1]), 1);
        if (name == "--mib") {
            settings.limit = static_cast<std::size_t>(value) << 20;
        } else {
            (name == "--threads" ? settings.threads : settings.passes) = value;
        }
    }
    if (next >= count) {
        std::fprintf(stderr, "usage: %s [--mib N] [--passes N] [--threads N] FILE...\n", arguments[0]);
        return 2;
    }
    for (; next < count; ++next) {
        ckptfs::measure(arguments[next], settings);
    }
    return 0;
}
