// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "admin.h"
#include "options.h"
#include "tls.h"

namespace ckptfs::s3sim {
namespace {

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) {
        throw std::runtime_error("cannot read " + path);
    }
    return text.str();
}

// A process that waits for the file finds all of it when it appears.
void write_file(const std::string& path, const std::string& text) {
    const std::string unfinished = path + ".tmp" + std::to_string(getpid());
    std::ofstream file(unfinished, std::ios::binary);
    file << text;
    file.close();
    if (!file) {
        throw std::runtime_error("cannot write " + unfinished);
    }
    std::filesystem::rename(unfinished, path);
}

std::size_t default_memory() {
    const auto pages = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
    const auto page_size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return pages / 4 * 3 * page_size;
}

std::unique_ptr<TlsContext> make_tls(const Options& options) {
    if (!options.tls) {
        return nullptr;
    }
    Certificate certificate;
    if (options.certificate_file.empty()) {
        certificate = make_self_signed_certificate(options.server.address);
    } else {
        certificate = {read_file(options.certificate_file), read_file(options.key_file)};
    }
    if (!options.certificate_out.empty()) {
        write_file(options.certificate_out, certificate.certificate_pem);
    }
    return make_tls_context(certificate);
}

void make_buckets(Simulator& simulator, const Options& options) {
    for (const std::string& bucket : options.buckets) {
        const std::size_t at = bucket.find('@');
        const std::string region = at == std::string::npos ? options.simulator.region : bucket.substr(at + 1);
        if (const auto made = simulator.table().create_bucket(bucket.substr(0, at), region); !made) {
            throw std::runtime_error("--bucket " + bucket + ": " + made.error().message);
        }
    }
}

void load_faults(Simulator& simulator, const Options& options) {
    if (options.faults_file.empty()) {
        return;
    }
    auto rules = read_fault_rules(read_file(options.faults_file));
    if (!rules) {
        throw std::runtime_error(options.faults_file + ": " + rules.error().message);
    }
    simulator.faults().add(std::move(*rules));
}

void wait_for_termination(const sigset_t& signals) {
    int signal_number = 0;
    while (sigwait(&signals, &signal_number) != 0) {
    }
}

int run(const Options& options) {
    // Blocked before any thread starts, so that only the wait below sees them.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signal(SIGPIPE, SIG_IGN);

    const std::unique_ptr<TlsContext> tls = make_tls(options);
    ChunkPool pool(options.max_memory == 0 ? default_memory() : options.max_memory);
    pool.preallocate(options.preallocate);
    TrafficShaper shaper;
    Simulator simulator(options.simulator, pool, shaper);
    simulator.set_model(options.model);
    make_buckets(simulator, options);
    load_faults(simulator, options);

    ServerOptions server_options = options.server;
    server_options.tls = tls.get();
    Server server(server_options, simulator, pool, shaper);
    simulator.on_release([&server] { server.release_hung(); });
    server.start();
    const std::string port = std::to_string(server.port());
    if (!options.port_file.empty()) {
        write_file(options.port_file, port + "\n");
    }
    std::printf("s3sim: listening on %s://%s:%s\n", tls ? "https" : "http", options.server.address.c_str(),
                port.c_str());
    std::fflush(stdout);
    wait_for_termination(signals);
    // Nothing is to be saved, and freeing gigabytes of objects one by one would take a while.
    std::_Exit(0);
}

}  // namespace
}  // namespace ckptfs::s3sim

int main(int argc, char** argv) {
    try {
        const auto parsed = ckptfs::s3sim::parse_options(argc, argv);
        return parsed.run ? ckptfs::s3sim::run(parsed.options) : parsed.exit_code;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "s3sim: %s\n", error.what());
        return 1;
    }
}
