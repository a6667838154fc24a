// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics_server.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <cerrno>
#include <exception>
#include <utility>
#include <vector>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

class Collector final : public prometheus::Collectable {
public:
    explicit Collector(MetricsServer::Figures figures) : figures_(std::move(figures)) {}
    [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override { return metric_families(figures_()); }

private:
    const MetricsServer::Figures figures_;
};

// One for Prometheus, which scrapes one at a time; the other is for a user's own request.
constexpr std::size_t kThreads = 2;

class ExposedMetrics final : public MetricsServer {
public:
    ExposedMetrics(const std::string& address, Figures figures)
        : collector_(std::make_shared<Collector>(std::move(figures))), exposer_(address, kThreads) {
        exposer_.RegisterCollectable(collector_);
    }
    [[nodiscard]] int port() const override { return exposer_.GetListeningPorts().front(); }

private:
    const std::shared_ptr<Collector> collector_;
    prometheus::Exposer exposer_;
};

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::create(const std::string& address, Figures figures) {
    try {
        return std::make_unique<ExposedMetrics>(address, std::move(figures));
    } catch (const std::exception& /*problem*/) {
        return failure(EADDRINUSE, format("metrics cannot be served at {}: is the port taken?", escaped(address)));
    }
}

}  // namespace ckptfs
