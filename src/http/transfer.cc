// SPDX-License-Identifier: Apache-2.0
#include "http/transfer.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "base/text.h"
#include "http/transfer_error.h"

namespace ckptfs {
namespace {

// Idle connections are closed before Amazon S3 does so (20 s, less under load): the default of connectionMaxIdleTime
// for S3 in the AWS SDK for Java 2.x.
constexpr long kMaxIdleSeconds = 5;
constexpr long kKeepAliveIdleSeconds = 30;
constexpr long kKeepAliveIntervalSeconds = 10;
// Every new connection looks the host up: libcurl caches the addresses of a lookup in one order, which would put all
// connections on one server.
constexpr long kDnsCacheSeconds = 0;
// If known addresses take the place of a lookup, only those of this transfer are used: each has its own.
constexpr long kKnownAddressesSeconds = 1;
// The smallest body whose rate is measured: less is in the kernel's buffers at once.
constexpr std::int64_t kSmallestBody = std::int64_t{1} << 20;

template <class Value>
Status set_option(CURL* easy, CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(easy, option, value);
    if (code != CURLE_OK) {
        return failure(EINVAL, format("libcurl does not accept option {}: {}", static_cast<int>(option),
                                      curl_easy_strerror(code)));
    }
    return {};
}

// Sets options until one is refused.
class OptionSetter {
public:
    explicit OptionSetter(CURL* easy) : easy_(easy) {}

    template <class Value>
    OptionSetter& set(CURLoption option, Value value) {
        if (status_) {
            status_ = set_option(easy_, option, value);
        }
        return *this;
    }
    [[nodiscard]] Status status() const { return status_; }

private:
    CURL* easy_;
    Status status_;
};

}  // namespace

std::string_view url_authority(std::string_view url) {
    const std::size_t scheme = url.find("://");
    if (scheme != std::string_view::npos) {
        url.remove_prefix(scheme + 3);
    }
    url = url.substr(0, url.find_first_of("/?#"));
    const std::size_t user = url.rfind('@');
    return user == std::string_view::npos ? url : url.substr(user + 1);
}

bool is_loopback(std::string_view authority) {
    if (authority.starts_with('[')) {
        return authority.starts_with("[::1]");
    }
    const std::string_view host = authority.substr(0, authority.find(':'));
    return host == "localhost" || host.ends_with(".localhost") || host.starts_with("127.");
}

Transfer::Transfer(HttpTransport::Id id, HttpRequest request, HttpTransport::Done done)
    : id_(id), request_(std::move(request)), authority_(url_authority(request_.url)), done_(std::move(done)) {}

Status Transfer::start(CurlEasy easy, const CurlTransportOptions& options, TransferCounters& counters,
                       CollectedBodies& bodies, SteadyTime now) {
    easy_ = std::move(easy);
    counters_ = &counters;
    collected_.begin(bodies);
    last_progress_ = now;
    started_ = now;
    if (Status status = set_connection_options(options); !status) {
        return status;
    }
    if (Status status = set_headers(); !status) {
        return status;
    }
    return set_request_options();
}

Status Transfer::set_connection_options(const CurlTransportOptions& options) {
    OptionSetter setter(easy_.get());
    setter.set(CURLOPT_NOSIGNAL, 1L)
        .set(CURLOPT_ERRORBUFFER, detail_.data())
        .set(CURLOPT_PRIVATE, static_cast<void*>(this))
        // HTTP/2 would put all parts on one connection, which Amazon S3 serves at the rate of one.
        .set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1))
        .set(CURLOPT_PROTOCOLS_STR, "http,https")
        .set(CURLOPT_FOLLOWLOCATION, 0L)
        .set(CURLOPT_SSL_VERIFYPEER, 1L)
        .set(CURLOPT_SSL_VERIFYHOST, 2L)
        .set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2))
        .set(CURLOPT_TCP_NODELAY, 1L)
        .set(CURLOPT_TCP_KEEPALIVE, 1L)
        .set(CURLOPT_TCP_KEEPIDLE, kKeepAliveIdleSeconds)
        .set(CURLOPT_TCP_KEEPINTVL, kKeepAliveIntervalSeconds)
        .set(CURLOPT_MAXAGE_CONN, kMaxIdleSeconds)
        .set(CURLOPT_DNS_CACHE_TIMEOUT, kDnsCacheSeconds)
        .set(CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L)
        // Otherwise the end of a transfer waits for its lookup, and the whole loop with it.
        .set(CURLOPT_QUICK_EXIT, 1L)
        .set(CURLOPT_UPLOAD_BUFFERSIZE, static_cast<long>(options.send_buffer))
        .set(CURLOPT_BUFFERSIZE, static_cast<long>(options.receive_buffer))
        .set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request_.connect_timeout.count()));
    if (!options.ca_bundle.empty()) {
        setter.set(CURLOPT_CAINFO, options.ca_bundle.c_str());
    }
    if (request_.bypasses_proxy || is_loopback(authority_)) {
        setter.set(CURLOPT_PROXY, "");
    }
    return setter.status();
}

