// SPDX-License-Identifier: Apache-2.0
#include "s3/request_queue.h"

#include <algorithm>
#include <utility>

namespace ckptfs::s3 {
namespace {

constexpr int kMinConcurrency = 1;
constexpr std::size_t kLightBody = std::size_t{64} << 10;

bool has_query(const S3Request& request, std::string_view name) {
    return std::any_of(request.query.begin(), request.query.end(),
                       [name](const auto& each) { return each.first == name; });
}

bool is_copy(const S3Request& request) {
    return std::any_of(request.headers.begin(), request.headers.end(),
                       [](const auto& header) { return header.first == "x-amz-copy-source"; });
}

}  // namespace

RequestQueue::RequestQueue(int most, int light_places) : limit_(kMinConcurrency, most), light_places_(light_places) {}

void RequestQueue::push(SharedCall call) {
    auto& waiting = lane_of(*call).waiting;
    // A call that was sent before is older than any that has not been sent yet.
    if (call->attempt > 0) {
        const auto first_new =
            std::find_if(waiting.begin(), waiting.end(), [](const Waiting& each) { return each.number != 0; });
        waiting.insert(first_new, {std::move(call), 0});
    } else {
        waiting.push_back({std::move(call), ++pushed_});
    }
}

RequestQueue::Lane* RequestQueue::due_lane() {
    const int most = limit_.value();
    // If the limit is low, one place is left for bulk.
    const int for_light = std::min(light_places_, most - 1);
    // Also while more bulk requests hang than the limit allows by now.
    const bool light_has_a_place = light_.under_way < for_light;
    const bool light_may = !light_.waiting.empty() && (light_has_a_place || under_way() < most);
    const bool bulk_may = !bulk_.waiting.empty() && under_way() < most && bulk_.under_way < most - for_light;
    if (!light_may || !bulk_may) {
        return light_may ? &light_ : bulk_may ? &bulk_ : nullptr;
    }
    // Requests that fail over and over, and come first in their lane, leave every second turn to the other lane.
    if (for_light == 0 || (!light_has_a_place && light_.waiting.front().number == 0)) {
        return last_was_light_ ? &bulk_ : &light_;
    }
    return light_has_a_place || light_.waiting.front().number < bulk_.waiting.front().number ? &light_ : &bulk_;
}

SharedCall RequestQueue::next() {
    Lane* lane = due_lane();
    if (lane == nullptr) {
        return nullptr;
    }
    SharedCall call = std::move(lane->waiting.front().call);
    lane->waiting.pop_front();
    ++lane->under_way;
    last_was_light_ = lane == &light_;
    return call;
}

void RequestQueue::ended(const Call& call) {
    --lane_of(call).under_way;
}

std::vector<SharedCall> RequestQueue::drain() {
    std::vector<SharedCall> calls;
    for (Lane* lane : {&light_, &bulk_}) {
        for (Waiting& each : lane->waiting) {
            calls.push_back(std::move(each.call));
        }
        lane->waiting.clear();
    }
    return calls;
}

// Completes and copies carry little, but the store may work on them for minutes.
bool is_light(const S3Request& request) {
    if (request.method == "HEAD" || request.method == "DELETE") {
        return true;
    }
    if (request.method == "GET") {
        return request.key.empty() || !request.query.empty();
    }
    if (request.method == "POST") {
        return has_query(request, "uploads") || has_query(request, "delete");
    }
    return request.body.size() <= kLightBody && !is_copy(request);
}

}  // namespace ckptfs::s3
