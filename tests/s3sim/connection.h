// SPDX-License-Identifier: Apache-2.0
#pragma once

// One HTTP/1.1 connection: head, body, reply, again. Lives on one event loop's thread and is used by it alone.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "event_loop.h"
#include "exchange.h"
#include "stream.h"
#include "traffic_shaper.h"

namespace ckptfs::s3sim {

class Connection final : public EventLoop::Handler {
public:
    // All must outlive the connection. `scratch` is shared by the connections of one loop.
    struct Environment {
        EventLoop& loop;
        Application& application;
        ChunkPool& pool;
        TrafficShaper& shaper;
        std::span<std::byte> scratch;
        // Called once when the connection is over; it must not be destroyed before the call stack has unwound.
        std::function<void(Connection&)> retire;
    };

    Connection(Environment& environment, std::unique_ptr<Stream> stream);
    ~Connection() override;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void on_ready(std::uint32_t events) override;
    void on_wake() override;

    void release_hung();
    // Closes if nothing has moved for longer than the phase allows.
    void close_if_idle(TimePoint now, Duration idle_timeout);

private:
    enum class Phase { kHead, kBody, kReply, kHanging, kDraining, kClosed };
    enum class Step { kAgain, kBlocked, kYield };

    void drive();
    Step step();
    Step read_head();
    Step receive_body();
    Step send_reply();
    Step drain();

    void begin_request(HttpRequest request);
    void send_continue();
    void start_reply(ReplyPlan plan);
    Step send_segment(const ByteChain& bytes);
    void tell_before_last(std::uint64_t left);
    IoResult send_some(const ByteChain& bytes, std::uint64_t most);
    void schedule_segment();
    void end_exchange();
    void end_with(Ending ending);
    void close_now();
    // Whether bytes may move now; if not, a wake is due when they may.
    bool granted(Pacer& own, SharedPacer& total, std::uint64_t wanted);
    void moved(std::size_t bytes);

    Environment& env_;
    std::unique_ptr<Stream> stream_;
    EventLoop::HandlerId id_;
    const bool from_loopback_;

    Phase phase_ = Phase::kHead;
    bool readable_ = true;
    bool writable_ = true;
    bool peer_finished_ = false;
    bool keep_alive_ = true;
    TimePoint now_;
    TimePoint last_activity_;
    std::uint64_t left_in_turn_ = 0;

    std::string received_;  // bytes of the next head, and what came along with it
    std::unique_ptr<Exchange> exchange_;
    std::optional<BodyReceiver> body_;
    ReplyPlan reply_;
    std::size_t segment_ = 0;
    TimePoint segment_at_;
    std::size_t slice_ = 0;  // position in the segment
    std::size_t slice_offset_ = 0;
    std::uint64_t segment_sent_ = 0;
    Transferred transferred_;

    Pacer pacer_;
    std::uint64_t grant_ = 0;  // bytes that may move from grant_at_ on
    TimePoint grant_at_;
};

}  // namespace ckptfs::s3sim
