// SPDX-License-Identifier: Apache-2.0
// Writes or reads one file by requests of one size and prints one line of JSON.
//   file_io write FILE --bytes N [--request-size R] [--fsync]
//   file_io read FILE --bytes N [--request-size R] [--verify]
// close() is part of the time: it is where a file on the mount becomes an object.
#include <fcntl.h>
#include <getopt.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <system_error>

#include "measure.h"

namespace ckptfs::bench {
namespace {

constexpr std::size_t kPageSize = 4096;
// Where in a page a large torch tensor begins. It matters: some CPUs copy at half of their rate between places that
// lie unluckily in their pages.
constexpr std::size_t kOffsetInPage = 64;

struct Options {
    std::string action;
    std::string path;
    std::uint64_t bytes = 0;
    std::size_t request_size = std::size_t{1} << 20;
    bool fsync = false;
    bool verify = false;
};

int checked(long result, const std::string& what) {
    if (result < 0) {
        throw std::system_error(errno, std::generic_category(), what);
    }
    return static_cast<int>(result);
}

std::span<std::byte> part_of(std::vector<std::byte>& memory, std::size_t size) {
    const std::size_t into_page = reinterpret_cast<std::uintptr_t>(memory.data()) % kPageSize;
    return std::span(memory).subspan(kPageSize - into_page + kOffsetInPage, size);
}

// Every page carries its own offset, so that a page in the wrong place is found.
void stamp(std::span<std::byte> request, std::uint64_t offset) {
    for (std::size_t at = 0; at + sizeof(offset) <= request.size(); at += kPageSize) {
        const std::uint64_t place = offset + at;
        std::memcpy(request.data() + at, &place, sizeof(place));
    }
}

void write_file(const Options& options, std::span<std::byte> request) {
    const int fd = checked(open(options.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), "open");
    for (std::uint64_t offset = 0; offset < options.bytes;) {
        stamp(request, offset);
        const std::size_t step = std::min<std::uint64_t>(request.size(), options.bytes - offset);
        const ssize_t written = write(fd, request.data(), step);
        checked(written, "write");
        if (static_cast<std::size_t>(written) != step) {
            throw std::runtime_error("short write");
        }
        offset += step;
    }
    if (options.fsync) {
        checked(fsync(fd), "fsync");
    }
    checked(close(fd), "close");
}

void read_file(const Options& options, std::span<std::byte> request) {
    std::vector<std::byte> expected(request.begin(), options.verify ? request.end() : request.begin());
    const int fd = checked(open(options.path.c_str(), O_RDONLY | O_CLOEXEC), "open");
    for (std::uint64_t offset = 0; offset < options.bytes;) {
        const std::size_t wanted = std::min<std::uint64_t>(request.size(), options.bytes - offset);
        const ssize_t step = read(fd, request.data(), wanted);
        checked(step, "read");
        if (static_cast<std::size_t>(step) != wanted) {
            throw std::runtime_error("the file ends early, or a read was short");
        }
        if (options.verify) {
            stamp(expected, offset);
            if (std::memcmp(expected.data(), request.data(), wanted) != 0) {
                throw std::runtime_error("wrong bytes at or after offset " + std::to_string(offset));
            }
        }
        offset += wanted;
    }
    checked(close(fd), "close");
}

Options parse_options(int argc, char** argv) {
    const std::vector<option> known = {{"bytes", required_argument, nullptr, 'b'},
                                       {"request-size", required_argument, nullptr, 'r'},
                                       {"fsync", no_argument, nullptr, 'f'},
                                       {"verify", no_argument, nullptr, 'v'},
                                       {nullptr, 0, nullptr, 0}};
    Options options;
    for (int name = 0; (name = getopt_long(argc, argv, "", known.data(), nullptr)) != -1;) {
        switch (name) {
            case 'b':
                options.bytes = std::stoull(optarg);
                break;
            case 'r':
                options.request_size = std::stoull(optarg);
                break;
            case 'f':
                options.fsync = true;
                break;
            case 'v':
                options.verify = true;
                break;
            default:
                throw std::invalid_argument("unknown option");
        }
    }
    if (argc - optind == 2) {
        options.action = argv[optind];
        options.path = argv[optind + 1];
    }
    if ((options.action != "write" && options.action != "read") || options.bytes == 0 || options.request_size == 0) {
        throw std::invalid_argument("file_io write|read FILE --bytes N [--request-size R] [--fsync] [--verify]");
    }
    return options;
}

void run(const Options& options) {
    std::vector<std::byte> memory = random_bytes(options.request_size + 2 * kPageSize);
    const std::span<std::byte> request = part_of(memory, options.request_size);
    const Stopwatch stopwatch;
    if (options.action == "write") {
        write_file(options, request);
    } else {
        read_file(options, request);
    }
    print_result(options.action, options.bytes, stopwatch);
}

}  // namespace
}  // namespace ckptfs::bench

int main(int argc, char** argv) {
    try {
        ckptfs::bench::run(ckptfs::bench::parse_options(argc, argv));
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "file_io: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
