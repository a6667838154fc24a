// SPDX-License-Identifier: Apache-2.0
// Which open uploads no mount will complete any more. S3 does not say whose an upload is; mounts show that they are
// alive (daemon/heartbeat.h). Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ckptfs/clock.h"
#include "daemon/heartbeat.h"

namespace ckptfs {

enum class Leftover : std::uint8_t {
    // Belongs to no live mount: it can be ended.
    kAbandoned,
    kYoung,
    // May belong to a live mount.
    kPerhapsInUse,
    // Belongs to a rename that hides a directory: a mount ends it.
    kUnfinished,
    // A disk that has acknowledged files may need it to send them, however long it has been away.
    kNeededByDisk,
};
[[nodiscard]] std::string_view name_of(Leftover leftover);

// `mounts`: those that may write the upload's key. `initiated`: zero if the store does not say; such an upload may just
// have begun.
[[nodiscard]] Leftover judge(WallTime initiated, const std::vector<SeenMount>& mounts, WallTime now,
                             Milliseconds older_than);

}  // namespace ckptfs
