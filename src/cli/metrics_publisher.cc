// SPDX-License-Identifier: Apache-2.0
#include "cli/metrics_publisher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// The collector runs as another user.
constexpr mode_t kReadableByAll = 0644;

Status write_file(const std::string& path, const std::string& text) {
    const auto problem = [&path] {
        return failure(errno, format("cannot write {}: {}", escaped(path), std::strerror(errno)));
    };
    // Not ending in .prom: the collector does not look at it.
    const std::string unfinished = path + ".new";
    const FileDescriptor file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) {
        return problem();
    }
    const ssize_t written = write(file.get(), text.data(), text.size());
    if (written != static_cast<ssize_t>(text.size())) {
        errno = written < 0 ? errno : ENOSPC;
        return problem();
    }
    if (fchmod(file.get(), kReadableByAll) != 0 || std::rename(unfinished.c_str(), path.c_str()) != 0) {
        return problem();
    }
    return {};
}

}  // namespace

class MetricsPublisher::State {
public:
    State(Places places, MetricsServer::Figures figures) : places_(std::move(places)), figures_(std::move(figures)) {}

    void publish() {
        const std::lock_guard lock(mutex_);
        if (closed_) {
            return;
        }
        if (!places_.address.empty() && server_ == nullptr) {
            auto server = MetricsServer::create(places_.address, figures_);
            note(server ? Status() : failure(server.error()), server_problem_);
            if (server) {
                server_ = std::move(*server);
                const std::string host = places_.address.substr(0, places_.address.rfind(':'));
                log_info(format("metrics are served at http://{}:{}/metrics", host, server_->port()));
            }
        }
        if (!places_.file.empty()) {
            note(write_file(places_.file, metrics_text(figures_())), file_problem_);
        }
    }

    void close() {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        server_.reset();
        if (!places_.file.empty()) {
            unlink(places_.file.c_str());
        }
    }

private:
    // The same problem is told once.
    static void note(const Status& done, std::string& told) {
        const std::string problem = done ? "" : done.error().message;
        if (!problem.empty() && problem != told) {
            log_warning(problem);
        }
        told = problem;
    }

    const Places places_;
    const MetricsServer::Figures figures_;

    std::mutex mutex_;
    // Guarded by mutex_.
    bool closed_ = false;
    std::unique_ptr<MetricsServer> server_;
    std::string server_problem_;
    std::string file_problem_;
};

MetricsPublisher::MetricsPublisher(Places places, Timer& timer, Executor& executor, MetricsServer::Figures figures)
    : state_(std::make_shared<State>(std::move(places), std::move(figures))) {
    const auto publish = [&executor, state = state_] { executor.post([state] { state->publish(); }); };
    publish();
    periodic_ = std::make_unique<Periodic>(timer, kPeriod, publish);
}

MetricsPublisher::~MetricsPublisher() {
    periodic_.reset();
    state_->close();
}

}  // namespace ckptfs
