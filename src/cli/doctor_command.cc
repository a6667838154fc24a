// SPDX-License-Identifier: Apache-2.0
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/environment.h"
#include "base/executors.h"
#include "base/process_inspector.h"
#include "base/system_clock.h"
#include "base/text.h"
#include "base/timer_thread.h"
#include "base/uuid.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "cli/commands.h"
#include "config/scale.h"
#include "daemon/background.h"
#include "daemon/control.h"
#include "daemon/local_checks.h"
#include "daemon/mounted_daemon.h"
#include "daemon/store_client.h"
#include "doctor/diagnosis.h"
#include "doctor/diagnosis_json.h"
#include "doctor/endpoint_probe.h"
#include "doctor/local_probes.h"
#include "doctor/probes.h"
#include "doctor/rules.h"
#include "journal/mount_journal.h"

namespace ckptfs {
namespace {

// The user waits at the terminal.
constexpr Milliseconds kRetryFor{std::chrono::seconds(10)};
// Enough for a part of 5 MiB at 100 KB/s.
constexpr Milliseconds kLongestRequest{std::chrono::seconds(60)};
constexpr std::chrono::minutes kLongest{5};

std::atomic<bool> wants_to_leave = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

// The first signal lets us clean up; the second ends the program.
void heed_signals() {
    struct sigaction action {};
    action.sa_handler = [](int) { wants_to_leave = true; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) {
        sigaction(each, &action, nullptr);
    }
    std::signal(SIGPIPE, SIG_IGN);
}

std::string kernel_release() {
    utsname kernel{};
    return uname(&kernel) == 0 ? kernel.release : "";
}

Status ask_whether_well(const MountEntry& mount) {
    constexpr std::chrono::seconds kDaemonPatience{3};
    const auto status = ask_for_status(mount, kDaemonPatience);
    return status ? Status() : failure(status.error());
}

void ask_this_machine(const ToolRequest& request, const Config& config, ExitCodeSight sight,
                      doctor::Findings& findings) {
    const Environment environment = process_environment();
    doctor::LocalPlaces places;
    places.fuse_device = "/dev/fuse";
    places.is_root = geteuid() == 0;
    places.search_path = search_path(environment);
    places.mount_point = request.path;
    places.ask_daemon = ask_whether_well;
    places.staging_directory = config.write.staging_dir;
    places.control_directory = control_directory(getuid(), getuid(), environment);
    places.state_directory = state_directory(config.mount.state_dir, getuid(), environment);
    places.cache_directory = config.disk.directory;
    places.kernel_release = config.disk.passes_through ? kernel_release() : "";
    if (auto mounts = read_mount_table()) {
        places.mounts = std::move(*mounts);
    }
    places.open_files_limit = most_open_files();
    places.max_connections = config.store.max_connections;
    places.exit_code_sight = sight;
    doctor::probe_this_machine(places, findings);
}

class Examination {
public:
    Examination(const ToolRequest& request, const Config& config, doctor::Findings& findings)
        : request_(request), config_(config), findings_(findings) {
        patience_.interrupted = [this, end = clock_.now() + kLongest] { return wants_to_leave || clock_.now() >= end; };
    }
    ~Examination() {
        if (client_ != nullptr) {
            client_->stop();
        }
        executor_->stop();
    }
    Examination(const Examination&) = delete;
    Examination& operator=(const Examination&) = delete;

    void run() {
        const Status reached = reach();
        if (!reached) {
            findings_.not_asked_from(doctor::kFirstStoreProbe, doctor::kLastProbe, doctor::Probe::kEndpoint);
        } else if (findings_.find(doctor::Probe::kCredentials) != nullptr) {
            findings_.not_asked_from(doctor::kFirstStoreProbe, doctor::kLastProbe, doctor::Probe::kCredentials);
        } else if (Status asked = ask_store(); !asked) {
            findings_.add(doctor::Probe::kBucket, doctor::ProbeAnswer::kFailed, asked.error());
            findings_.not_asked_from(doctor::kFirstStoreProbe, doctor::kLastProbe, doctor::Probe::kBucket);
        }
        findings_.interrupted = patience_.interrupted();
    }

private:
    // Makes the client, unsigned if the credentials fail, and probes the endpoint.
    Status reach() {
        StoreConfig unsigned_config = config_.store;
        unsigned_config.no_sign_request = true;
        auto client = StoreClient::create(config_.store, timer_, clock_, *executor_);
        if (!client) {
            const Error error = client.error();
            client = StoreClient::create(unsigned_config, timer_, clock_, *executor_);
            if (client) {
                findings_.add(doctor::Probe::kCredentials, doctor::ProbeAnswer::kNo, error.message);
            }
        }
        const auto endpoint = StoreClient::endpoint(config_.store);
        if (!endpoint) {
            findings_.add(doctor::Probe::kEndpoint, doctor::ProbeAnswer::kNo, endpoint.error());
            return failure(endpoint.error());
        }
        if (!client) {
            // The credentials are not the cause, and no request was sent: the access log or libcurl failed.
            findings_.add(doctor::Probe::kEndpoint, doctor::ProbeAnswer::kFailed, client.error());
            return failure(client.error());
        }
        client_ = std::move(*client);
        findings_.facts.url = endpoint->url("", {});
        findings_.facts.virtual_host = endpoint->base_path.empty();
        findings_.facts.region = endpoint->region;
        const bool answers = doctor::probe_endpoint(client_->transport(), clock_, patience_.interrupted, findings_);
        return answers ? Status() : failure(EIO, "");
    }