Status Transfer::set_headers() {
    // An empty value removes a header that libcurl would add by itself.
    headers_.reset(curl_slist_append(nullptr, "Expect:"));
    bool complete = headers_ != nullptr && curl_slist_append(headers_.get(), "Accept:") != nullptr;
    for (const auto& [name, value] : request_.headers) {
        if (value.find_first_of("\r\n") != std::string::npos || name.find_first_of("\r\n:") != std::string::npos) {
            return failure(EINVAL, format("{}: header {} cannot be sent", authority_, name));
        }
        // "name;" is libcurl's way of asking for a header without a value.
        const std::string line = value.empty() ? name + ';' : name + ": " + value;
        complete = complete && curl_slist_append(headers_.get(), line.c_str()) != nullptr;
    }
    if (!complete) {
        return failure(ENOMEM, format("{}: out of memory", authority_));
    }
    return set_option(easy_.get(), CURLOPT_HTTPHEADER, headers_.get());
}

Status Transfer::set_request_options() {
    OptionSetter setter(easy_.get());
    setter
        .set(CURLOPT_URL, request_.url.c_str())
        // Keys may hold "..", and the signature covers the path as it is.
        .set(CURLOPT_PATH_AS_IS, 1L)
        .set(CURLOPT_PREREQFUNCTION, &Transfer::on_begin)
        .set(CURLOPT_PREREQDATA, static_cast<void*>(this))
        .set(CURLOPT_HEADERFUNCTION, &Transfer::on_header)
        .set(CURLOPT_HEADERDATA, static_cast<void*>(this))
        .set(CURLOPT_WRITEFUNCTION, &Transfer::on_write)
        .set(CURLOPT_WRITEDATA, static_cast<void*>(this));
    if (request_.method == "HEAD") {
        setter.set(CURLOPT_NOBODY, 1L);
    } else if (request_.method == "PUT" || request_.method == "POST") {
        setter.set(CURLOPT_UPLOAD, 1L)
            .set(CURLOPT_CUSTOMREQUEST, request_.method.c_str())
            .set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request_.body.size()))
            .set(CURLOPT_READFUNCTION, &Transfer::on_read)
            .set(CURLOPT_READDATA, static_cast<void*>(this))
            .set(CURLOPT_SEEKFUNCTION, &Transfer::on_seek)
            .set(CURLOPT_SEEKDATA, static_cast<void*>(this));
    } else {
        setter.set(CURLOPT_HTTPGET, 1L).set(CURLOPT_CUSTOMREQUEST, request_.method.c_str());
    }
    return setter.status();
}

Status Transfer::connect_to(const std::vector<std::string>& addresses) {
    if (addresses.empty()) {
        return {};
    }
    const bool has_port = authority_.rfind(':') != std::string::npos;
    const char* const port = request_.url.starts_with("https:") ? ":443" : ":80";
    // With a plus they are cached like the result of a lookup, and not for good.
    std::string line = '+' + authority_ + (has_port ? "" : port);
    char separator = ':';
    for (const std::string& address : addresses) {
        const bool is_v6 = address.find(':') != std::string::npos;
        line += separator + (is_v6 ? '[' + address + ']' : address);
        separator = ',';
    }
    addresses_.reset(curl_slist_append(nullptr, line.c_str()));
    if (!addresses_) {
        return failure(ENOMEM, format("{}: out of memory", authority_));
    }
    OptionSetter setter(easy_.get());
    setter.set(CURLOPT_RESOLVE, addresses_.get()).set(CURLOPT_DNS_CACHE_TIMEOUT, kKnownAddressesSeconds);
    return setter.status();
}

