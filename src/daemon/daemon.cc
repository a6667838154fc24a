// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/environment.h"
#include "base/executors.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "config/options.h"
#include "daemon/local_checks.h"
#include "daemon/status_json.h"
#include "daemon/takeover.h"
#include "fuse/mount_table.h"

namespace ckptfs {
namespace {

// 1 to 8 MiB measured best for reads through the page cache; the kernel's 128 KiB halves their rate.
constexpr unsigned kReadAheadKibibytes = 8192;
// A draining mount reports several times a second; what comes after the last report is short.
constexpr Milliseconds kServiceManagerPatience{60'000};

std::optional<std::string> no_service_manager(const char* /*name*/) {
    return std::nullopt;
}

}  // namespace

// A service's main process stays in the foreground; one in the background may have inherited the variables.
Daemon::Daemon(Config config, Readiness readiness, std::function<std::string()> examination)
    : config_(std::move(config)),
      readiness_(std::move(readiness)),
      examination_(std::move(examination)),
      service_manager_(config_.mount.foreground ? process_environment() : no_service_manager),
      metrics_threads_(make_detached_executor("ckptfs-metrics")) {}

Status Daemon::start() {
    auto signals = take_over_signals();
    if (!signals) {
        return failure(signals.error());
    }
    guard_.start();
    auto machinery = Machinery::create(config_);
    if (!machinery) {
        return failure(machinery.error());
    }
    machinery_ = std::move(*machinery);
    if (auto checked = machinery_->check_bucket(); !checked) {
        checked.error().message += config_.disk.cache_only ? "" : "; " + examination_();
        return checked;
    }
    if (auto attached = attach(); !attached) {
        return attached;
    }
    auto assembled = assemble(std::move(*signals));
    if (!assembled) {
        leave_as_it_was();
    }
    return assembled;
}

// A mount point that was taken over has a dead mount again: programs go on to fail, and do not write into the bare
// directory.
void Daemon::leave_as_it_was() {
    if (has_taken_over_) {
        mount_->leave_dead();
    }
}

// As above, where mount(2) has failed. Called with the place locked.
void Daemon::put_dead_mount_back() {
    const auto table = read_mount_table();
    const auto there = table ? mount_at(*table, config_.mount.mount_point) : std::nullopt;
    if (there && there->type == kFileSystemType) {
        return;
    }
    // Whatever it is that cannot be mounted, this asks for nothing that may be refused.
    MountConfig least = config_.mount;
    least.allow_other = false;
    if (auto dead = Mount::create(least, config_.names.read_only)) {
        (*dead)->leave_dead();
    } else {
        log_error(format("{} is a bare directory by now: what programs write there goes to this machine's disk",
                         escaped(config_.mount.mount_point)));
    }
}

Status Daemon::assemble(FileDescriptor signals) {
    auto connection = mount_->connection();
    auto session = connection ? Session::create(std::move(*connection)) : failure(connection.error());
    if (!session) {
        return failure(session.error());
    }
    session_ = std::move(*session);
    listen_for_commands();
    auto service = Service::create(std::move(signals), control_ ? &*control_ : nullptr, service_events());
    if (!service) {
        return failure(service.error());
    }
    service_ = std::move(*service);
    const auto started = machinery_->start_file_system(session_->kernel_cache(), session_->passthrough());
    if (!started) {
        return failure(started.error());
    }
    fs_ = *started;
    return {};
}

// Called after the check of the bucket: a dead mount is not removed for one that cannot work.
Status Daemon::attach() {
    const std::string& place = config_.mount.mount_point;
    const TakeoverSystem system = takeover_system([] { return make_control_directory(process_environment()); });
    // Held until the mount is made: of several that start at once, one mounts.
    const auto lock = system.lock(place);
    if (!lock) {
        const auto dead = is_ours_to_take_back(place, config_.mount.source, getuid(), system);
        if (lock.error().errno_value == EBUSY || !dead || *dead) {
            return failure(lock.error());
        }
        log_warning(format("cannot lock the mount point; a concurrent mount here may succeed as well: {}",
                           lock.error().message));
    }
    // Checked before a dead mount is removed: nothing must be written into the bare directory.
    if (!readiness_.is_awaited()) {
        return failure(EINTR, "the mount command was interrupted");
    }
    const auto taken = take_back(place, config_.mount.source, getuid(), system);
    if (!taken) {
        return failure(taken.error());
    }
    has_taken_over_ = *taken;
    if (has_taken_over_) {
        log_info(format("took over {} from a ckptfs daemon that was killed", escaped(place)));
    }
    Status mounted = mount_there();
    if (!mounted && has_taken_over_) {
        put_dead_mount_back();
    }
    return mounted;
}

Status Daemon::mount_there() {
    const std::string& place = config_.mount.mount_point;
    const auto table = read_mount_table();
    const auto checked = table ? check_mount_point(place, *table) : failure(table.error());
    if (!checked && !(has_taken_over_ && checked.error().errno_value == ENOTEMPTY)) {
        return failure(checked.error());
    }
    if (!checked) {
        // Without a mount programs would go on to write into the directory.
        log_warning(
            format("{} has files of its own, which are hidden while it is mounted: a program wrote there beside "
                   "the dead mount; unmount to get at them",
                   escaped(place)));
    }
    auto mount = Mount::create(config_.mount, config_.names.read_only);
    if (!mount) {
        return failure(mount.error());
    }
    mount_ = std::move(*mount);
    guard_.watch(mount_->entry());
    return {};
}

// The mount works without a control socket; unmounting by signal or umount(8) still waits for what is being written.
void Daemon::listen_for_commands() {
    const auto directory = make_control_directory(process_environment());
    auto control =
        directory ? ControlServer::create(*directory, config_.mount.mount_point) : failure(directory.error());
    if (control) {
        control_.emplace(std::move(*control));
    } else {
        log_warning(format("ckptfs unmount will not reach this mount: {}", control.error().message));
    }
}

// A mount that has a terminal ends when that hangs up; for all others SIGHUP means that the log file has been renamed.
bool Daemon::ends_by_hangup() const {
    if (has_terminal_) {
        return true;
    }
    const std::string& log_file = config_.mount.log_file;
    if (log_file.empty()) {
        log_info("signal HUP: there is no --log-file to open again");
        return false;
    }
    if (auto opened = log_to_file(log_file); !opened) {
        log_error(format("signal HUP: {}; still logging to the old file", opened.error().message));
    } else {
        log_info("signal HUP: the log file was opened again");
    }
    return false;
}

Service::Events Daemon::service_events() {
    Service::Events events;
    events.status = [this](const fs::FileSystem& fs) { return json_of(status(fs)); };
    events.unsent = [this] {
        const UnsentStatus unsent = machinery_->unsent() == nullptr ? UnsentStatus() : machinery_->unsent()->status();
        return DrainProgress{unsent.changes, unsent.bytes, 0};
    };
    events.hung_up = [this] { return ends_by_hangup(); };
    events.handed_over = [this] { return machinery_->is_handed_over(); };
    events.draining = [this](const DrainProgress& progress) {
        draining_ = true;
        if (is_detached_) {
            machinery_->hand_over();
        }
        service_manager_.stopping(progress_text(progress), kServiceManagerPatience);
    };
    if (service_manager_.watchdog() == Milliseconds(0)) {
        return events;
    }
    // A quarter, because one or two beats may be late, or find a probe that is late.
    events.heartbeat_period = service_manager_.watchdog() / 4;
    liveness_.emplace(
        Liveness::Watched{machinery_->executor(), machinery_->timer(), [this] { return session_->longest_request(); }},
        events.heartbeat_period);
    events.heartbeat = [this] {
        if (const std::string stuck = liveness_->check(); stuck.empty()) {
            service_manager_.alive();
        } else {
            log_error(format("stuck: {}", stuck));
        }
    };
    return events;
}

MountStatus Daemon::status(const fs::FileSystem& fs) const {
    MountStatus status;
    status.source = config_.mount.source;
    status.mount_point = config_.mount.mount_point;
    status.device = mount_->is_shown() ? device_of(mount_->entry()) : "";
    status.version = CKPTFS_VERSION;
    status.pid = getpid();
    status.seconds_mounted =
        std::chrono::duration_cast<std::chrono::seconds>(machinery_->clock().now() - started_).count();
    status.draining = draining_;
    set_files(status, fs);
    status.totals = totals();
    {
        const MutexLock lock(traffic_mutex_);
        status.rates = traffic_.rates();
    }
    set_store(status, machinery_->client().store().statistics());
    set_cache(status, machinery_->cache().statistics());
    if (machinery_->disk() != nullptr) {
        set_disk(status, *machinery_->disk(), machinery_->files_to_keep(), config_.disk.cache_only);
    }
    if (machinery_->unsent() != nullptr) {
        set_unsent(status, machinery_->unsent()->status(), machinery_->unsent()->limit(),
                   machinery_->client().clock().wall_now());
    }
    set_memory(status, machinery_->pool().usage());
    status.problems = recent_problems();
    return status;
}

Traffic Daemon::totals() const {
    const fs::FileStatistics files = fs_->statistics();
    const HttpStatistics transport = machinery_->client().transport().statistics();
    return {files.bytes_written, files.bytes_read, transport.bytes_sent, transport.bytes_received};
}

void Daemon::watch_traffic() {
    traffic_watch_ = std::make_unique<Periodic>(machinery_->timer(), TrafficMeter::kPeriod, [this] {
        const Traffic now = totals();
        const MutexLock lock(traffic_mutex_);
        traffic_.add(machinery_->clock().now(), now);
    });
    const MountConfig& config = config_.mount;
    if (!config.metrics_address.empty() || !config.metrics_file.empty()) {
        metrics_ =
            std::make_unique<MetricsPublisher>(MetricsPublisher::Places{config.metrics_address, config.metrics_file},
                                               machinery_->timer(), *metrics_threads_, [this] { return figures(); });
    }
}

MountFigures Daemon::figures() const {
    MountFigures figures;
    figures.status = status(*fs_);
    figures.start_time_seconds =
        std::chrono::duration_cast<std::chrono::seconds>(started_at_.time_since_epoch()).count();
    figures.files = fs_->statistics();
    figures.reading = machinery_->cache().statistics();
    figures.memory = machinery_->pool().usage();
    figures.store = machinery_->client().store().statistics();
    figures.operations = machinery_->client().operations();
    figures.http = machinery_->client().transport().statistics();
    figures.log = log_counts();
    figures.worker_busy = session_->longest_request();
    return figures;
}

void Daemon::mount_answers() {
    if (const auto raised = set_read_ahead(mount_->entry(), kReadAheadKibibytes); !raised) {
        log_info(raised.error().message);
    }
    log_info(format("{} is mounted at {}", escaped(config_.mount.source), escaped(config_.mount.mount_point)));
    for (const std::string& line : misspelt_variables(environment_names())) {
        log_warning(line);
    }
    machinery_->end_leftover_uploads();
    if (session_->passthrough().is_possible()) {
        machinery_->begin_passthrough();
    }
    if (!readiness_.is_awaited()) {
        log_info("the mount command was interrupted");
        leave_as_it_was();
        kill(getpid(), SIGTERM);
    }
    readiness_.ready();
    service_manager_.ready(format("{} is mounted at {}", config_.mount.source, config_.mount.mount_point));
}

int Daemon::serve_until_the_end() {
    session_->serve({*fs_, machinery_->pool(), machinery_->processes(), machinery_->clock(), machinery_->staging(),
                     config_.write.staging_dir, !config_.disk.directory.empty() && config_.disk.passes_through},
                    config_.mount.fuse_threads,
                    {[this] { mount_answers(); },
                     [this] {
                         guard_.release();
                         is_detached_ = true;
                         service_->session_ended();
                     }});
    started_ = machinery_->clock().now();
    started_at_ = machinery_->clock().wall_now();
    watch_traffic();
    return end(service_->run(*fs_, machinery_->clock(), config_.mount.drain_timeout));
}

// Called before the steps of the end that may take long.
void Daemon::name_what_is_lost(const Service::Outcome& outcome) {
    for (const std::string& key : outcome.lost) {
        log_error(format("not saved within the drain timeout: {}", escaped(key)));
        if (control_) {
            control_->tell_outcome(format("lost {}", escaped(key)));
        }
    }
    for (const std::string& line : outcome.undone) {
        log_error(format("not done: {}", escaped(line)));
        if (control_) {
            control_->tell_outcome(format("undone {}", escaped(line)));
        }
    }
}

int Daemon::end(const Service::Outcome& outcome) {
    // The next mount may begin once this one is detached.
    machinery_->tell_of_end();
    const Status detached = mount_->detach();
    if (!detached) {
        log_error(detached.error().message);
    } else {
        guard_.release();
    }
    name_what_is_lost(outcome);
    metrics_.reset();
    traffic_watch_.reset();
    machinery_->end(*session_);
    Service::Outcome left_since;
    // machinery_->end() may have taken 20 s, in which the next mount was killed or gave up.
    const std::string left = machinery_->left_behind();
    if (!left.empty() && std::find(outcome.undone.begin(), outcome.undone.end(), left) == outcome.undone.end()) {
        left_since.undone.push_back(left);
        name_what_is_lost(left_since);
    }
    machinery_.reset();
    log_info(detached ? "unmounted" : "ended");
    if (control_) {
        control_->finish();
    }
    const bool is_all_done = outcome.lost.empty() && outcome.undone.empty() && left_since.undone.empty();
    return detached && is_all_done ? 0 : 1;
}

}  // namespace ckptfs
