// SPDX-License-Identifier: Apache-2.0
#include "http/curl_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace ckptfs {
namespace {

constexpr int kEventsPerWait = 64;

SteadyTime steady_now() {
    return std::chrono::steady_clock::now();
}

Status check(CURLMcode code, const char* what) {
    if (code != CURLM_OK) {
        return failure(EIO, format("libcurl: {}: {}", what, curl_multi_strerror(code)));
    }
    return {};
}

Transfer* transfer_of(CURL* easy) {
    char* transfer = nullptr;
    if (easy != nullptr) {
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
    }
    return reinterpret_cast<Transfer*>(transfer);
}

RateJudge& judge_of(SharedKnowledge& known, const Transfer& transfer) REQUIRES(known.mutex) {
    return transfer.sends_body() ? known.up : known.down;
}

// Signals belong to the main thread; a blocked SIGPIPE also keeps a write of the TLS library to a closed connection
// from ending the process.
void block_signals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

Result<std::unique_ptr<CurlLoop>> CurlLoop::create(const CurlTransportOptions& options, int max_connections,
                                                   SharedKnowledge& known) {
    std::unique_ptr<CurlLoop> loop(new CurlLoop(options, max_connections, known));
    if (Status status = loop->open(); !status) {
        return failure(status.error());
    }
    loop->thread_ = std::thread([raw = loop.get()] { raw->run(); });
    return loop;
}

CurlLoop::CurlLoop(const CurlTransportOptions& options, int max_connections, SharedKnowledge& known)
    : options_(options), max_connections_(max_connections), known_(known) {}

Status CurlLoop::open() {
    multi_.reset(curl_multi_init());
    epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
    wakeup_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!multi_ || !epoll_ || !wakeup_) {
        return failure(errno, format("cannot create the event loop for HTTP: {}", std::strerror(errno)));
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = wakeup_.get();
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wakeup_.get(), &event) != 0) {
        return failure(errno, format("cannot create the event loop for HTTP: {}", std::strerror(errno)));
    }
    Status status = check(curl_multi_setopt(multi_.get(), CURLMOPT_SOCKETFUNCTION, &CurlLoop::on_socket), "sockets");
    if (status) {
        status = check(curl_multi_setopt(multi_.get(), CURLMOPT_SOCKETDATA, this), "sockets");
    }
    if (status) {
        status = check(curl_multi_setopt(multi_.get(), CURLMOPT_TIMERFUNCTION, &CurlLoop::on_timer), "timer");
    }
    if (status) {
        status = check(curl_multi_setopt(multi_.get(), CURLMOPT_TIMERDATA, this), "timer");
    }
    if (status) {
        status = check(curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, static_cast<long>(max_connections_)),
                       "connections");
    }
    return status;
}

CurlLoop::~CurlLoop() {
    stop();
    // libcurl calls on_socket while it closes its connections.
    idle_handles_.clear();
    multi_.reset();
}

