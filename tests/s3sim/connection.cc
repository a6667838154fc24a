// SPDX-License-Identifier: Apache-2.0
#include "connection.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

namespace ckptfs::s3sim {
namespace {

constexpr std::size_t kHeadReadBytes = std::size_t{8} * 1024;
// Pieces of this size are hashed while they are still in the cache.
constexpr std::size_t kReceiveBytes = std::size_t{256} * 1024;
constexpr std::size_t kSendPieces = 16;
// After this much, other connections of the loop get their turn.
constexpr std::uint64_t kBytesPerTurn = std::uint64_t{1} << 20;
// Less than a timer can tell apart.
constexpr Duration kEarly = std::chrono::microseconds(300);
constexpr Duration kDrainFor = std::chrono::seconds(2);
constexpr Duration kStallTimeout = std::chrono::seconds(120);

bool peer_is_loopback(int fd) {
    sockaddr_in name{};
    socklen_t size = sizeof(name);
    return getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 && name.sin_family == AF_INET &&
           (ntohl(name.sin_addr.s_addr) >> 24U) == IN_LOOPBACKNET;
}

}  // namespace

Connection::Connection(Environment& environment, std::unique_ptr<Stream> stream)
    : env_(environment),
      stream_(std::move(stream)),
      id_(env_.loop.add(*this)),
      from_loopback_(peer_is_loopback(stream_->fd())),
      now_(Clock::now()),
      last_activity_(now_) {
    env_.loop.watch(id_, stream_->fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    env_.application.connection_opened();
}

Connection::~Connection() {
    if (stream_) {
        env_.loop.remove(id_);
        env_.application.connection_closed();
    }
}

void Connection::on_ready(std::uint32_t events) {
    // TLS may need to read in order to write and the other way round, so any event stirs both.
    readable_ = true;
    writable_ = true;
    peer_finished_ = peer_finished_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    drive();
}

void Connection::on_wake() {
    drive();
}

void Connection::drive() {
    now_ = Clock::now();
    left_in_turn_ = kBytesPerTurn;
    Step outcome = Step::kAgain;
    while (outcome == Step::kAgain && phase_ != Phase::kClosed) {
        outcome = step();
    }
    if (outcome == Step::kYield) {
        env_.loop.wake_soon(id_);
    }
}

Connection::Step Connection::step() {
    switch (phase_) {
        case Phase::kHead:
            return read_head();
        case Phase::kBody:
            return receive_body();
        case Phase::kReply:
            return send_reply();
        case Phase::kHanging:
            if (peer_finished_ || now_ >= segment_at_) {
                end_with(Ending::kReset);
            }
            return Step::kBlocked;
        case Phase::kDraining:
            return drain();
        case Phase::kClosed:
            break;
    }
    return Step::kBlocked;
}

Connection::Step Connection::read_head() {
    auto parsed = parse_head(received_);
    if (auto* head = std::get_if<HeadParsed>(&parsed)) {
        received_.erase(0, head->size);
        begin_request(std::move(head->request));
        return Step::kAgain;
    }
    if (const auto* malformed = std::get_if<HeadMalformed>(&parsed)) {
        keep_alive_ = false;
        start_reply(ReplyPlan{.segments = {{Duration{}, env_.application.malformed(malformed->reason)}},
                              .ending = Ending::kClose,
                              .hang_for = {},
                              .bytes_per_second = {}});
        return Step::kAgain;
    }
    if (!readable_) {
        return Step::kBlocked;
    }
    const std::size_t before = received_.size();
    received_.resize(before + kHeadReadBytes);
    const IoResult result = stream_->receive(std::as_writable_bytes(std::span(received_)).subspan(before));
    received_.resize(before + result.bytes);
    if (result.status == IoStatus::kClosed) {
        close_now();
    } else if (result.status == IoStatus::kWouldBlock) {
        readable_ = false;
    } else {
        moved(0);
    }
    return Step::kAgain;
}

void Connection::begin_request(HttpRequest request) {
    keep_alive_ = request.keep_alive();
    const bool expects_continue = request.expects_continue();
    exchange_ = env_.application.begin(std::move(request), from_loopback_);
    transferred_ = {};
    grant_ = 0;
    const RequestPlan& plan = exchange_->plan();
    if (plan.refuse_body) {
        keep_alive_ = false;
        start_reply(exchange_->reply({}));
        return;
    }
    pacer_ = Pacer(plan.bytes_per_second.value_or(env_.shaper.per_connection()));
    pacer_.restart(now_);
    body_.emplace(plan.body, env_.pool, env_.scratch);
    phase_ = Phase::kBody;
    if (expects_continue && received_.empty() && !body_->complete()) {
        send_continue();
    }
    const std::size_t taken = body_->feed(std::as_bytes(std::span(received_)));
    received_.erase(0, taken);
}

void Connection::send_continue() {
    // Nothing else is on its way out, so this fits the socket's buffer; were it lost, clients go on after a second.
    static const ByteChain line = ByteChain::from_string("HTTP/1.1 100 Continue\r\n\r\n");
    slice_ = 0;
    slice_offset_ = 0;
    send_some(line, line.size());
}

Connection::Step Connection::receive_body() {
    const RequestPlan& plan = exchange_->plan();
    while (!body_->complete()) {
        if (plan.stop_after && body_->wire_bytes() >= *plan.stop_after) {
            end_with(plan.stop);
            return Step::kAgain;
        }
        if (left_in_turn_ == 0) {
            return Step::kYield;
        }
        if (!readable_ || !granted(pacer_, env_.shaper.inbound(), body_->wire_bytes_left().value_or(kReceiveBytes))) {
            return Step::kBlocked;
        }
        const std::span<std::byte> buffer =
            body_->buffer(static_cast<std::size_t>(std::min<std::uint64_t>(grant_, kReceiveBytes)));
        const IoResult result = stream_->receive(buffer);
        if (result.status == IoStatus::kClosed) {
            close_now();
            return Step::kBlocked;
        }
        if (result.status == IoStatus::kWouldBlock) {
            readable_ = false;
            continue;
        }
        moved(result.bytes);
        const std::size_t taken = body_->received(result.bytes);
        const std::span<const std::byte> rest = std::span<const std::byte>(buffer).subspan(taken, result.bytes - taken);
        received_.append(reinterpret_cast<const char*>(rest.data()), rest.size());
    }
    transferred_.in = body_->wire_bytes();
    ReceivedBody body = body_->take();
    body_.reset();
    start_reply(exchange_->reply(std::move(body)));
    return Step::kAgain;
}

void Connection::start_reply(ReplyPlan plan) {
    reply_ = std::move(plan);
    body_.reset();
    phase_ = Phase::kReply;
    pacer_ = Pacer(reply_.bytes_per_second.value_or(env_.shaper.per_connection()));
    segment_ = 0;
    schedule_segment();
}

void Connection::schedule_segment() {
    slice_ = 0;
    slice_offset_ = 0;
    segment_sent_ = 0;
    grant_ = 0;
    segment_at_ = now_;
    if (segment_ < reply_.segments.size() && reply_.segments[segment_].wait > Duration{}) {
        segment_at_ = now_ + reply_.segments[segment_].wait;
        env_.loop.wake_at(id_, segment_at_);
    }
    pacer_.restart(segment_at_);
}

Connection::Step Connection::send_reply() {
    while (segment_ < reply_.segments.size()) {
        if (now_ + kEarly < segment_at_) {
            return Step::kBlocked;
        }
        const ByteChain& bytes = reply_.segments[segment_].bytes;
        if (segment_sent_ < bytes.size()) {
            if (const Step outcome = send_segment(bytes); outcome != Step::kAgain) {
                return outcome;
            }
        }
        if (phase_ != Phase::kReply) {
            return Step::kAgain;
        }
        ++segment_;
        schedule_segment();
    }
    const Ending ending = reply_.ending;
    end_with(ending == Ending::kKeepAlive && !keep_alive_ ? Ending::kClose : ending);
    return Step::kAgain;
}

Connection::Step Connection::send_segment(const ByteChain& bytes) {
    while (segment_sent_ < bytes.size()) {
        if (left_in_turn_ == 0) {
            return Step::kYield;
        }
        if (!writable_ || !granted(pacer_, env_.shaper.outbound(), bytes.size() - segment_sent_)) {
            return Step::kBlocked;
        }
        tell_before_last(bytes.size() - segment_sent_);
        const IoResult result = send_some(bytes, grant_);
        if (result.status == IoStatus::kClosed) {
            close_now();
            return Step::kAgain;
        }
        if (result.status == IoStatus::kWouldBlock) {
            writable_ = false;
            continue;
        }
        segment_sent_ += result.bytes;
        transferred_.out += result.bytes;
        moved(result.bytes);
    }
    return Step::kAgain;
}

void Connection::tell_before_last(std::uint64_t left) {
    const bool goes_on = reply_.ending == Ending::kHang || reply_.ending == Ending::kReset;
    if (exchange_ && !goes_on && grant_ >= left && segment_ + 1 == reply_.segments.size()) {
        exchange_->transferred({transferred_.in, transferred_.out + left});
    }
}

IoResult Connection::send_some(const ByteChain& bytes, std::uint64_t most) {
    std::array<iovec, kSendPieces> pieces{};
    std::size_t count = 0;
    std::size_t offset = slice_offset_;
    for (std::size_t i = slice_; i < bytes.slice_count() && count < pieces.size() && most > 0; ++i) {
        const Slice& slice = bytes.slice(i);
        const auto take = static_cast<std::size_t>(std::min<std::uint64_t>(slice.size - offset, most));
        // iovec serves both directions and so is not const.
        pieces[count++] = {const_cast<std::byte*>(slice.data.get()) + offset, take};
        most -= take;
        offset = 0;
    }
    const IoResult result = stream_->send(std::span(pieces).first(count));
    std::size_t left = result.bytes;
    while (left > 0) {
        const std::size_t step = std::min(left, bytes.slice(slice_).size - slice_offset_);
        left -= step;
        slice_offset_ += step;
        if (slice_offset_ == bytes.slice(slice_).size) {
            ++slice_;
            slice_offset_ = 0;
        }
    }
    return result;
}

bool Connection::granted(Pacer& own, SharedPacer& total, std::uint64_t wanted) {
    if (grant_ == 0) {
        grant_ = std::min(wanted, own.quantum());
        grant_at_ = std::max(own.reserve(grant_, now_), total.reserve(grant_, now_));
        if (grant_at_ > now_ + kEarly) {
            env_.loop.wake_at(id_, grant_at_);
        }
    }
    return grant_at_ <= now_ + kEarly;
}

void Connection::moved(std::size_t bytes) {
    last_activity_ = now_;
    grant_ -= std::min<std::uint64_t>(grant_, bytes);
    left_in_turn_ -= std::min<std::uint64_t>(left_in_turn_, bytes);
}

void Connection::end_exchange() {
    if (exchange_) {
        exchange_->transferred(transferred_);
        exchange_.reset();
    }
    reply_ = {};
    body_.reset();
}

void Connection::end_with(Ending ending) {
    switch (ending) {
        case Ending::kKeepAlive:
            end_exchange();
            phase_ = Phase::kHead;
            break;
        case Ending::kClose:
            end_exchange();
            stream_->finish_sending();
            phase_ = Phase::kDraining;
            last_activity_ = now_;
            break;
        case Ending::kReset:
            stream_->reset_on_close();
            close_now();
            break;
        case Ending::kHang:
            exchange_->hang();
            phase_ = Phase::kHanging;
            segment_at_ = reply_.hang_for ? now_ + *reply_.hang_for : TimePoint::max();
            if (reply_.hang_for) {
                env_.loop.wake_at(id_, segment_at_);
            }
            break;
    }
}

Connection::Step Connection::drain() {
    // Closing a socket with unread input would reset it and could take the reply along.
    while (readable_) {
        const IoResult result = stream_->receive(env_.scratch);
        if (result.status == IoStatus::kClosed) {
            close_now();
            return Step::kBlocked;
        }
        readable_ = result.status == IoStatus::kMoved;
    }
    return Step::kBlocked;
}

void Connection::close_now() {
    if (phase_ == Phase::kClosed) {
        return;
    }
    end_exchange();
    phase_ = Phase::kClosed;
    env_.loop.remove(id_);
    stream_.reset();
    env_.application.connection_closed();
    env_.retire(*this);
}

void Connection::release_hung() {
    if (phase_ == Phase::kHanging) {
        end_with(Ending::kReset);
    }
}

void Connection::close_if_idle(TimePoint now, Duration idle_timeout) {
    const Duration idle = now - last_activity_;
    const bool at_rest = phase_ == Phase::kHead;
    const bool stalled = phase_ == Phase::kBody || (phase_ == Phase::kReply && !writable_);
    if ((at_rest && idle > idle_timeout) || (stalled && idle > kStallTimeout) ||
        (phase_ == Phase::kDraining && idle > kDrainFor)) {
        close_now();
    }
}

}  // namespace ckptfs::s3sim
