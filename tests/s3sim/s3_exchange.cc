// SPDX-License-Identifier: Apache-2.0
#include "s3_exchange.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <utility>

#include "operations.h"
#include "request_checks.h"
#include "simulator.h"

namespace ckptfs::s3sim {
namespace {

constexpr Duration kBlankEvery = std::chrono::milliseconds(100);

bool is_part_upload(Operation operation) {
    return operation == Operation::kUploadPart || operation == Operation::kUploadPartCopy;
}

Duration milliseconds(double ms) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
}

std::string new_request_id() {
    static std::atomic<std::uint64_t> last{0};
    std::string digits = std::to_string(++last);
    return "SIM" + std::string(13 - std::min<std::size_t>(digits.size(), 13), '0') + digits;
}

ByteChain joined(std::string head, const ByteChain& body) {
    ByteChain bytes = ByteChain::from_string(std::move(head));
    bytes.append(body);
    return bytes;
}

// In the transfer encoding "chunked"; nothing for nothing, as an empty chunk would be the end.
std::string chunk_of(const std::string& text) {
    if (text.empty()) {
        return {};
    }
    std::array<char, 24> size{};
    const int digits = std::snprintf(size.data(), size.size(), "%zx\r\n", text.size());
    return std::string(size.data(), static_cast<std::size_t>(digits)) + text + "\r\n";
}

Outcome<void> check_received(const ReceivedBody& body) {
    switch (body.failure) {
        case BodyFailure::kNone:
            return {};
        case BodyFailure::kOutOfMemory:
            return fail("SlowDown", "The simulator's memory is full (--max-memory).");
        case BodyFailure::kTooLarge:
            return fail("EntityTooLarge");
        case BodyFailure::kBroken:
            break;
    }
    return fail("IncompleteBody", "The request body terminated unexpectedly");
}

Outcome<void> check_decoded_length(const HttpRequest& request, const ReceivedBody& body) {
    const auto header = request.header("x-amz-decoded-content-length");
    if (header && parse_number(*header) != body.bytes.size()) {
        return fail("IncompleteBody");
    }
    return {};
}

class S3Exchange final : public Exchange {
public:
    S3Exchange(Simulator& simulator, HttpRequest request);
    ~S3Exchange() override;
    S3Exchange(const S3Exchange&) = delete;
    S3Exchange& operator=(const S3Exchange&) = delete;

    const RequestPlan& plan() const override { return plan_; }
    ReplyPlan reply(ReceivedBody body) override;
    void hang() override;
    void transferred(const Transferred& bytes) override;

private:
    void admit(HttpRequest http);
    void plan_body();
    void plan_body_fault();

    Outcome<S3Reply> outcome(ReceivedBody body);
    Outcome<S3Reply> perform_operation(ReceivedBody body);
    void perform_late(ReceivedBody body);
    S3Reply settle(Outcome<S3Reply> result);
    ReplyPlan plan_reply(const S3Reply& reply);
    void apply_reply_fault(ReplyPlan& plan, const S3Reply& reply, std::size_t head_size);
    ReplyPlan plan_blanks(const S3Reply& reply);
    Duration latency(const S3Reply& reply) const;
    bool faulted(FaultAction action) const { return fault_ && fault_->fault.action == action; }

    Simulator& simulator_;
    const Model model_;
    const TimePoint began_ = Clock::now();

    S3Request request_;
    ReplyContext context_;
    std::optional<NamedFault> fault_;
    std::optional<S3Error> refusal_;  // what was wrong with the head
    CheckedRequest checked_;
    RequestPlan plan_;

