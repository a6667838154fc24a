// SPDX-License-Identifier: Apache-2.0
#include "raw_transfers.h"

#include <curl/curl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace ckptfs::bench {

namespace {

// Large enough for few system calls, small enough that those of all connections fit into the CPU's cache: libcurl
// copies every byte of an upload through its buffer.
constexpr long kUploadBufferBytes = 256L * 1024;
constexpr long kReceiveBufferBytes = 512L * 1024;
constexpr int kLongestWaitMs = 1000;

struct EasyCleanup {
    void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct MultiCleanup {
    void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct HeadersCleanup {
    void operator()(curl_slist* headers) const { curl_slist_free_all(headers); }
};

template <class Value>
void set_option(CURL* easy, CURLoption option, Value value) {
    if (const CURLcode code = curl_easy_setopt(easy, option, value); code != CURLE_OK) {
        throw std::runtime_error(std::string("curl_easy_setopt: ") + curl_easy_strerror(code));
    }
}

template <class Value>
void set_option(CURLM* multi, CURLMoption option, Value value) {
    if (const CURLMcode code = curl_multi_setopt(multi, option, value); code != CURLM_OK) {
        throw std::runtime_error(std::string("curl_multi_setopt: ") + curl_multi_strerror(code));
    }
}

void check(CURLMcode code) {
    if (code != CURLM_OK) {
        throw std::runtime_error(std::string("libcurl: ") + curl_multi_strerror(code));
    }
}

// One connection's worth of work: a handle that is used again, and the buffer that its payloads are written to.
struct Slot {
    std::unique_ptr<CURL, EasyCleanup> easy;
    std::vector<std::byte> buffer;
    const RawRequest* request = nullptr;
    RawReply* reply = nullptr;
    std::size_t sent = 0;
    std::size_t received = 0;
};

std::size_t read_body(char* to, std::size_t size, std::size_t count, void* user) {
    auto& slot = *static_cast<Slot*>(user);
    const std::size_t step = std::min(size * count, slot.request->body.size() - slot.sent);
    std::memcpy(to, slot.request->body.data() + slot.sent, step);
    slot.sent += step;
    return step;
}

std::size_t write_payload(char* from, std::size_t size, std::size_t count, void* user) {
    auto& slot = *static_cast<Slot*>(user);
    const std::size_t bytes = size * count;
    if (slot.request->expected_bytes == 0) {
        slot.reply->text.append(from, bytes);
    } else if (bytes > slot.buffer.size() - slot.received) {
        return 0;
    } else {
        std::memcpy(slot.buffer.data() + slot.received, from, bytes);
    }
    slot.received += bytes;
    return bytes;
}

std::size_t read_header(char* from, std::size_t size, std::size_t count, void* user) {
    constexpr std::string_view kName = "etag:";
    std::string_view line(from, size * count);
    if (line.size() > kName.size() && strncasecmp(line.data(), kName.data(), kName.size()) == 0) {
        line.remove_prefix(line.find_first_not_of(' ', kName.size()));
        static_cast<Slot*>(user)->reply->etag = line.substr(0, line.find_last_not_of("\r\n") + 1);
    }
    return size * count;
}

void check_reply(const Slot& slot, CURLcode code) {
    long status = 0;
    curl_easy_getinfo(slot.easy.get(), CURLINFO_RESPONSE_CODE, &status);
    const std::string what = slot.request->method + " " + slot.request->url + ": ";
    if (code != CURLE_OK) {
        throw std::runtime_error(what + curl_easy_strerror(code));
    }
    if (status / 100 != 2) {
        throw std::runtime_error(what + "status " + std::to_string(status) + " " + slot.reply->text);
    }
    if (slot.request->expected_bytes != 0 && slot.received != slot.request->expected_bytes) {
        throw std::runtime_error(what + std::to_string(slot.received) + " bytes came");
    }
}

}  // namespace

// Drives libcurl by epoll: unlike poll its cost does not grow with the connections that are quiet.
class RawTransfers::Loop {
public:
    explicit Loop(const RawOptions& options) : multi_(curl_multi_init()), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
        if (epoll_ < 0) {
            throw std::system_error(errno, std::generic_category(), "epoll_create1");
        }
        // Without "Expect" a body leaves at once, and an upload needs no type.
        for (const char* line : {"Expect:", "Content-Type:", "x-amz-content-sha256: UNSIGNED-PAYLOAD"}) {
            headers_.reset(curl_slist_append(headers_.release(), line));
        }
        set_option(multi_.get(), CURLMOPT_SOCKETFUNCTION, &Loop::watch_socket);
        set_option(multi_.get(), CURLMOPT_SOCKETDATA, this);
        set_option(multi_.get(), CURLMOPT_TIMERFUNCTION, &Loop::set_timer);
        set_option(multi_.get(), CURLMOPT_TIMERDATA, this);
        set_option(multi_.get(), CURLMOPT_MAXCONNECTS, static_cast<long>(options.connections));
        slots_.resize(options.connections);
        for (Slot& slot : slots_) {
            prepare(slot, options);
        }
    }
    ~Loop() {
        for (Slot& slot : slots_) {
            curl_multi_remove_handle(multi_.get(), slot.easy.get());
        }
        multi_.reset();
        close(epoll_);
    }
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    std::vector<RawReply> run(std::span<const RawRequest> requests) {
        std::vector<RawReply> replies(requests.size());
        std::size_t next = 0;
        std::size_t finished = 0;
        const auto start_next = [&](Slot& slot) {
            if (next < requests.size()) {
                start(slot, requests[next], replies[next]);
                ++next;
            }
        };
        for (Slot& slot : slots_) {
            start_next(slot);
        }
        while (finished < requests.size()) {
            wait();
            while (Slot* slot = take_finished()) {
                ++finished;
                start_next(*slot);
            }
        }
        return replies;
    }

private:
    void prepare(Slot& slot, const RawOptions& options) {
        slot.easy.reset(curl_easy_init());
        slot.buffer.resize(options.largest_payload);
        CURL* easy = slot.easy.get();
        set_option(easy, CURLOPT_PRIVATE, &slot);
        set_option(easy, CURLOPT_HTTPHEADER, headers_.get());
        set_option(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
        set_option(easy, CURLOPT_UPLOAD_BUFFERSIZE, kUploadBufferBytes);
        set_option(easy, CURLOPT_BUFFERSIZE, kReceiveBufferBytes);
        set_option(easy, CURLOPT_READFUNCTION, &read_body);
        set_option(easy, CURLOPT_READDATA, &slot);
        set_option(easy, CURLOPT_WRITEFUNCTION, &write_payload);
        set_option(easy, CURLOPT_WRITEDATA, &slot);
        set_option(easy, CURLOPT_HEADERFUNCTION, &read_header);
        set_option(easy, CURLOPT_HEADERDATA, &slot);
        set_option(easy, CURLOPT_NOSIGNAL, 1L);
        set_option(easy, CURLOPT_PROXY, "");
        if (!options.ca_bundle.empty()) {
            set_option(easy, CURLOPT_CAINFO, options.ca_bundle.c_str());
        }
    }

    void start(Slot& slot, const RawRequest& request, RawReply& reply) {
        slot.request = &request;
        slot.reply = &reply;
        slot.sent = 0;
        slot.received = 0;
        CURL* easy = slot.easy.get();
        const bool get = request.method == "GET";
        set_option(easy, CURLOPT_URL, request.url.c_str());
        set_option(easy, CURLOPT_UPLOAD, get ? 0L : 1L);
        set_option(easy, CURLOPT_HTTPGET, get ? 1L : 0L);
        set_option(easy, CURLOPT_CUSTOMREQUEST, get ? nullptr : request.method.c_str());
        set_option(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
        set_option(easy, CURLOPT_RANGE, request.range.empty() ? nullptr : request.range.c_str());
        check(curl_multi_add_handle(multi_.get(), easy));
    }

    Slot* take_finished() {
        int left = 0;
        const CURLMsg* message = curl_multi_info_read(multi_.get(), &left);
        if (message == nullptr) {
            return nullptr;
        }
        Slot* slot = nullptr;
        const CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &slot);
        check(curl_multi_remove_handle(multi_.get(), slot->easy.get()));
        check_reply(*slot, code);
        return slot;
    }

    void wait() {
        std::array<epoll_event, 64> events{};
        const int timeout =
            timer_ms_ < 0 ? kLongestWaitMs : static_cast<int>(std::min<long>(timer_ms_, kLongestWaitMs));
        const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout);
        int running = 0;
        if (count <= 0) {
            timer_ms_ = -1;
            check(curl_multi_socket_action(multi_.get(), CURL_SOCKET_TIMEOUT, 0, &running));
        }
        for (int i = 0; i < count; ++i) {
            const epoll_event& event = events[static_cast<std::size_t>(i)];
            const int ready = ((event.events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
                              ((event.events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                              ((event.events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
            check(curl_multi_socket_action(multi_.get(), event.data.fd, ready, &running));
        }
    }

    static int watch_socket(CURL* /*easy*/, curl_socket_t socket, int what, void* user, void* /*per_socket*/) {
        const auto& loop = *static_cast<Loop*>(user);
        if (what == CURL_POLL_REMOVE) {
            epoll_ctl(loop.epoll_, EPOLL_CTL_DEL, socket, nullptr);
            return 0;
        }
        epoll_event event{};
        event.data.fd = socket;
        event.events = ((what & CURL_POLL_IN) != 0 ? EPOLLIN : 0U) | ((what & CURL_POLL_OUT) != 0 ? EPOLLOUT : 0U);
        if (epoll_ctl(loop.epoll_, EPOLL_CTL_MOD, socket, &event) == 0) {
            return 0;
        }
        return errno == ENOENT ? epoll_ctl(loop.epoll_, EPOLL_CTL_ADD, socket, &event) : -1;
    }

    static int set_timer(CURLM* /*multi*/, long timeout_ms, void* user) {
        static_cast<Loop*>(user)->timer_ms_ = timeout_ms;
        return 0;
    }

    std::unique_ptr<CURLM, MultiCleanup> multi_;
    std::unique_ptr<curl_slist, HeadersCleanup> headers_;
    const int epoll_;
    long timer_ms_ = -1;
    std::vector<Slot> slots_;
};

RawTransfers::RawTransfers(const RawOptions& options) : loop_(std::make_unique<Loop>(options)) {}

RawTransfers::~RawTransfers() = default;

std::vector<RawReply> RawTransfers::run(std::span<const RawRequest> requests) {
    return loop_->run(requests);
}

}  // namespace ckptfs::bench
