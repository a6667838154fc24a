// SPDX-License-Identifier: Apache-2.0
// Which open uploads no mount will complete any more. S3 does not say whose an upload is; mounts say that they live
// (heartbeat.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/clock.h"

namespace ckptfs {

// A mount, as its object below .ckptfs/mounts/ shows it.
struct SeenMount {
    std::string host;
    // Last-Modified.
    WallTime last_seen{};
    // When it was mounted, by the clock of its host; empty where it does not tell.
    std::optional<WallTime> since;
};

// The body of a heartbeat.
[[nodiscard]] std::string heartbeat_text(const std::string& host, WallTime since);
[[nodiscard]] SeenMount parse_heartbeat(std::string_view text, WallTime last_seen);

enum class Leftover : std::uint8_t {
    // No living mount's: it can be ended.
    kAbandoned,
    kYoung,
    // It may be that of a mount that lives.
    kPerhapsInUse,
    // Of a rename that hides a directory: a mount ends it.
    kUnfinished,
};
[[nodiscard]] std::string_view name_of(Leftover leftover);

[[nodiscard]] bool lives(const SeenMount& mount, WallTime now);

// `mounts`: those that may write the upload's key.
[[nodiscard]] Leftover judge(WallTime initiated, const std::vector<SeenMount>& mounts, WallTime now,
                             Milliseconds older_than);

}  // namespace ckptfs
