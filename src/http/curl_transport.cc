// SPDX-License-Identifier: Apache-2.0
#include "http/curl_transport.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/text.h"
#include "http/curl_loop.h"

namespace ckptfs {
namespace {

// libcurl's own global state: set up once, at the first transport, and left to the end of the process, since other
// libraries in it may use libcurl too.
CURLcode initialise_curl() {
    static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
    return code;
}

class CurlTransport final : public HttpTransport {
public:
    // The last of the loops is for light requests, if there are places for them.
    CurlTransport(std::unique_ptr<SharedKnowledge> known, std::vector<std::unique_ptr<CurlLoop>> loops,
                  int light_places)
        : known_(std::move(known)),
          loops_(std::move(loops)),
          bulk_loops_(loops_.size() - (light_places > 0 ? 1 : 0)),
          light_places_(static_cast<std::uint64_t>(light_places)) {}

    ~CurlTransport() override {
        // All threads end before any loop is destroyed: a callback may send through another loop.
        for (auto& loop : loops_) {
            loop->stop();
        }
    }

    Id send(HttpRequest request, Done done) override {
        const std::size_t index = request.is_light ? loop_for_light() : least_busy();
        // The id's residue tells the loop.
        const Id id = next_.fetch_add(1, std::memory_order_relaxed) * loops_.size() + index;
        loops_[index]->enqueue(std::make_unique<Transfer>(id, std::move(request), std::move(done)));
        return id;
    }

    void cancel(Id id) override { loops_[id % loops_.size()]->cancel(id); }

    [[nodiscard]] HttpStatistics statistics() const override {
        HttpStatistics total;
        total.requests = next_.load(std::memory_order_relaxed) - kFirstRequest;
        for (const auto& loop : loops_) {
            total.connections_opened += loop->counters().connections_opened;
            total.bytes_sent += loop->counters().bytes_sent;
            total.bytes_received += loop->counters().bytes_received;
            total.in_flight += loop->in_flight();
        }
        return total;
    }

private:
    static constexpr Id kFirstRequest = 1;

    [[nodiscard]] std::size_t loop_for_light() const {
        return bulk_loops_ < loops_.size() && loops_.back()->in_flight() < light_places_ ? bulk_loops_ : least_busy();
    }

    [[nodiscard]] std::size_t least_busy() const {
        std::size_t best = 0;
        for (std::size_t i = 1; i < bulk_loops_; ++i) {
            if (loops_[i]->in_flight() < loops_[best]->in_flight()) {
                best = i;
            }
        }
        return best;
    }

    const std::unique_ptr<SharedKnowledge> known_;
    const std::vector<std::unique_ptr<CurlLoop>> loops_;
    const std::size_t bulk_loops_;
    const std::uint64_t light_places_;
    std::atomic<Id> next_{kFirstRequest};
};

}  // namespace

Result<std::unique_ptr<HttpTransport>> make_curl_transport(const CurlTransportOptions& options) {
    if (const CURLcode code = initialise_curl(); code != CURLE_OK) {
        return failure(EIO, format("libcurl could not be set up: {}", curl_easy_strerror(code)));
    }
    const int threads = std::max(1, options.threads);
    const int light = std::clamp(options.light_connections, 0, std::max(0, options.max_connections - 1));
    const int connections = std::max(1, (options.max_connections - light + threads - 1) / threads);
    auto known = std::make_unique<SharedKnowledge>(options.max_collected);
    std::vector<std::unique_ptr<CurlLoop>> loops;
    for (int i = 0; i < threads + (light > 0 ? 1 : 0); ++i) {
        auto loop = CurlLoop::create(options, i < threads ? connections : light, *known);
        if (!loop) {
            return failure(std::move(loop.error()));
        }
        loops.push_back(std::move(*loop));
    }
    return std::make_unique<CurlTransport>(std::move(known), std::move(loops), light);
}

}  // namespace ckptfs
