// SPDX-License-Identifier: Apache-2.0
#include "write/upload_cycle.h"

namespace ckptfs {

UploadCycle::~UploadCycle() {
    // Frames that are still being encoded hold the room itself.
    static_cast<void>(encoded_room->release());
}

}  // namespace ckptfs
