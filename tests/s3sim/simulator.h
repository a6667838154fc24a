// SPDX-License-Identifier: Apache-2.0
#pragma once

// The simulated S3 behind the HTTP server: holds the objects and the knobs, and makes an Exchange of every request.
// Thread-safe.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "counters.h"
#include "exchange.h"
#include "faults.h"
#include "gaps.h"
#include "object_table.h"
#include "request_rate.h"
#include "sigv4_verify.h"
#include "traffic_shaper.h"

namespace ckptfs::s3sim {

// The model of a distant store; 0 is no limit.
struct Model {
    double latency_ms = 0;
    double connection_mbps = 0;  // 10^6 bytes a second, each way
    double total_mbps = 0;       // each way
    double copy_mbps = 0;        // within the store, per request
    double clock_offset_s = 0;   // by which the store's clock is ahead
    double read_rate = 0;        // GET, HEAD and list requests a second; others are answered with SlowDown
    double write_rate = 0;       // of all other requests
};

struct SimulatorOptions {
    SigningKeys keys;
    std::string region = "us-east-1";
    bool verify_checksums = true;
    bool md5_etags = false;
    Gaps gaps;
};

class Simulator final : public Application {
public:
    // Pool and shaper must outlive the simulator.
    Simulator(SimulatorOptions options, ChunkPool& pool, TrafficShaper& shaper);
    // What is still to come is dropped.
    ~Simulator() override;

    std::unique_ptr<Exchange> begin(HttpRequest request, bool from_loopback) override;
    ByteChain malformed(const std::string& reason) override;
    void connection_opened() override { counters_.connection_opened(); }
    void connection_closed() override { counters_.connection_closed(); }

    void set_model(const Model& model);
    Model model() const;
    // Called when faults are cleared, to let go of the requests that hang. Set before the server starts.
    void on_release(std::function<void()> release) { release_ = std::move(release); }
    void clear_faults();
    // Runs it on a thread of its own.
    void later(Duration after, std::function<void()> run);

    const SimulatorOptions& options() const { return options_; }
    SignatureVerifier& verifier() { return verifier_; }
    ObjectTable& table() { return table_; }
    FaultTable& faults() { return faults_; }
    Counters& counters() { return counters_; }
    ChunkPool& pool() { return pool_; }
    // Whether the store takes one more request now.
    bool bears(bool is_read);

private:
    const SimulatorOptions options_;
    SignatureVerifier verifier_;
    ChunkPool& pool_;
    TrafficShaper& shaper_;
    std::function<void()> release_;

    ObjectTable table_;
    FaultTable faults_;
    Counters counters_;

    mutable std::mutex mutex_;
    std::condition_variable ending_;
    // --- guarded by mutex_
    Model model_;
    RequestRate reads_;
    RequestRate writes_;
    std::vector<std::thread> late_;
    bool is_ending_ = false;
};

}  // namespace ckptfs::s3sim
