// SPDX-License-Identifier: Apache-2.0
#include "s3/access_log.h"

#include <cstdint>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs::s3 {
namespace {

// The last hours of a busy mount.
constexpr std::uint64_t kMaxSize = std::uint64_t{64} << 20;
constexpr std::size_t kOldFiles = 3;

// Quotes a key so that the line can be parsed again, whatever the key contains.
std::string quoted(std::string_view text) {
    std::string quoted = "\"";
    for (const char c : escaped(text)) {
        if (c == '"' || c == '\\') {
            quoted += '\\';
        }
        quoted += c;
    }
    return quoted + "\"";
}

}  // namespace

std::string access_log_line(const Attempt& attempt) {
    std::string line =
        format("{} key={} attempt={} status={} sent={} received={} ms={:.1f}", attempt.operation, quoted(attempt.key),
               attempt.number, attempt.status, attempt.bytes_sent, attempt.bytes_received,
               std::chrono::duration<double, std::milli>(attempt.duration).count());
    if (!attempt.error.empty()) {
        line += format(" error={}", escaped(attempt.error));
    }
    if (!attempt.request_id.empty()) {
        line += format(" request={}", escaped(attempt.request_id));
    }
    return line;
}

Result<std::unique_ptr<AccessLog>> AccessLog::create(const std::string& path) {
    auto log = RotatingLog::create(path, kMaxSize, kOldFiles);
    if (!log) {
        return failure(log.error());
    }
    return std::unique_ptr<AccessLog>(new AccessLog(std::move(*log)));
}

}  // namespace ckptfs::s3
