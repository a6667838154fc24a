// SPDX-License-Identifier: Apache-2.0
#include "fuse/session.h"

#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "fuse/init_negotiation.h"
#include "fuse/kernel_notifier.h"
#include "fuse/kernel_passthrough.h"
#include "fuse/operations.h"
#include "fuse/parked_writes.h"

namespace ckptfs {
namespace {

// Wakes a worker from read(); the handler does nothing. The default of this signal is to be ignored, so that a stray
// one does no harm either.
constexpr int kWakeSignal = SIGURG;
constexpr Milliseconds kWakeAgain{10};
constexpr Milliseconds kInterruptWatchPeriod{200};

// Requests are received so far into their buffer that the data of a write begins on a page. Programs' data seldom does
// (torch's tensors begin 64 bytes into one), and copying to a place up to 63 bytes further into its page than the
// source is in its own takes AMD Zen 3's `rep movsb` about twice as long: writing tensors cost 1.6 s of CPU a GB, now
// 0.9.
constexpr std::size_t kRequestOffset = BufferPool::kHeaderSize - sizeof(fuse_in_header) - sizeof(fuse_write_in);
constexpr std::size_t kMaxRequestSize = BufferPool::kBufferSize - kRequestOffset;

// Hands a buffer of the pool to a worker that may have left by then.
class BufferWait {
public:
    void deliver(Buffer buffer) {
        const MutexLock lock(mutex_);
        if (!abandoned_) {
            buffer_ = std::move(buffer);
            changed_.notify_all();
        }
    }

    // Empty once `stopping`.
    std::optional<Buffer> wait(const std::atomic<bool>& stopping) {
        MutexLock lock(mutex_);
        while (!buffer_ && !stopping) {
            changed_.wait_for(lock, kWakeAgain * 10);
        }
        abandoned_ = true;
        return std::exchange(buffer_, std::nullopt);
    }

private:
    Mutex mutex_;
    Condition changed_;
    std::optional<Buffer> buffer_ GUARDED_BY(mutex_);
    bool abandoned_ GUARDED_BY(mutex_) = false;
};

struct SessionDeleter {
    void operator()(fuse_session* session) const { fuse_session_destroy(session); }
};

// The buffer of the request that the calling worker is handling. libfuse passes the session to its operations, but not
// the worker.
thread_local Buffer* current_buffer = nullptr;

class FuseSession final : public Session, private Serving, private KernelNotifier::Sink {
public:
    ~FuseSession() override {
        stop();
        // Replies to these requests need libfuse's session, which is destroyed before the members of the base class.
        interrupts.clear();
    }

    Status open(FileDescriptor connection);

    fs::KernelCache& kernel_cache() override { return notifier_; }
    fs::Passthrough& passthrough() override { return passthrough_; }
    void serve(SessionEnvironment environment, int workers, Events events) override;
    void stop() override;
    [[nodiscard]] Milliseconds longest_request() const override;

private:
    static FuseSession& of(void* userdata) { return *static_cast<FuseSession*>(static_cast<Serving*>(userdata)); }
    static ssize_t read_request(int fd, void* buffer, std::size_t size, void* userdata);
    static ssize_t write_reply(int fd, iovec* parts, int count, void* userdata);

    // Since when a worker has been busy: a time of steady_clock, or kIdle.
    using BusySince = std::atomic<SteadyTime::rep>;
    static constexpr SteadyTime::rep kIdle = 0;

    void work(BusySince& busy);
    bool handle_one(Buffer& buffer, BusySince& busy);
    std::optional<Buffer> take_buffer();
    void worker_left();
    void watch_interrupts();
    bool wait_until_stopping(Milliseconds time);

    void hand_over(ByteSpan data, std::function<bool()> wanted,
                   std::function<void(Result<WriteData>)> deliver) override;
    void invalidate_entry(std::uint64_t parent, const std::string& name) override;
    void invalidate_inode(std::uint64_t node, std::uint64_t from) override;
    void invalidate_attributes(std::uint64_t node) override;