void Transfer::tell_addresses(CURLcode code, KnownAddresses& known, SteadyTime now) const {
    if (request_started()) {
        long connections = 0;
        const char* address = nullptr;
        curl_easy_getinfo(easy_.get(), CURLINFO_NUM_CONNECTS, &connections);
        curl_easy_getinfo(easy_.get(), CURLINFO_PRIMARY_IP, &address);
        if (connections > 0 && address != nullptr && *address != '\0') {
            known.connected(authority_, address, addresses_ == nullptr);
        }
        return;
    }
    if (addresses_) {
        if (code == CURLE_COULDNT_CONNECT || code == CURLE_OPERATION_TIMEDOUT) {
            known.unreachable(authority_);
        }
        return;
    }
    curl_off_t looked_up = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_NAMELOOKUP_TIME_T, &looked_up);
    if (code == CURLE_COULDNT_RESOLVE_HOST || (code == CURLE_OPERATION_TIMEDOUT && looked_up == 0)) {
        known.lookup_failed(authority_, now);
    }
}

CurlEasy Transfer::release_handle() {
    if (easy_) {
        // No pointer to this transfer stays behind.
        curl_easy_reset(easy_.get());
    }
    return std::move(easy_);
}

bool Transfer::check_progress(SteadyTime now) {
    const std::int64_t moved = moved_bytes();
    was_overdue_ = is_overdue(now, moved);
    if (was_overdue_ || moved == last_moved_) {
        return !was_overdue_ && now - last_progress_ < request_.stall_timeout;
    }
    last_moved_ = moved;
    last_progress_ = now;
    return true;
}

// Blanks are progress while a store works on a Complete, and may go on when nothing works any more.
bool Transfer::is_overdue(SteadyTime now, std::int64_t moved) {
    if (head_complete_ && is_success() && request_.on_body) {
        return false;
    }
    const bool is_sent = head_complete_ || moved >= static_cast<std::int64_t>(request_.body.size());
    if (is_sent && !answer_due_ && request_.answer_timeout > Milliseconds(0)) {
        answer_due_ = now + request_.answer_timeout;
    }
    return answer_due_ && now >= *answer_due_;
}

Milliseconds Transfer::progress_interval() const {
    const bool is_limited = request_.answer_timeout > Milliseconds(0);
    const Milliseconds answer = is_limited ? request_.answer_timeout : request_.stall_timeout;
    return std::max(Milliseconds(1), std::min(request_.stall_timeout, answer) / 4);
}

// Other replies may trickle by design: blanks while a store works on a Complete or a copy.
bool Transfer::moves_body() const {
    if (request_.method == "GET") {
        return head_complete_ && is_success();
    }
    const auto size = static_cast<std::int64_t>(request_.body.size());
    if (size < kSmallestBody || head_complete_) {
        return false;
    }
    const std::int64_t moved = moved_bytes();
    // Before the first byte the connection is made, after the last one the store works.
    return moved > 0 && moved < size;
}

std::optional<RateWindow> Transfer::rate_window(SteadyTime now, Milliseconds least) {
    const std::int64_t moved = moved_bytes();
    if (!moves_body()) {
        window_begun_.reset();
        return std::nullopt;
    }
    if (!window_begun_) {
        window_begun_ = RateWindow{id_, now, now, moved};
    }
    if (now - window_begun_->begin < least) {
        return std::nullopt;
    }
    const RateWindow window{id_, window_begun_->begin, now, moved - window_begun_->bytes};
    window_begun_ = RateWindow{id_, now, now, moved};
    return window;
}

