// SPDX-License-Identifier: Apache-2.0
#include "simulator.h"

#include "admin.h"
#include "s3_exchange.h"
#include "s3_reply.h"

namespace ckptfs::s3sim {

Simulator::Simulator(SimulatorOptions options, ChunkPool& pool, TrafficShaper& shaper)
    : options_(std::move(options)),
      verifier_(options_.keys),
      pool_(pool),
      shaper_(shaper),
      table_(options_.md5_etags) {}

Simulator::~Simulator() {
    std::vector<std::thread> late;
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
        late.swap(late_);
    }
    ending_.notify_all();
    for (std::thread& each : late) {
        each.join();
    }
}

void Simulator::later(Duration after, std::function<void()> run) {
    const std::lock_guard lock(mutex_);
    late_.emplace_back([this, after, run = std::move(run)] {
        std::unique_lock ended(mutex_);
        if (!ending_.wait_for(ended, after, [this] { return is_ending_; })) {
            ended.unlock();
            run();
        }
    });
}

std::unique_ptr<Exchange> Simulator::begin(HttpRequest request, bool from_loopback) {
    // No bucket's name begins with an underscore. Clients that control faults need no key, but must be on this machine.
    if (from_loopback && request.path.starts_with(kAdminPrefix)) {
        return make_admin_exchange(*this, std::move(request));
    }
    return make_s3_exchange(*this, std::move(request));
}

ByteChain Simulator::malformed(const std::string& reason) {
    ReplyContext context;
    context.keep_alive = false;
    context.region = options_.region;
    context.now = table_.now();
    const S3Reply reply = error_reply(s3_error("InvalidRequest", reason), context);
    ByteChain bytes = ByteChain::from_string(render_head(reply, context));
    bytes.append(reply.body);
    return bytes;
}

void Simulator::set_model(const Model& model) {
    {
        const std::lock_guard lock(mutex_);
        model_ = model;
        reads_.set_rate(model.read_rate);
        writes_.set_rate(model.write_rate);
    }
    shaper_.set_rates(model.connection_mbps * 1e6, model.total_mbps * 1e6);
    table_.set_clock_offset(std::chrono::milliseconds(static_cast<std::int64_t>(model.clock_offset_s * 1000)));
}

Model Simulator::model() const {
    const std::lock_guard lock(mutex_);
    return model_;
}

bool Simulator::bears(bool is_read) {
    const std::lock_guard lock(mutex_);
    return (is_read ? reads_ : writes_).take(Clock::now());
}

void Simulator::clear_faults() {
    faults_.clear();
    if (release_) {
        release_();
    }
}

}  // namespace ckptfs::s3sim