    // Set by serve().
    BufferPool* pool_ = nullptr;
    std::shared_ptr<ParkedWrites> parked_;
    Events events_;

    InitNegotiation negotiation_;
    KernelPassthrough passthrough_{negotiation_};
    std::unique_ptr<fuse_session, SessionDeleter> session_;
    KernelNotifier notifier_{negotiation_};

    Mutex mutex_;
    Condition changed_;
    int running_ GUARDED_BY(mutex_) = 0;
    std::atomic<bool> stopping_{false};
    // One per worker; made before the first of them starts.
    std::deque<BusySince> busy_;
    // Only used by the thread that serves and stops.
    std::vector<std::thread> threads_;
};

Status FuseSession::open(FileDescriptor connection) {
    std::string name = "ckptfs";
    std::array<char*, 1> arguments{name.data()};
    fuse_args args = FUSE_ARGS_INIT(1, arguments.data());
    session_.reset(fuse_session_new(&args, &fuse_operations(), sizeof(fuse_lowlevel_ops), static_cast<Serving*>(this)));
    fuse_opt_free_args(&args);
    fuse_custom_io io{};
    io.read = read_request;
    io.writev = write_reply;
    if (session_ == nullptr || fuse_session_custom_io(session_.get(), &io, connection.get()) != 0) {
        return failure(ENOMEM, "libfuse cannot create a session");
    }
    passthrough_.connect(connection.release());
    return {};
}

ssize_t FuseSession::read_request(int fd, void* buffer, std::size_t size, void* userdata) {
    // libfuse assumes 256 pages, which are larger than ours on some machines; max_write bounds what comes.
    const ssize_t received = ::read(fd, buffer, std::min(size, kMaxRequestSize));
    if (received > 0) {
        of(userdata).negotiation_.on_request(
            {static_cast<const std::byte*>(buffer), static_cast<std::size_t>(received)});
    } else if (received == 0) {
        errno = ENODEV;
        return -1;
    }
    return received;
}

ssize_t FuseSession::write_reply(int fd, iovec* parts, int count, void* userdata) {
    FuseSession& session = of(userdata);
    const bool init = session.negotiation_.on_reply(parts, count);
    const ssize_t written = ::writev(fd, parts, count);
    if (init && written > 0) {
        session.notifier_.connect(session);
        session.events_.ready();
    }
    return written;
}

void FuseSession::serve(SessionEnvironment environment, int workers, Events events) {
    fs = &environment.fs;
    processes = &environment.processes;
    clock = &environment.clock;
    pool_ = &environment.pool;
    parked_ = std::make_shared<ParkedWrites>(environment.pool, environment.disk, environment.staging_dir);
    events_ = std::move(events);
    if (environment.passes_through) {
        negotiation_.want_passthrough();
    }

    struct sigaction wake {};
    wake.sa_handler = [](int) {};
    sigaction(kWakeSignal, &wake, nullptr);

    {
        const MutexLock lock(mutex_);
        running_ = workers;
    }
    busy_.resize(static_cast<std::size_t>(workers));
    for (int i = 0; i < workers; ++i) {
        threads_.emplace_back([this, &busy = busy_[static_cast<std::size_t>(i)]] {
            pthread_setname_np(pthread_self(), "ckptfs-fuse");
            work(busy);
        });
    }
    threads_.emplace_back([this] {
        pthread_setname_np(pthread_self(), "ckptfs-intr");
        watch_interrupts();
    });
}

void FuseSession::stop() {
    // While the workers still answer: what the notifier is doing may wait for them.
    notifier_.disconnect();
    if (parked_ != nullptr) {
        parked_->stop();
    }
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    while (running_ > 0) {
        // A signal that comes just before read() is lost, so it is sent until it worked.
        for (std::thread& thread : threads_) {
            pthread_kill(thread.native_handle(), kWakeSignal);
        }
        changed_.wait_for(lock, kWakeAgain);
    }
    lock.unlock();
    for (std::thread& thread : threads_) {
        thread.join();
    }
    threads_.clear();
}

void FuseSession::work(BusySince& busy) {
    Buffer buffer;
    while (!stopping_) {
        if (!buffer) {
            std::optional<Buffer> next = take_buffer();
            if (!next) {
                break;
            }
            buffer = std::move(*next);
        }
        if (!handle_one(buffer, busy)) {
            break;
        }
    }
    buffer.reset();
    worker_left();
}

bool FuseSession::handle_one(Buffer& buffer, BusySince& busy) {
    fuse_buf request{};
    request.mem = buffer.data() + kRequestOffset;
    request.size = kMaxRequestSize;
    const int received = fuse_session_receive_buf(session_.get(), &request);
    if (received == -EINTR || received == -EAGAIN) {
        return true;
    }
    if (received <= 0) {
        if (received != 0) {
            log_error(format("cannot read requests from the kernel: {}", std::strerror(-received)));
        }
        return false;
    }
    current_buffer = &buffer;
    busy = clock->now().time_since_epoch().count();
    fuse_session_process_buf(session_.get(), &request);
    busy = kIdle;
    current_buffer = nullptr;
    return true;
}

Milliseconds FuseSession::longest_request() const {
    Milliseconds longest{0};
    for (const BusySince& busy : busy_) {
        if (const SteadyTime::rep since = busy; since != kIdle) {
            const SteadyTime began{SteadyTime::duration(since)};
            longest = std::max(longest, std::chrono::duration_cast<Milliseconds>(clock->now() - began));
        }
    }
    return longest;
}

std::optional<Buffer> FuseSession::take_buffer() {
    if (std::optional<Buffer> buffer = pool_->try_take(MemoryUse::kReceive)) {
        return buffer;
    }
    const auto wait = std::make_shared<BufferWait>();
    pool_->take(MemoryUse::kReceive, [wait](Buffer buffer) { wait->deliver(std::move(buffer)); });
    return wait->wait(stopping_);
}

void FuseSession::worker_left() {
    bool last = false;
    {
        const MutexLock lock(mutex_);
        last = --running_ == 0;
        changed_.notify_all();
    }
    if (last && !stopping_) {
        events_.ended();
    }
}

bool FuseSession::wait_until_stopping(Milliseconds time) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return stopping_.load(); });
}