RateWindow Transfer::last_window(SteadyTime now) const {
    const RateWindow begun = window_begun_.value_or(RateWindow{id_, started_, started_, 0});
    return {id_, begun.begin, now, moved_bytes() - begun.bytes};
}

std::int64_t Transfer::moved_bytes() const {
    curl_off_t uploaded = 0;
    curl_off_t downloaded = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_SIZE_UPLOAD_T, &uploaded);
    curl_easy_getinfo(easy_.get(), CURLINFO_SIZE_DOWNLOAD_T, &downloaded);
    // Bytes in the kernel's buffer have not moved: on a slow link the send buffer alone lasts for seconds, and each
    // byte that leaves it is progress.
    int unsent = 0;
    if (socket_ == CURL_SOCKET_BAD || ioctl(socket_, SIOCOUTQ, &unsent) != 0) {
        unsent = 0;
    }
    return header_bytes_ + uploaded + downloaded - unsent;
}

bool Transfer::request_started() const {
    curl_off_t begun = 0;
    return easy_ != nullptr && curl_easy_getinfo(easy_.get(), CURLINFO_PRETRANSFER_TIME_T, &begun) == CURLE_OK &&
           begun > 0;
}

void Transfer::complete(CURLcode code) {
    long connections = 0;
    if (curl_easy_getinfo(easy_.get(), CURLINFO_NUM_CONNECTS, &connections) == CURLE_OK && connections > 0) {
        counters_->connections_opened += static_cast<std::uint64_t>(connections);
    }
    if (refused_by_receiver_) {
        fail_canceled();
        return;
    }
    if (was_repeated_) {
        Error error;
        error.errno_value = ECONNRESET;
        error.retryable = true;
        error.outcome_unknown = true;
        error.message = format("{}: the connection was closed before an answer began", authority_);
        fail(std::move(error));
        return;
    }
    if (auto error = collected_.unusable(authority_, response_.status)) {
        fail(std::move(*error));
        return;
    }
    if (code != CURLE_OK && !collected_.was_cut()) {
        long os_errno = 0;
        curl_easy_getinfo(easy_.get(), CURLINFO_OS_ERRNO, &os_errno);
        FailedTransfer failed{code, os_errno, detail_.data(), authority_, request_started()};
        failed.over_tls = request_.url.starts_with("https:");
        curl_off_t tls_time = 0;
        curl_easy_getinfo(easy_.get(), CURLINFO_APPCONNECT_TIME_T, &tls_time);
        failed.no_answer_begun = header_bytes_ == 0 && tls_time == 0;
        fail(transfer_error(failed));
        return;
    }
    succeeded_ = code == CURLE_OK;
    std::exchange(done_, nullptr)(std::move(response_));
}

void Transfer::fail(Error error) {
    std::exchange(done_, nullptr)(failure(std::move(error)));
}

void Transfer::fail_stalled() {
    Error error;
    error.errno_value = ETIMEDOUT;
    error.retryable = true;
    error.outcome_unknown = request_started();
    error.without_result = was_overdue_ ? request_.answer_timeout : request_.stall_timeout;
    const char* const what = was_overdue_ ? "the answer did not end within" : "no byte moved for";
    error.message = format("{}: {} {} ms", authority_, what, error.without_result.count());
    fail(std::move(error));
}

void Transfer::fail_crawling(double rate, double usual) {
    Error error;
    error.errno_value = ECONNABORTED;
    error.retryable = true;
    error.outcome_unknown = request_started();
    error.message = format("{}: the connection moves {:.0f} KB/s while others move {:.0f} KB/s", authority_,
                           rate / 1000, usual / 1000);
    fail(std::move(error));
}

void Transfer::fail_canceled() {
    Error error;
    error.errno_value = ECANCELED;
    error.outcome_unknown = request_started();
    error.message = format("{}: request canceled", authority_);
    fail(std::move(error));
}