    int status_ = 0;
    bool counted_ = false;
    bool hung_ = false;
};

S3Exchange::S3Exchange(Simulator& simulator, HttpRequest request) : simulator_(simulator), model_(simulator.model()) {
    context_.head_request = request.method == "HEAD";
    context_.keep_alive = request.keep_alive();
    context_.request_id = new_request_id();
    context_.resource = request.path;
    context_.region = simulator_.options().region;
    context_.now = simulator_.table().now();
    admit(std::move(request));
    simulator_.counters().request_began(is_part_upload(request_.operation));
    // Who looks at the bucket while others meet faults is neither struck nor counted as a match, nor refused.
    if (!request_.http.header("x-s3sim-spare")) {
        if (!refusal_ && !simulator_.bears(request_.http.method == "GET" || context_.head_request)) {
            refusal_ = s3_error("SlowDown");
        }
        fault_ = simulator_.faults().strike(operation_name(request_.operation), request_.key, request_.part_number());
    }
    plan_body();
}

S3Exchange::~S3Exchange() {
    if (hung_) {
        simulator_.counters().hung(-1);
    }
}

void S3Exchange::admit(HttpRequest http) {
    const auto exists = [this](std::string_view name) { return simulator_.table().bucket(name).has_value(); };
    auto routed = route(http, exists);
    if (!routed) {
        refusal_ = std::move(routed.error());
        request_.http = std::move(http);
        return;
    }
    request_ = std::move(*routed);
    if (const auto bucket = simulator_.table().bucket(request_.bucket)) {
        context_.region = bucket->region;
    }
    auto checked = check_request(request_, simulator_.table(), simulator_.verifier(), simulator_.options().region,
                                 simulator_.options().verify_checksums);
    if (checked) {
        checked_ = std::move(*checked);
        if (const auto known = apply_gaps(simulator_.options().gaps, request_); !known) {
            refusal_ = known.error();
        }
    } else {
        refusal_ = std::move(checked.error());
    }
}

void S3Exchange::plan_body() {
    if (refusal_) {
        // The body of a refused request is read and thrown away, unless the client waits to be told to send it.
        const auto framing = read_body_framing(request_.http);
        plan_.body = framing.value_or(BodyPlan{});
        plan_.body.aws_chunked = false;
        plan_.refuse_body =
            !framing || request_.http.expects_continue() || plan_.body.length.value_or(0) > kLargestPart;
        return;
    }
    plan_.body = checked_.body;
    if (fault_) {
        plan_body_fault();
    }
}

void S3Exchange::plan_body_fault() {
    const Fault& fault = fault_->fault;
    const std::uint64_t length = plan_.body.length.value_or(0);
    plan_.bytes_per_second = fault.bytes_per_second;
    if (fault.action == FaultAction::kCorrupt && takes_object_bytes(request_.operation)) {
        plan_.body.flip_bit_at = fault.bytes.value_or(length / 2);
    }
    if (!fault.bytes || length == 0) {
        return;
    }
    if (fault.action == FaultAction::kReset || fault.action == FaultAction::kClose) {
        plan_.stop_after = fault.bytes;
        plan_.stop = fault.action == FaultAction::kReset ? Ending::kReset : Ending::kClose;
    } else if (fault.action == FaultAction::kHang) {
        plan_.stop_after = fault.bytes;
        plan_.stop = Ending::kHang;
    }
}

ReplyPlan S3Exchange::reply(ReceivedBody body) {
    const S3Reply result = settle(outcome(std::move(body)));
    return faulted(FaultAction::kBlanks) ? plan_blanks(result) : plan_reply(result);
}

Outcome<S3Reply> S3Exchange::outcome(ReceivedBody body) {
    if (fault_) {
        switch (fault_->fault.action) {
            case FaultAction::kError:
            case FaultAction::kErrorInside200:
                return tl::unexpected(fault_->fault.error);
            case FaultAction::kErrorAfterwards: {
                const auto performed = perform_operation(std::move(body));
                return tl::unexpected(performed ? fault_->fault.error : performed.error());
            }
            case FaultAction::kPerformedLate:
                perform_late(std::move(body));
                return S3Reply{};
            case FaultAction::kReset:
            case FaultAction::kClose:
            case FaultAction::kHang:
                if (takes_object_bytes(request_.operation) || !fault_->fault.bytes) {
                    return S3Reply{};  // never sent, and nothing done
                }
                break;
            default:
                break;
        }
    }
    return perform_operation(std::move(body));
}

void S3Exchange::perform_late(ReceivedBody body) {
    const auto checksum = verify_checksums(checked_.claimed, body);
    if (refusal_ || !checksum) {
        return;
    }
    const Duration after = fault_->fault.time.value_or(std::chrono::seconds(1));
    auto kept = std::make_shared<ReceivedBody>(std::move(body));
    simulator_.later(after, [&simulator = simulator_, request = request_, kept, checksum = *checksum] {
        static_cast<void>(
            perform({simulator.table(), request, *kept, checksum, simulator.options().region,
                     part_rules(simulator.options().gaps), ignores_delete_conditions(simulator.options().gaps)}));
    });
}

Outcome<S3Reply> S3Exchange::perform_operation(ReceivedBody body) {
    if (refusal_) {
        return tl::unexpected(*refusal_);
    }
    for (auto checked : {check_received(body), check_decoded_length(request_.http, body)}) {
        if (!checked) {
            return tl::unexpected(std::move(checked.error()));
        }
    }
    const auto checksum = verify_checksums(checked_.claimed, body);
    if (!checksum) {
        return tl::unexpected(checksum.error());
    }
    return perform({simulator_.table(), request_, body, *checksum, simulator_.options().region,
                    part_rules(simulator_.options().gaps), ignores_delete_conditions(simulator_.options().gaps)});
}

S3Reply S3Exchange::settle(Outcome<S3Reply> result) {
    S3Reply reply = result ? std::move(*result) : error_reply(result.error(), context_);
    const bool lacks_etag =
        (request_.operation == Operation::kGetObject && simulator_.options().gaps.contains(kReadETags)) ||
        (request_.operation == Operation::kHeadObject && simulator_.options().gaps.contains(kHeadETags));
    if (lacks_etag) {
        std::erase_if(reply.headers, [](const NameValue& header) { return header.first == "ETag"; });
    }
    if (!result && (faulted(FaultAction::kErrorInside200) || faulted(FaultAction::kBlanks))) {
        reply.status = 200;
    }
    if (plan_.refuse_body) {
        context_.keep_alive = false;
    }
    status_ = reply.status;
    return reply;
}

Duration S3Exchange::latency(const S3Reply& reply) const {
    Duration wait = milliseconds(model_.latency_ms);
    if (reply.bytes_copied > 0 && model_.copy_mbps > 0) {
        wait += milliseconds(static_cast<double>(reply.bytes_copied) / (model_.copy_mbps * 1e3));
    }
    if (faulted(FaultAction::kSlow)) {
        wait += fault_->fault.time.value_or(Duration{});
    }
    return wait;
}

ReplyPlan S3Exchange::plan_reply(const S3Reply& reply) {
    std::string head = render_head(reply, context_);
    const std::size_t head_size = head.size();
    ReplyPlan plan;
    plan.segments.push_back({latency(reply), joined(std::move(head), reply.body)});
    if (fault_) {
        apply_reply_fault(plan, reply, head_size);
    }
    return plan;
}

void S3Exchange::apply_reply_fault(ReplyPlan& plan, const S3Reply& reply, std::size_t head_size) {
    const Fault& fault = fault_->fault;
    ByteChain& bytes = plan.segments.front().bytes;
    plan.bytes_per_second = fault.bytes_per_second;
    // Where in the reply's body the fault strikes; without `bytes` nothing of the reply is sent.
    const auto cut = [&] {
        bytes = fault.bytes ? bytes.range(0, head_size + *fault.bytes) : ByteChain();
        status_ = fault.bytes ? status_ : 0;
    };
    switch (fault.action) {
        case FaultAction::kReset:
            cut();
            plan.ending = Ending::kReset;
            break;
        case FaultAction::kClose:
            cut();
            plan.ending = Ending::kClose;
            break;
        case FaultAction::kHang:
            cut();
            plan.ending = Ending::kHang;
            plan.hang_for = fault.time;
            break;
        case FaultAction::kReplyLost:
        case FaultAction::kPerformedLate:
            bytes = {};
            status_ = 0;
            plan.ending = Ending::kReset;
            break;
        case FaultAction::kTruncate:
            bytes = bytes.range(
                0, reply.body.empty() ? head_size / 2 : head_size + fault.bytes.value_or(reply.body.size() / 2));
            plan.ending = Ending::kClose;
            break;
        case FaultAction::kCorrupt:
            if (!takes_object_bytes(request_.operation)) {
                bytes = with_flipped_bit(bytes, head_size + fault.bytes.value_or(reply.body.size() / 2));
            }
            break;
        default:
            break;
    }
}

ReplyPlan S3Exchange::plan_blanks(const S3Reply& reply) {
    static const ByteChain blank = ByteChain::from_string("1\r\n \r\n");
    ReplyPlan plan;
    // A document stays well-formed: its declaration comes first, then the blanks.
    const std::string document = reply.body.to_string();
    const std::size_t declaration = document.starts_with("<?xml") ? document.find('\n') + 1 : 0;
    const std::string first = render_head(reply, context_, true) + chunk_of(document.substr(0, declaration));
    plan.segments.push_back({latency(reply), ByteChain::from_string(first)});
    const Duration whole = fault_->fault.time.value_or(std::chrono::seconds(1));
    for (Duration passed = kBlankEvery; passed <= whole; passed += kBlankEvery) {
        plan.segments.push_back({kBlankEvery, blank});
    }
    const std::string last = chunk_of(document.substr(declaration)) + "0\r\n\r\n";
    plan.segments.push_back({Duration{}, ByteChain::from_string(last)});
    return plan;
}

void S3Exchange::hang() {
    hung_ = true;
    simulator_.counters().hung(1);
}

void S3Exchange::transferred(const Transferred& bytes) {
    if (std::exchange(counted_, true)) {
        return;
    }
    RequestRecord record;
    record.operation = operation_name(request_.operation);
    record.bucket = request_.bucket;
    record.key = request_.key;
    record.query = request_.http.query;
    record.range = request_.http.header_or("range", request_.http.header_or("x-amz-copy-source-range", ""));
    record.fault = fault_ ? fault_->name : "";
    record.part = request_.part_number();
    record.status = status_;
    record.bytes_in = bytes.in;
    record.bytes_out = bytes.out;
    record.began = began_;
    record.ended = Clock::now();
    simulator_.counters().request_ended(is_part_upload(request_.operation), std::move(record));
}

}  // namespace

std::unique_ptr<Exchange> make_s3_exchange(Simulator& simulator, HttpRequest request) {
    return std::make_unique<S3Exchange>(simulator, std::move(request));
}

}  // namespace ckptfs::s3sim
