// SPDX-License-Identifier: Apache-2.0
#include "daemon/heartbeat.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/mutex.h"
#include "base/numbers.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"

namespace ckptfs {
namespace {

// Far below the age at which gc ends an upload; each beat is one small request.
constexpr Milliseconds kPeriod{600'000};
// The pause after a beat that failed, which may have taken all of --retry-for.
constexpr Milliseconds kRetryPeriod{60'000};
// A beat comes a tenth of the period earlier to a tenth later.
constexpr double kJitter = 0.2;

constexpr std::string_view kHost = "host: ";
constexpr std::string_view kSince = "since: ";

}  // namespace

class Heartbeat::Beats : public std::enable_shared_from_this<Beats> {
public:
    Beats(Environment environment, std::string key, const std::string& host)
        : environment_(std::move(environment)),
          key_(std::move(key)),
          host_(host),
          mounted_(environment_.clock.now()),
          since_(environment_.clock.wall_now()) {}

    void schedule(Milliseconds period) {
        const MutexLock lock(mutex_);
        if (stopped_) {
            return;
        }
        const double factor = 1 + kJitter * (environment_.random() - 0.5);
        const Milliseconds delay(static_cast<std::int64_t>(static_cast<double>(period.count()) * factor));
        waiting_ = environment_.timer.after(delay, [self = shared_from_this()] { self->beat(); });
    }

    // Removes the object if one is, or may be, there, and then calls `gone`. A null `gone` leaves the object.
    void stop(std::function<void()> gone) {
        MutexLock lock(mutex_);
        stopped_ = true;
        const Timer::Id waiting = std::exchange(waiting_, 0);
        lock.unlock();
        if (waiting != 0) {
            environment_.timer.cancel(waiting);
        }
        lock.lock();
        if (in_flight_) {
            gone_ = std::move(gone);
            return;
        }
        lock.unlock();
        remove(std::move(gone));
    }

private:
    // The body, with the time of mounting by the store's clock, which may not have been known at first. The earliest
    // result counts, because the machine may have been suspended.
    [[nodiscard]] std::string text() REQUIRES(mutex_) {
        const auto ago = std::chrono::duration_cast<WallTime::duration>(environment_.clock.now() - mounted_);
        since_ = std::min(since_, environment_.clock.wall_now() - ago);
        return heartbeat_text(host_, since_);
    }

    void beat() {
        PutRequest request;
        {
            const MutexLock lock(mutex_);
            if (stopped_) {
                return;
            }
            in_flight_ = true;
            beaten_ = true;
            request.body = Payload::from_string(text());
        }
        request.key = key_;
        request.content_type = "text/plain";
        environment_.store.put(std::move(request),
                               [self = shared_from_this()](const Result<PutResponse>& put) { self->on_put(put); });
    }

    void on_put(const Result<PutResponse>& put) {
        if (!put) {
            log_info(format("cannot write the heartbeat, by which others see that this mount is alive: {}",
                            escaped(put.error().message)));
        }
        MutexLock lock(mutex_);
        in_flight_ = false;
        std::function<void()> gone = std::exchange(gone_, nullptr);
        const bool stopped = stopped_;
        lock.unlock();
        if (gone) {
            remove(std::move(gone));
        } else if (!stopped) {
            schedule(put || is_refused_for_good(put.error()) ? kPeriod : kRetryPeriod);
        }
    }

    void remove(std::function<void()> gone) {
        if (!gone) {
            return;
        }
        bool beaten = false;
        {
            const MutexLock lock(mutex_);
            beaten = beaten_;
        }
        if (!beaten) {
            gone();
            return;
        }
        environment_.store.remove(key_, [gone = std::move(gone)](const Status& /*removed*/) { gone(); });
    }

    const Environment environment_;
    const std::string key_;
    const std::string host_;
    const SteadyTime mounted_;

    Mutex mutex_;
    WallTime since_ GUARDED_BY(mutex_);
    Timer::Id waiting_ GUARDED_BY(mutex_) = 0;
    bool in_flight_ GUARDED_BY(mutex_) = false;
    bool beaten_ GUARDED_BY(mutex_) = false;
    bool stopped_ GUARDED_BY(mutex_) = false;
    std::function<void()> gone_ GUARDED_BY(mutex_);
};

Heartbeat::Heartbeat(Environment environment, std::string key, const std::string& host)
    : beats_(std::make_shared<Beats>(std::move(environment), std::move(key), host)) {
    beats_->schedule(kPeriod);
}

Heartbeat::~Heartbeat() {
    beats_->stop(nullptr);
}

void Heartbeat::stop(std::function<void()> gone) {
    beats_->stop(std::move(gone));
}

std::string heartbeat_text(const std::string& host, WallTime since) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since.time_since_epoch()).count();
    return format("{}{}\n{}{}\n", kHost, host, kSince, seconds);
}

SeenMount parse_heartbeat(std::string_view text, WallTime last_seen) {
    SeenMount mount;
    mount.last_seen = last_seen;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        if (line.starts_with(kHost)) {
            mount.host = line.substr(kHost.size());
        } else if (line.starts_with(kSince)) {
            const auto seconds = whole_number<std::int64_t>(line.substr(kSince.size()));
            const auto latest =
                std::chrono::duration_cast<std::chrono::seconds>(last_seen.time_since_epoch() + kMaxClockSkew).count();
            if (seconds && *seconds >= 0 && *seconds <= latest) {
                mount.since = WallTime(std::chrono::seconds(*seconds));
            }
        }
    }
    return mount;
}

}  // namespace ckptfs