// If a reused connection closes without a reply, libcurl sends the request once more by itself. What it changes would
// be changed twice, and its sender would treat the second reply as the only one.
int Transfer::on_begin(void* self, char* /*remote*/, char* /*local*/, int /*remote_port*/, int /*local_port*/) {
    auto* transfer = static_cast<Transfer*>(self);
    const HttpRequest& request = transfer->request_;
    transfer->was_repeated_ = transfer->times_sent_++ > 0 && (request.is_sent_once || request.method == "POST");
    return transfer->was_repeated_ ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

std::size_t Transfer::on_header(char* data, std::size_t size, std::size_t count, void* self) {
    auto* transfer = static_cast<Transfer*>(self);
    const std::size_t length = size * count;
    transfer->header_bytes_ += static_cast<std::int64_t>(length);
    return transfer->collected_.take_head(length) && transfer->take_header_line({data, length}) ? length : 0;
}

bool Transfer::take_header_line(std::string_view line) {
    if (head_complete_) {
        return true;  // trailers carry nothing that we ask for
    }
    if (line.starts_with("HTTP/")) {
        // A new status line follows an interim (1xx) response, or libcurl's own second attempt.
        response_ = HttpResponse{};
        long status = 0;
        curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
        response_.status = static_cast<int>(status);
        return true;
    }
    const std::string_view content = trimmed(line);
    if (!content.empty()) {
        const std::size_t colon = content.find(':');
        if (colon != std::string_view::npos) {
            response_.headers.emplace_back(lower_case(trimmed(content.substr(0, colon))),
                                           trimmed(content.substr(colon + 1)));
        }
        return true;
    }
    if (response_.status < 200) {
        return true;
    }
    head_complete_ = true;
    if (is_success() && request_.on_head && !request_.on_head(response_)) {
        refused_by_receiver_ = true;
        return false;
    }
    return true;
}

std::size_t Transfer::on_write(char* data, std::size_t size, std::size_t count, void* self) {
    auto* transfer = static_cast<Transfer*>(self);
    const std::size_t length = size * count;
    transfer->counters_->bytes_received.fetch_add(length, std::memory_order_relaxed);
    return transfer->take_body(as_bytes(std::string_view(data, length))) ? length : 0;
}

bool Transfer::take_body(ByteSpan bytes) {
    if (request_.on_body && is_success()) {
        refused_by_receiver_ = !request_.on_body(bytes);
        return !refused_by_receiver_;
    }
    return collected_.take(response_, bytes, request_.max_collected_body);
}

std::size_t Transfer::on_read(char* target, std::size_t size, std::size_t count, void* self) {
    auto* transfer = static_cast<Transfer*>(self);
    const std::size_t filled = transfer->fill(std::as_writable_bytes(std::span(target, size * count)));
    transfer->counters_->bytes_sent.fetch_add(filled, std::memory_order_relaxed);
    return filled;
}

std::size_t Transfer::fill(MutableByteSpan target) {
    std::size_t filled = 0;
    const auto slices = request_.body.slices();
    while (filled < target.size() && slice_ < slices.size()) {
        const ByteSpan rest = slices[slice_].bytes.subspan(slice_offset_);
        const std::size_t take = std::min(rest.size(), target.size() - filled);
        std::memcpy(target.data() + filled, rest.data(), take);
        filled += take;
        slice_offset_ += take;
        if (slice_offset_ == slices[slice_].bytes.size()) {
            ++slice_;
            slice_offset_ = 0;
        }
    }
    return filled;
}

int Transfer::on_seek(void* self, curl_off_t offset, int origin) {
    auto* transfer = static_cast<Transfer*>(self);
    if (origin != SEEK_SET || offset < 0 || static_cast<std::uint64_t>(offset) > transfer->request_.body.size()) {
        return CURL_SEEKFUNC_FAIL;
    }
    transfer->rewind_to(static_cast<std::uint64_t>(offset));
    return CURL_SEEKFUNC_OK;
}

void Transfer::rewind_to(std::uint64_t offset) {
    const auto slices = request_.body.slices();
    slice_ = 0;
    while (slice_ < slices.size() && offset >= slices[slice_].bytes.size()) {
        offset -= slices[slice_].bytes.size();
        ++slice_;
    }
    slice_offset_ = offset;
}

}  // namespace ckptfs
