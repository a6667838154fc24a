// SPDX-License-Identifier: Apache-2.0
// One line per attempt, for support cases: the operation, the key, how it ended, and the store's request id.
#pragma once

#include <memory>
#include <string>

#include "base/rotating_log.h"
#include "ckptfs/status.h"
#include "s3/attempt.h"

namespace ckptfs::s3 {

// `UploadPart key="run/model.pt" attempt=1 status=200 sent=16777216 received=0 ms=212.3 request=4442587FB7D0A2F9`, with
// error=CODE if it failed. Pure.
[[nodiscard]] std::string access_log_line(const Attempt& attempt);

class AccessLog final : public AttemptObserver {
public:
    static Result<std::unique_ptr<AccessLog>> create(const std::string& path);
    void ended(const Attempt& attempt) override { log_->write(access_log_line(attempt)); }

private:
    explicit AccessLog(std::unique_ptr<RotatingLog> log) : log_(std::move(log)) {}

    const std::unique_ptr<RotatingLog> log_;
};

}  // namespace ckptfs::s3