void CurlLoop::stop() {
    {
        const MutexLock lock(mutex_);
        inbox_.stopping = true;
    }
    wake();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void CurlLoop::enqueue(std::unique_ptr<Transfer> transfer) {
    MutexLock lock(mutex_);
    if (closed_) {
        lock.unlock();
        transfer->fail_canceled();
        return;
    }
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    inbox_.transfers.push_back(std::move(transfer));
    lock.unlock();
    wake();
}

void CurlLoop::cancel(HttpTransport::Id id) {
    {
        const MutexLock lock(mutex_);
        inbox_.canceled.push_back(id);
    }
    wake();
}

void CurlLoop::wake() const {
    const std::uint64_t one = 1;
    // Fails only when the counter is full, and then the loop is awake anyway.
    [[maybe_unused]] const ssize_t written = write(wakeup_.get(), &one, sizeof one);
}

int CurlLoop::on_socket(CURL* easy, curl_socket_t socket, int what, void* self, void* known) {
    auto* loop = static_cast<CurlLoop*>(self);
    Transfer* transfer = transfer_of(easy);
    if (what == CURL_POLL_REMOVE) {
        if (transfer != nullptr) {
            transfer->socket_removed(socket);
            if (!transfer->request_started()) {
                loop->connecting_anew_.push_back(transfer->id());
            }
        }
        // The socket may have been closed already, which took it out of the set.
        epoll_ctl(loop->epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
        curl_multi_assign(loop->multi_.get(), socket, nullptr);
        return 0;
    }
    if (transfer != nullptr) {
        transfer->socket_used(socket);
    }
    epoll_event event{};
    event.data.fd = socket;
    if ((what & CURL_POLL_IN) != 0) {
        event.events |= EPOLLIN;
    }
    if ((what & CURL_POLL_OUT) != 0) {
        event.events |= EPOLLOUT;
    }
    const int operation = known == nullptr ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (epoll_ctl(loop->epoll_.get(), operation, socket, &event) != 0 &&
        epoll_ctl(loop->epoll_.get(), operation == EPOLL_CTL_ADD ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, socket, &event) !=
            0) {
        return -1;
    }
    curl_multi_assign(loop->multi_.get(), socket, loop);
    return 0;
}

int CurlLoop::on_timer(CURLM*, long timeout_ms, void* self) {
    auto* loop = static_cast<CurlLoop*>(self);
    loop->curl_due_ = timeout_ms < 0 ? SteadyTime::max() : steady_now() + Milliseconds(timeout_ms);
    return 0;
}

void CurlLoop::run() {
    pthread_setname_np(pthread_self(), "ckptfs-http");
    block_signals();
    while (take_inbox()) {
        start_waiting();
        act_on_timeout();
        finish_completed();
        try_next_addresses();
        end_stalled();
        if (!waiting_.empty() && static_cast<int>(active_.size()) < max_connections_) {
            continue;
        }
        wait_for_events();
        finish_completed();
        try_next_addresses();
    }
    cancel_all();
}

bool CurlLoop::take_inbox() {
    Inbox inbox;
    {
        const MutexLock lock(mutex_);
        std::swap(inbox, inbox_);
        inbox_.stopping = inbox.stopping;
    }
    for (auto& transfer : inbox.transfers) {
        waiting_.push_back(std::move(transfer));
    }
    for (const HttpTransport::Id id : inbox.canceled) {
        cancel_now(id);
    }
    return !inbox.stopping;
}

void CurlLoop::cancel_now(HttpTransport::Id id) {
    const auto position =
        std::find_if(waiting_.begin(), waiting_.end(), [id](const auto& transfer) { return transfer->id() == id; });
    std::unique_ptr<Transfer> transfer;
    if (position != waiting_.end()) {
        transfer = std::move(*position);
        waiting_.erase(position);
    } else {
        transfer = detach(id);
    }
    if (transfer) {
        conclude(std::move(transfer), [](Transfer& ended) { ended.fail_canceled(); });
    }
}

void CurlLoop::start_waiting() {
    while (!waiting_.empty() && static_cast<int>(active_.size()) < max_connections_) {
        std::unique_ptr<Transfer> transfer = std::move(waiting_.front());
        waiting_.pop_front();
        start(std::move(transfer));
    }
}

void CurlLoop::start(std::unique_ptr<Transfer> transfer) {
    CurlEasy easy;
    if (idle_handles_.empty()) {
        easy.reset(curl_easy_init());
    } else {
        easy = std::move(idle_handles_.back());
        idle_handles_.pop_back();
    }
    Status status = easy ? Status{} : failure(ENOMEM, "no memory for an HTTP handle");
    const SteadyTime now = steady_now();
    if (status) {
        status = transfer->start(std::move(easy), options_, counters_, known_.bodies, now);
    }
    if (status) {
        status = transfer->connect_to(known_.addresses.instead_of_lookup(transfer->authority(), now));
    }
    if (status) {
        status = check(curl_multi_add_handle(multi_.get(), transfer->easy()), "a request could not be started");
    }
    if (!status) {
        conclude(std::move(transfer), [&status](Transfer& ended) { ended.fail(std::move(status.error())); });
        return;
    }
    progress_due_ = std::min(progress_due_, now + std::min(transfer->progress_interval(), options_.crawl_window));
    active_.emplace(transfer->id(), std::move(transfer));
}

void CurlLoop::act_on_timeout() {
    // The callback may ask for the next timeout, also an immediate one.
    while (steady_now() >= curl_due_) {
        curl_due_ = SteadyTime::max();
        int running = 0;
        curl_multi_socket_action(multi_.get(), CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

// After an address that did not respond, libcurl 7.88 tries the next one only when it looks at the transfer again: when
// the time for connecting ends. It looks at once at a transfer that goes on after a pause.
void CurlLoop::try_next_addresses() {
    for (const HttpTransport::Id id : std::exchange(connecting_anew_, {})) {
        if (const auto transfer = active_.find(id); transfer != active_.end()) {
            curl_easy_pause(transfer->second->easy(), CURLPAUSE_RECV);
            curl_easy_pause(transfer->second->easy(), CURLPAUSE_CONT);
        }
    }
}

int CurlLoop::wait_milliseconds() const {
    const SteadyTime due = std::min(curl_due_, progress_due_);
    if (due == SteadyTime::max()) {
        return -1;
    }
    const auto wait = std::chrono::ceil<Milliseconds>(due - steady_now()).count();
    return static_cast<int>(std::clamp<Milliseconds::rep>(wait, 0, 60'000));
}

void CurlLoop::wait_for_events() {
    std::array<epoll_event, kEventsPerWait> events{};
    const int ready = epoll_wait(epoll_.get(), events.data(), kEventsPerWait, wait_milliseconds());
    for (int i = 0; i < ready; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.fd == wakeup_.get()) {
            std::uint64_t count = 0;
            [[maybe_unused]] const ssize_t taken = read(wakeup_.get(), &count, sizeof count);
            continue;
        }
        int what = 0;
        what |= (event.events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0;
        what |= (event.events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0;
        what |= (event.events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0;
        int running = 0;
        curl_multi_socket_action(multi_.get(), event.data.fd, what, &running);
    }
}

void CurlLoop::finish_completed() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
        if (message->msg != CURLMSG_DONE) {
            continue;
        }
        const CURLcode code = message->data.result;
        const Transfer* ended = transfer_of(message->easy_handle);
        ended->tell_addresses(code, known_.addresses, steady_now());
        if (code == CURLE_OK) {
            count_rate(*ended);
        }
        if (std::unique_ptr<Transfer> transfer = detach(ended->id())) {
            conclude(std::move(transfer), [code](Transfer& each) { each.complete(code); });
        }
    }
}

void CurlLoop::end_stalled() {
    const SteadyTime now = steady_now();
    if (now < progress_due_) {
        return;
    }
    std::vector<HttpTransport::Id> stalled;
    progress_due_ = SteadyTime::max();
    for (const auto& [id, transfer] : active_) {
        if (!transfer->check_progress(now)) {
            stalled.push_back(id);
        }
        progress_due_ = std::min(progress_due_, now + std::min(transfer->progress_interval(), options_.crawl_window));
    }
    for (const HttpTransport::Id id : stalled) {
        conclude(detach(id), [](Transfer& ended) { ended.fail_stalled(); });
    }
    end_crawling(now);
}

// All transfers are recorded before one is judged, so that a link that has become slow for all is recognised.
void CurlLoop::end_crawling(SteadyTime now) {
    struct Crawling {
        HttpTransport::Id id;
        double rate;
        double usual;
    };
    std::vector<Crawling> crawling;
    {
        std::vector<std::pair<const Transfer*, RateWindow>> windows;
        const MutexLock lock(known_.mutex);
        for (const auto& [id, transfer] : active_) {
            if (const auto window = transfer->rate_window(now, options_.crawl_window)) {
                judge_of(known_, *transfer).saw(*window);
                windows.emplace_back(transfer.get(), *window);
            }
        }
        for (const auto& [transfer, window] : windows) {
            if (!transfer->ends_when_crawling()) {
                continue;
            }
            if (const auto usual = judge_of(known_, *transfer).crawls_beside(window, transfer->may_go_on())) {
                crawling.push_back({transfer->id(), window.rate(), *usual});
            }
        }
    }
    for (const Crawling& each : crawling) {
        conclude(detach(each.id), [&each](Transfer& ended) { ended.fail_crawling(each.rate, each.usual); });
    }
}

void CurlLoop::count_rate(const Transfer& ended) {
    const RateWindow window = ended.last_window(steady_now());
    if (window.bytes >= RateJudge::kSmallestSample) {
        const MutexLock lock(known_.mutex);
        judge_of(known_, ended).saw(window);
    }
}

std::unique_ptr<Transfer> CurlLoop::detach(HttpTransport::Id id) {
    const auto position = active_.find(id);
    if (position == active_.end()) {
        return nullptr;
    }
    std::unique_ptr<Transfer> transfer = std::move(position->second);
    active_.erase(position);
    curl_multi_remove_handle(multi_.get(), transfer->easy());
    return transfer;
}

template <class End>
void CurlLoop::conclude(std::unique_ptr<Transfer> transfer, End end) {
    // Before the callback: a caller that waits for the reply may read the count next.
    in_flight_.fetch_sub(1, std::memory_order_relaxed);
    end(*transfer);
    CurlEasy easy = transfer->release_handle();
    // A handle whose transfer failed may have kept its buffers, whose sizes can then not be set again.
    if (easy && transfer->succeeded() && idle_handles_.size() < std::size_t(max_connections_)) {
        idle_handles_.push_back(std::move(easy));
    }
}

void CurlLoop::cancel_all() {
    while (true) {
        while (!active_.empty()) {
            conclude(detach(active_.begin()->first), [](Transfer& ended) { ended.fail_canceled(); });
        }
        while (!waiting_.empty()) {
            std::unique_ptr<Transfer> transfer = std::move(waiting_.front());
            waiting_.pop_front();
            conclude(std::move(transfer), [](Transfer& ended) { ended.fail_canceled(); });
        }
        const MutexLock lock(mutex_);
        if (inbox_.transfers.empty()) {
            closed_ = true;
            return;
        }
        waiting_ = std::move(inbox_.transfers);
        inbox_.transfers.clear();
    }
}

}  // namespace ckptfs
