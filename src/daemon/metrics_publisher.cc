// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics_publisher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "base/file_descriptor.h"
#include "base/mutex.h"
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
    // A file that another process has left there is not written to.
    unlink(unfinished.c_str());
    const FileDescriptor file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
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

    // While one write hangs, as on a dead file server, the next ones are skipped.
    void publish() {
        if (busy_.exchange(true)) {
            if (!told_of_delay_.exchange(true)) {
                log_warning(format("metrics are stale: writing {} takes longer than {} s", escaped(places_.file),
                                   kPeriod.count() / 1000));
            }
            return;
        }
        if (const std::optional<std::string> text = look(); text && !places_.file.empty()) {
            note(write_file(places_.file, *text), file_problem_);
            remove_if_closed();
        }
        told_of_delay_ = false;
        busy_ = false;
    }

    // Does not wait for the file.
    void close() {
        const MutexLock lock(mutex_);
        closed_ = true;
        server_.reset();
        if (!busy_ && !places_.file.empty()) {
            unlink(places_.file.c_str());
        }
    }

private:
    // Starts the server if it is missing, and returns the text for the file; nothing if there is no file.
    std::optional<std::string> look() {
        const MutexLock lock(mutex_);
        if (closed_) {
            return std::nullopt;
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
        return places_.file.empty() ? std::nullopt : std::optional(metrics_text(figures_()));
    }

    void remove_if_closed() {
        const MutexLock lock(mutex_);
        if (closed_) {
            unlink(places_.file.c_str());
        }
    }

    // The same problem is logged once.
    static void note(const Status& done, std::string& told) {
        const std::string problem = done ? "" : done.error().message;
        if (!problem.empty() && problem != told) {
            log_warning(problem);
        }
        told = problem;
    }

    const Places places_;
    const MetricsServer::Figures figures_;

    std::atomic<bool> busy_ = false;
    std::atomic<bool> told_of_delay_ = false;
    // Used by the thread that has set busy_.
    std::string file_problem_;

    Mutex mutex_;
    bool closed_ GUARDED_BY(mutex_) = false;
    std::unique_ptr<MetricsServer> server_ GUARDED_BY(mutex_);
    std::string server_problem_ GUARDED_BY(mutex_);
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
