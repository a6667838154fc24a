// SPDX-License-Identifier: Apache-2.0
// Which open uploads no mount will complete any more. S3 does not say whose an upload is; mounts say that they live
// (daemon/heartbeat.h). Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ckptfs/clock.h"
#include "daemon/heartbeat.h"

namespace ckptfs {

enum class Leftover : std::uint8_t {
    // No living mount's: it can be ended.
    kAbandoned,
    kYoung,
    // It may be that of a mount that lives.
    kPerhapsInUse,
    // Of a rename that hides a directory: a mount ends it.
    kUnfinished,
    // A disk that has acknowledged files may need it to send them, however long it has been away.
    kNeededByDisk,
};
[[nodiscard]] std::string_view name_of(Leftover leftover);

// `mounts`: those that may write the upload's key. `initiated`: zero where the store does not tell; such a one may have
// begun just now.
[[nodiscard]] Leftover judge(WallTime initiated, const std::vector<SeenMount>& mounts, WallTime now,
                             Milliseconds older_than);

}  // namespace ckptfs
