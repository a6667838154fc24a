// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command line of s3sim.

#include <string>
#include <vector>

#include "server.h"
#include "simulator.h"

namespace ckptfs::s3sim {

struct Options {
    ServerOptions server;
    SimulatorOptions simulator;
    Model model;
    std::vector<std::string> buckets;  // NAME or NAME@REGION
    std::size_t max_memory = 0;        // bytes; 0: three quarters of the machine's
    std::size_t preallocate = 0;       // bytes
    std::string port_file;
    std::string faults_file;
    bool tls = false;
    std::string certificate_file;
    std::string key_file;
    std::string certificate_out;
};

// Nothing where the process is to end at once with `exit_code`: --help, or a mistake, either of which was printed.
struct ParsedOptions {
    Options options;
    bool run = false;
    int exit_code = 0;
};
ParsedOptions parse_options(int argc, const char* const* argv);

}  // namespace ckptfs::s3sim
