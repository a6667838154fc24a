// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <CLI/CLI.hpp>

namespace ckptfs::s3sim {

ParsedOptions parse_options(int argc, const char* const* argv) {
    ParsedOptions parsed;
    Options& options = parsed.options;
    CLI::App app(
        "An S3 server in memory, for tests and benchmarks: S3's rules, S3's speed if wanted, faults on demand.",
        "s3sim");
    app.add_option("--listen", options.server.address, "IPv4 address to listen on")->capture_default_str();
    app.add_option("--port", options.server.port, "port; 0: the system picks one")->capture_default_str();
    app.add_option("--port-file", options.port_file, "write the port to this file once it listens");
    app.add_option("--threads", options.server.threads, "event-loop threads")
        ->capture_default_str()
        ->check(CLI::Range(1, 64));
    app.add_option("--bucket", options.buckets, "make this bucket, NAME or NAME@REGION (repeatable)");
    app.add_option("--region", options.simulator.region, "region of the server")->capture_default_str();

    app.add_option("--access-key", options.simulator.keys.access_key)->capture_default_str();
    app.add_option("--secret-key", options.simulator.keys.secret_key)->capture_default_str();
    app.add_option("--session-token", options.simulator.keys.session_token,
                   "the only session token that is taken; without this, any");
    app.add_flag("--allow-anonymous", options.simulator.keys.allow_anonymous, "take requests without a signature");

    app.add_option("--latency-ms", options.model.latency_ms, "time to the first byte of every reply");
    app.add_option("--conn-mbps", options.model.connection_mbps, "10^6 bytes a second per connection, each way");
    app.add_option("--total-mbps", options.model.total_mbps, "10^6 bytes a second in all, each way");
    app.add_option("--copy-mbps", options.model.copy_mbps, "10^6 bytes a second per copy within the store");
    app.add_option("--read-rate", options.model.read_rate, "GET, HEAD and list requests a second; beyond: SlowDown");
    app.add_option("--write-rate", options.model.write_rate, "all other requests a second; beyond: SlowDown");
    app.add_option("--clock-offset-s", options.model.clock_offset_s, "seconds by which the server's clock is ahead");

    app.add_option("--faults", options.faults_file, "JSON list of fault rules, as for POST /_s3sim/faults")
        ->check(CLI::ExistingFile);
    app.add_flag("!--no-verify-checksums", options.simulator.verify_checksums, "take checksums on trust");
    app.add_flag("--md5-etags", options.simulator.md5_etags, "make ETags of MD5 as S3 does; costs much");
    app.add_option("--lacks", options.simulator.gaps, "what other stores lack (repeatable)")
        ->check(CLI::IsMember(names_of_gaps()));
    app.add_option("--max-memory", options.max_memory, "bytes of objects to hold; more is answered with SlowDown")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--preallocate", options.preallocate, "bytes of memory to touch before listening, for benchmarks")
        ->transform(CLI::AsSizeValue(false));

    auto* tls = app.add_flag("--tls", options.tls, "serve HTTPS");
    auto* certificate = app.add_option("--cert", options.certificate_file, "certificate, PEM")->needs(tls);
    app.add_option("--key", options.key_file, "its key, PEM")->needs(tls)->needs(certificate);
    app.add_option("--cert-out", options.certificate_out, "write the self-signed certificate to this file")->needs(tls);

    try {
        app.parse(argc, argv);
        if (options.certificate_file.empty() != options.key_file.empty()) {
            throw CLI::RequiredError("--cert and --key together");
        }
        parsed.run = true;
    } catch (const CLI::ParseError& error) {
        parsed.exit_code = app.exit(error);
    }
    return parsed;
}

}  // namespace ckptfs::s3sim
