// SPDX-License-Identifier: Apache-2.0
// An HttpTransport that a function of the test answers, at once; and what it was asked.
// Threads: all functions may be called from any thread; the function runs under a lock.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "ckptfs/http.h"

namespace ckptfs::testing {

class ScriptedTransport final : public HttpTransport {
public:
    using Answer = std::function<Result<HttpResponse>(const HttpRequest&)>;

    Id send(HttpRequest request, Done done) override {
        Result<HttpResponse> answer;
        {
            const std::lock_guard lock(mutex_);
            answer = answer_(request);
            asked_.push_back(std::move(request));
        }
        done(std::move(answer));
        return 1;
    }
    void cancel(Id) override {}
    [[nodiscard]] HttpStatistics statistics() const override { return {}; }

    void answer_with(Answer answer) {
        const std::lock_guard lock(mutex_);
        answer_ = std::move(answer);
    }
    void answer_with(int status, std::string body) {
        answer_with([status, body](const HttpRequest&) { return HttpResponse{status, {}, body}; });
    }
    [[nodiscard]] std::vector<HttpRequest> asked() const {
        const std::lock_guard lock(mutex_);
        return asked_;
    }

private:
    mutable std::mutex mutex_;
    // Guarded by mutex_.
    Answer answer_ = [](const HttpRequest&) { return failure(ECONNREFUSED, "nobody listens"); };
    std::vector<HttpRequest> asked_;
};

[[nodiscard]] inline std::string header_of(const HttpRequest& request, std::string_view name) {
    for (const auto& [key, value] : request.headers) {
        if (key == name) {
            return value;
        }
    }
    return {};
}

}  // namespace ckptfs::testing
