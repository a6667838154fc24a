// SPDX-License-Identifier: Apache-2.0
#include "daemon/service.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

constexpr Milliseconds kProgressPeriod{250};
constexpr Milliseconds kNever{-1};
// For aborting the uploads of files that are given up, a request or two each. Systemd kills after 90 s what does not
// end.
constexpr Milliseconds kGiveUpFor{10'000};

// A flag that can be polled. Shared with the filesystem's reply, which may come after the service has given up.
class Event {
public:
    static std::shared_ptr<Event> create() {
        auto event = std::make_shared<Event>();
        event->fd_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        return event->fd_ ? event : nullptr;
    }
    void set() const {
        const std::uint64_t one = 1;
        // Fails only when the counter is full: then it is set.
        static_cast<void>(!write(fd_.get(), &one, sizeof one));
    }
    [[nodiscard]] int descriptor() const { return fd_.get(); }
    [[nodiscard]] bool is_set() const {
        pollfd readable{fd_.get(), POLLIN, 0};
        return poll(&readable, 1, 0) == 1;
    }

private:
    FileDescriptor fd_;
};

DrainProgress progress_of(const fs::FileSystem& fs) {
    DrainProgress sum;
    for (const fs::UploadProgress& upload : fs.uploads()) {
        ++sum.files;
        sum.bytes_acknowledged += upload.progress.bytes_acknowledged;
        sum.bytes_in_store += upload.progress.bytes_in_store;
    }
    return sum;
}

class PollingService final : public Service {
public:
    PollingService(FileDescriptor signals, std::shared_ptr<Event> ended, std::shared_ptr<Event> drained,
                   std::shared_ptr<Event> given_up, ControlServer* control, Events events)
        : signals_(std::move(signals)),
          ended_(std::move(ended)),
          drained_(std::move(drained)),
          given_up_(std::move(given_up)),
          control_(control),
          events_(std::move(events)) {}

    Outcome run(fs::FileSystem& fs, const Clock& clock, Milliseconds drain_timeout) override {
        Outcome outcome;
        while (outcome.reason.empty()) {
            outcome.reason = wait(fs, ended_->descriptor(), until_next_beat(clock));
            beat(clock);
        }
        log_info(format("{}: finishing what is being written", outcome.reason));
        drain(fs, clock, drain_timeout, outcome);
        return outcome;
    }

    void session_ended() override { ended_->set(); }

private:
    void drain(fs::FileSystem& fs, const Clock& clock, Milliseconds timeout, Outcome& outcome) {
        const SteadyTime deadline = clock.now() + timeout;
        fs.drain([drained = drained_](const Status& result) {
            // ECANCELED: handed over, or given up; what was not done is named below.
            if (!result && result.error().errno_value != ECANCELED) {
                log_error(result.error().message);
            }
            drained->set();
        });
        wait_until_set(*drained_, deadline, fs, clock);
        if (!drained_->is_set() && !is_handed_over()) {
            give_up(fs, clock, outcome);
        }
        outcome.undone = fs.left_undone();
    }

    [[nodiscard]] bool is_handed_over() const { return events_.handed_over && events_.handed_over(); }

    // Leaves no upload in the bucket where the store can be reached.
    void give_up(fs::FileSystem& fs, const Clock& clock, Outcome& outcome) {
        outcome.lost = fs.abandon([given_up = given_up_](const Status& result) {
            if (!result) {
                log_warning(format("an upload may be left in the bucket: {}", escaped(result.error().message)));
            }
            given_up->set();
        });
        wait_until_set(*given_up_, clock.now() + kGiveUpFor, fs, clock);
        if (!given_up_->is_set()) {
            log_warning("uploads may be left in the bucket: the store did not answer in time");
        }
    }

    void wait_until_set(const Event& event, SteadyTime deadline, fs::FileSystem& fs, const Clock& clock) {
        while (!event.is_set() && !is_handed_over() && clock.now() < deadline) {
            tell_progress(progress(fs));
            if (ended_->is_set()) {
                fs.disconnected();
            }
            wait(fs, event.descriptor(), kProgressPeriod);
            beat(clock);
        }
    }

    [[nodiscard]] DrainProgress progress(const fs::FileSystem& fs) const {
        DrainProgress sum = progress_of(fs);
        if (events_.unsent) {
            const DrainProgress unsent = events_.unsent();
            sum.files += unsent.files;
            sum.bytes_acknowledged += unsent.bytes_acknowledged;
        }
        return sum;
    }

    void tell_progress(const DrainProgress& progress) {
        if (control_ != nullptr) {
            control_->tell(progress_line(progress));
        }
        if (events_.draining) {
            events_.draining(progress);
        }
    }

    // The time until next_beat_, whatever else wakes the loop meanwhile.
    [[nodiscard]] Milliseconds until_next_beat(const Clock& clock) const {
        if (!events_.heartbeat) {
            return kNever;
        }
        const auto left = std::chrono::ceil<Milliseconds>(next_beat_ - clock.now());
        return std::clamp(left, Milliseconds(0), events_.heartbeat_period);
    }

    void beat(const Clock& clock) {
        if (events_.heartbeat && clock.now() >= next_beat_) {
            next_beat_ = clock.now() + events_.heartbeat_period;
            events_.heartbeat();
        }
    }

    // Returns why the mount is to end; empty if it is not.
    std::string wait(const fs::FileSystem& fs, int event, Milliseconds time) {
        // poll(2) leaves out negative descriptors.
        std::array<pollfd, 3> events{pollfd{event, POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0},
                                     pollfd{control_ == nullptr ? -1 : control_->descriptor(), POLLIN, 0}};
        if (poll(events.data(), events.size(), static_cast<int>(time.count())) <= 0) {
            return {};
        }
        if (events[0].revents != 0) {
            return "unmounted";
        }
        signalfd_siginfo signal{};
        if (events[1].revents != 0 && read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
            return is_the_end(signal) ? format("signal {}", sigabbrev_np(static_cast<int>(signal.ssi_signo))) : "";
        }
        const auto status = [&] { return events_.status ? events_.status(fs) : ""; };
        return events[2].revents != 0 && control_->accept(status) ? "ckptfs unmount" : "";
    }

    [[nodiscard]] bool is_the_end(const signalfd_siginfo& signal) const {
        return signal.ssi_signo != SIGHUP || !events_.hung_up || events_.hung_up();
    }

    const FileDescriptor signals_;
    const std::shared_ptr<Event> ended_;
    const std::shared_ptr<Event> drained_;
    const std::shared_ptr<Event> given_up_;
    ControlServer* const control_;
    const Events events_;
    // Used only by the thread of run().
    SteadyTime next_beat_{};
};

}  // namespace

Result<FileDescriptor> take_over_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int each : {SIGTERM, SIGINT, SIGHUP}) {
        sigaddset(&set, each);
    }
    if (const int problem = pthread_sigmask(SIG_BLOCK, &set, nullptr); problem != 0) {
        return failure(problem, format("cannot block signals: {}", std::strerror(problem)));
    }
    FileDescriptor signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals) {
        return failure(errno, format("cannot wait for signals: {}", std::strerror(errno)));
    }
    return signals;
}

Result<std::unique_ptr<Service>> Service::create(FileDescriptor signals, ControlServer* control, Events events) {
    auto ended = Event::create();
    auto drained = Event::create();
    auto given_up = Event::create();
    if (ended == nullptr || drained == nullptr || given_up == nullptr) {
        return failure(errno, format("cannot make an event descriptor: {}", std::strerror(errno)));
    }
    return std::make_unique<PollingService>(std::move(signals), std::move(ended), std::move(drained),
                                            std::move(given_up), control, std::move(events));
}

}  // namespace ckptfs
