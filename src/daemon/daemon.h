// SPDX-License-Identifier: Apache-2.0
// The life of a mount in the process that serves it: from its creation until everything is saved or given up.
//
// Threads: used by one thread. No other is started before start(), which blocks signals in all of them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/periodic.h"
#include "ckptfs/clock.h"
#include "ckptfs/config.h"
#include "ckptfs/executor.h"
#include "ckptfs/status.h"
#include "daemon/background.h"
#include "daemon/control.h"
#include "daemon/liveness.h"
#include "daemon/machinery.h"
#include "daemon/metrics.h"
#include "daemon/metrics_publisher.h"
#include "daemon/mount_status.h"
#include "daemon/service.h"
#include "daemon/service_manager.h"
#include "daemon/traffic.h"
#include "fs/file_system.h"
#include "fuse/connection_guard.h"
#include "fuse/mount.h"
#include "fuse/session.h"

namespace ckptfs {

class Daemon {
public:
    // `examination`: returns the advice that is added to the message if the bucket cannot be used.
    Daemon(Config config, Readiness readiness, std::function<std::string()> examination);

    // Mounts; requests are answered from serve_until_the_end() on. Leaves nothing behind if it fails, but a dead mount
    // where it has taken one over.
    Status start();
    int serve_until_the_end();
    Readiness& readiness() { return readiness_; }

private:
    Status attach();
    Status mount_there();
    void put_dead_mount_back();
    Status assemble(FileDescriptor signals);
    void leave_as_it_was();
    void listen_for_commands();
    Service::Events service_events();
    bool ends_by_hangup() const;
    [[nodiscard]] Traffic totals() const;
    [[nodiscard]] MountStatus status(const fs::FileSystem& fs) const;
    [[nodiscard]] MountFigures figures() const;
    void watch_traffic();
    void mount_answers();
    void name_what_is_lost(const Service::Outcome& outcome);
    int end(const Service::Outcome& outcome);

    const Config config_;
    Readiness readiness_;
    const std::function<std::string()> examination_;
    const ServiceManager service_manager_;
    const bool has_terminal_ = has_terminal();
    ConnectionGuard guard_;
    std::unique_ptr<Mount> mount_;
    std::unique_ptr<Session> session_;
    std::unique_ptr<Machinery> machinery_;
    std::optional<Liveness> liveness_;
    fs::FileSystem* fs_ = nullptr;
    std::optional<ControlServer> control_;
    std::unique_ptr<Service> service_;
    SteadyTime started_{};
    WallTime started_at_{};
    // There was a dead mount at the mount point.
    bool has_taken_over_ = false;
    std::atomic<bool> draining_ = false;
    // Set once the kernel has ended the mount.
    std::atomic<bool> is_detached_ = false;

    mutable Mutex traffic_mutex_;
    TrafficMeter traffic_ GUARDED_BY(traffic_mutex_);

    const std::unique_ptr<Executor> metrics_threads_;
    // The next two ask everything above.
    std::unique_ptr<Periodic> traffic_watch_;
    std::unique_ptr<MetricsPublisher> metrics_;
};

}  // namespace ckptfs