    [[nodiscard]] StoreConfig impatient(bool checksums) const {
        StoreConfig config = config_.store;
        config.retry_for = std::min(config.retry_for, kRetryFor);
        config.stall_timeout = std::min(config.stall_timeout, kRetryFor);
        if (!checksums) {
            config.checksum = "none";
        }
        return config;
    }

    Status ask_store() {
        const bool checksums = config_.store.checksum != "none";
        const auto first = client_->make_store(impatient(checksums));
        const auto second = client_->make_store(impatient(false));
        const auto last = client_->make_store(impatient(false));
        for (const auto* made : {&first, &second, &last}) {
            if (!*made) {
                return failure(made->error());
            }
        }
        doctor::ProbeRequest probes;
        probes.prefix = config_.store.prefix;
        probes.place = format("{}{}doctor-{}/", config_.store.prefix, kTemporaryPrefix, random_uuid());
        probes.read_only = config_.names.read_only;
        probes.most_bytes = request_.probe_mib * kMebibyte;
        probes.max_connections = config_.store.max_connections;
        probes.credentials = client_->credentials_source();
        if (!request_.json && isatty(STDERR_FILENO) != 0) {
            probes.asking = [](doctor::Probe probe) {
                std::fprintf(stderr, "%sasking for %s ...", kClearLine, std::string(doctor::name_of(probe)).c_str());
            };
        }
        doctor::Litter litter;
        doctor::PatientStore store(**first, patience_, litter);
        doctor::PatientStore plain(**second, patience_, litter);
        doctor::probe_store(store, checksums ? &plain : nullptr, probes, findings_);
        if (probes.asking) {
            std::fputs(kClearLine, stderr);
        }
        // A request that was given up must not take effect after the cleanup.
        (*first)->stop();
        (*second)->stop();
        if (const auto times = (*first)->statistics().slow_downs + (*second)->statistics().slow_downs; times > 0) {
            findings_.add(doctor::Probe::kSlowDown, doctor::ProbeAnswer::kNo, format("{} times", times));
        } else {
            findings_.add(doctor::Probe::kSlowDown, doctor::ProbeAnswer::kYes);
        }
        tidy(**last, litter, probes.place);
        return {};
    }

    void tidy(ObjectStore& store, const doctor::Litter& litter, const std::string& place) {
        if (litter.empty()) {
            findings_.add(doctor::Probe::kCleanup, doctor::ProbeAnswer::kYes);
            return;
        }
        const doctor::Patience patience{clock_, [] { return false; }, kLongestRequest};
        doctor::Litter none;
        doctor::PatientStore cleaning(store, patience, none);
        doctor::clean_up(cleaning, litter, place, findings_);
    }

    const ToolRequest& request_;
    const Config& config_;
    doctor::Findings& findings_;
    SystemClock clock_;
    TimerThread timer_{clock_};
    std::unique_ptr<Executor> executor_ = make_executor();
    std::unique_ptr<StoreClient> client_;
    doctor::Patience patience_{clock_, {}, kLongestRequest};
};

}  // namespace

int doctor_command(const ToolRequest& request, const Config& given) {
    // Asked before memory is hidden: /proc hides a process that cannot be dumped, and its children.
    const ExitCodeSight sight = exit_code_sight();
    set_log_level(LogLevel::kError);
    hide_memory();
    heed_signals();
    const Config config = scaled(given, processor_count());
    doctor::Findings findings;
    findings.source = format("s3://{}/{}", config.store.bucket, config.store.prefix);
    findings.origin = request.origin;
    findings.facts.max_connections = config.store.max_connections;
    ask_this_machine(request, config, sight, findings);
    Examination(request, config, findings).run();
    const doctor::Diagnosis diagnosis = doctor::diagnose(findings);
    const std::string text = request.json ? doctor::json_of(diagnosis) : doctor::describe(diagnosis);
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        std::fprintf(stderr, "ckptfs: standard output cannot be written\n");
        return 1;
    }
    return doctor::exit_code(diagnosis);
}

}  // namespace ckptfs
