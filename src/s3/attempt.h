// SPDX-License-Identifier: Apache-2.0
// How one attempt of one request ended: what statistics and the access log are made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ckptfs/clock.h"

namespace ckptfs::s3 {

// Valid only during the call of ended().
struct Attempt {
    // "UploadPart"
    std::string_view operation;
    std::string_view key;
    // Counts the attempts of this operation, from 1.
    int number = 1;
    // 0 if no complete response came.
    int status = 0;
    // S3's code, else errno's name; empty for a success.
    std::string_view error;
    std::string_view request_id;
    // The attempt may have taken effect although it failed.
    bool outcome_unknown = false;
    // Bytes of the bodies, without headers.
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    Microseconds duration{0};
    // When the store replied, by its own clock; empty if it did not.
    std::optional<WallTime> server_time{};
};

// Threads: ended() is called from any thread, several at a time, and must not block.
class AttemptObserver {
public:
    virtual ~AttemptObserver() = default;
    virtual void ended(const Attempt& attempt) = 0;
};

}  // namespace ckptfs::s3
