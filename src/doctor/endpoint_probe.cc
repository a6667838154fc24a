// SPDX-License-Identifier: Apache-2.0
#include "doctor/endpoint_probe.h"

#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "aws/times.h"

namespace ckptfs::doctor {
namespace {

constexpr Milliseconds kPatience{10'000};
constexpr Milliseconds kLook{50};

Result<HttpResponse> answer_to_head(HttpTransport& transport, const std::string& url,
                                    const std::function<bool()>& interrupted) {
    HttpRequest request;
    request.method = "HEAD";
    request.url = url;
    request.stall_timeout = kPatience;
    const auto promise = std::make_shared<std::promise<Result<HttpResponse>>>();
    std::future<Result<HttpResponse>> answer = promise->get_future();
    const HttpTransport::Id id =
        transport.send(std::move(request), [promise](Result<HttpResponse> got) { promise->set_value(std::move(got)); });
    while (answer.wait_for(kLook) != std::future_status::ready) {
        if (interrupted()) {
            transport.cancel(id);
            break;
        }
    }
    return answer.get();
}

}  // namespace

bool probe_endpoint(HttpTransport& transport, const Clock& clock, const std::function<bool()>& interrupted,
                    Findings& findings) {
    const WallTime before = clock.wall_now();
    const auto answer = answer_to_head(transport, findings.facts.url, interrupted);
    const WallTime after = clock.wall_now();
    if (!answer) {
        findings.add(Probe::kEndpoint, ProbeAnswer::kNo, answer.error());
        return false;
    }
    StoreFacts& facts = findings.facts;
    facts.server = answer->header("server");
    facts.bucket_region = answer->header("x-amz-bucket-region");
    findings.add(Probe::kEndpoint, ProbeAnswer::kYes);
    const auto date = parse_http_date(answer->header("date"));
    if (date) {
        // The date is somewhere within its second, and was made while we waited.
        const WallTime ours = before + (after - before) / 2;
        const auto theirs = *date + std::chrono::milliseconds(500);
        facts.clock_skew_seconds = std::chrono::duration<double>(theirs - ours).count();
        findings.add(Probe::kClock, ProbeAnswer::kYes);
    } else {
        findings.add(Probe::kClock, ProbeAnswer::kFailed, "the store does not say its time");
    }
    return true;
}

}  // namespace ckptfs::doctor
