// SPDX-License-Identifier: Apache-2.0
// One HTTP attempt on one libcurl handle: options, callbacks, and the outcome.
//
// Ownership: libcurl holds a pointer to the transfer, which therefore does not move, and is taken out of the multi
// handle before it is destroyed.
// Threads: used by its loop's thread only.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "http/collected_body.h"
#include "http/curl_handles.h"
#include "http/curl_transport.h"
#include "http/known_addresses.h"
#include "http/rate_judge.h"

namespace ckptfs {

// Counts of all transfers of a loop, those under way included.
struct TransferCounters {
    std::atomic<std::uint64_t> bytes_sent{0};
    std::atomic<std::uint64_t> bytes_received{0};
    std::atomic<std::uint64_t> connections_opened{0};
};

class Transfer {
public:
    Transfer(HttpTransport::Id id, HttpRequest request, HttpTransport::Done done);
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

    [[nodiscard]] HttpTransport::Id id() const { return id_; }
    [[nodiscard]] CURL* easy() const { return easy_.get(); }
    [[nodiscard]] const std::string& authority() const { return authority_; }

    // Takes a handle and sets every option on it; an option that libcurl refuses is an Error.
    Status start(CurlEasy easy, const CurlTransportOptions& options, TransferCounters& counters,
                 CollectedBodies& bodies, SteadyTime now);
    // Makes a new connection go to one of `addresses`; if that is empty, the host is looked up. To be called after
    // start().
    Status connect_to(const std::vector<std::string>& addresses);
    // Gives the handle back for the next transfer.
    CurlEasy release_handle();

    // Which socket libcurl works on for this transfer. Sockets of idle connections are removed in the name of any
    // transfer.
    void socket_used(curl_socket_t socket) { socket_ = socket; }
    void socket_removed(curl_socket_t socket) { socket_ = socket == socket_ ? CURL_SOCKET_BAD : socket_; }
    // False once no byte has moved for the request's stall timeout, or its reply has taken longer than it may.
    bool check_progress(SteadyTime now);
    // How long until check_progress() is worth another call: a quarter of the shorter timeout.
    [[nodiscard]] Milliseconds progress_interval() const;
    // True if its rate is one of sending.
    [[nodiscard]] bool sends_body() const { return !request_.body.empty(); }
    // What the body moved since the last window, or since it was first seen to move, if that is `least` ago.
    [[nodiscard]] std::optional<RateWindow> rate_window(SteadyTime now, Milliseconds least);
    // The same for a transfer that has ended: since the last window, or since its start.
    [[nodiscard]] RateWindow last_window(SteadyTime now) const;
    [[nodiscard]] bool ends_when_crawling() const { return request_.ends_when_crawling; }
    // The receiver has all that arrived: nothing is lost when the rest is requested again.
    [[nodiscard]] bool may_go_on() const { return request_.body.empty() && request_.on_body != nullptr; }

    // Call exactly one of these, as the last thing.
    void complete(CURLcode code);
    void fail(Error error);
    void fail_stalled();
    void fail_crawling(double rate, double usual);
    void fail_canceled();
    // Passes to `known` what the transfer's end says about the addresses of its host. To be called before complete().
    void tell_addresses(CURLcode code, KnownAddresses& known, SteadyTime now) const;
    // True if the transfer has a connection, and its request may have been sent.
    [[nodiscard]] bool request_started() const;
    // True if a whole reply has come, whatever its status.
    [[nodiscard]] bool succeeded() const { return succeeded_; }

private:
    static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
    static std::size_t on_write(char* data, std::size_t size, std::size_t count, void* self);
    static std::size_t on_read(char* target, std::size_t size, std::size_t count, void* self);
    // Called by libcurl before each time that it sends the request.
    static int on_begin(void* self, char* remote, char* local, int remote_port, int local_port);
    static int on_seek(void* self, curl_off_t offset, int origin);

    Status set_connection_options(const CurlTransportOptions& options);
    Status set_request_options();
    Status set_headers();
    bool take_header_line(std::string_view line);
    bool take_body(ByteSpan bytes);
    std::size_t fill(MutableByteSpan target);
    void rewind_to(std::uint64_t offset);
    [[nodiscard]] bool is_success() const { return response_.status >= 200 && response_.status < 300; }
    // True if a body is moving that is large enough to measure its rate.
    [[nodiscard]] bool moves_body() const;
    [[nodiscard]] std::int64_t moved_bytes() const;
    [[nodiscard]] bool is_overdue(SteadyTime now, std::int64_t moved);

    const HttpTransport::Id id_;
    const HttpRequest request_;
    const std::string authority_;
    HttpTransport::Done done_;

    CurlEasy easy_;
    CurlHeaders headers_;
    // Addresses that take the place of a lookup.
    CurlHeaders addresses_;
    std::array<char, CURL_ERROR_SIZE> detail_{};
    TransferCounters* counters_ = nullptr;

    HttpResponse response_;
    CollectedBody collected_;
    bool head_complete_ = false;
    bool refused_by_receiver_ = false;
    int times_sent_ = 0;
    // libcurl was about to send the request again, because the connection closed without a reply.
    bool was_repeated_ = false;
    bool succeeded_ = false;

    std::size_t slice_ = 0;
    std::size_t slice_offset_ = 0;

    curl_socket_t socket_ = CURL_SOCKET_BAD;
    std::int64_t header_bytes_ = 0;
    std::int64_t last_moved_ = 0;
    SteadyTime last_progress_{};
    SteadyTime started_{};
    // When the reply is overdue; empty until the request has been sent.
    std::optional<SteadyTime> answer_due_;
    bool was_overdue_ = false;
    // Begin of the current rate window; empty until a body is seen to move.
    std::optional<RateWindow> window_begun_;
};

// host[:port] of an http(s) URL: what error messages name.
[[nodiscard]] std::string_view url_authority(std::string_view url);
// localhost, 127.0.0.0/8, [::1]: never reached through a proxy.
[[nodiscard]] bool is_loopback(std::string_view authority);

}  // namespace ckptfs