void FuseSession::watch_interrupts() {
    while (!wait_until_stopping(kInterruptWatchPeriod)) {
        interrupts.check();
    }
}

void FuseSession::hand_over(ByteSpan data, std::function<bool()> wanted,
                            std::function<void(Result<WriteData>)> deliver) {
    std::optional<Buffer> next = pool_->try_take(MemoryUse::kReceive);
    // Waiting a little for one instead saves nothing: parked writes get it first.
    if (!next && parked_->park(data, std::move(wanted), deliver)) {
        return;
    }
    deliver(WriteData{std::exchange(*current_buffer, next ? std::move(*next) : Buffer()), data});
}

void FuseSession::invalidate_entry(std::uint64_t parent, const std::string& name) {
    fuse_lowlevel_notify_inval_entry(session_.get(), parent, name.c_str(), name.size());
}

void FuseSession::invalidate_inode(std::uint64_t node, std::uint64_t from) {
    // Length 0: all pages from there on, and the attributes.
    fuse_lowlevel_notify_inval_inode(session_.get(), node, static_cast<off_t>(from), 0);
}

void FuseSession::invalidate_attributes(std::uint64_t node) {
    fuse_lowlevel_notify_inval_inode(session_.get(), node, -1, 0);
}

}  // namespace

Result<std::unique_ptr<Session>> Session::create(FileDescriptor connection) {
    auto session = std::make_unique<FuseSession>();
    if (auto opened = session->open(std::move(connection)); !opened) {
        return failure(opened.error());
    }
    return session;
}

}  // namespace ckptfs
