// SPDX-License-Identifier: Apache-2.0
// Makes one acknowledged change in the bucket.
//
// A change that may have been made already, by an earlier mount or by a request whose reply was lost, is looked for
// first, by the write ID that its object carries or by its bytes: made twice, it could replace what another mount has
// written since, or be refused because it is there.
//
// Ownership: the environment outlives all changes under way. Threads: any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "writeback/body_read.h"
#include "writeback/overlay.h"

namespace ckptfs {

struct SendEnvironment {
    ObjectStore& store;
    PieceLoader& loader;
};

// Whether the object `there` was made by the change: by write ID; for a copy without one, by its source's ETag.
[[nodiscard]] bool is_made(const UnsentChange& change, const ObjectInfo& there);

// Looks whether a change that may have been made was: calls back with its object's ETag, or none.
void find_made(const SendEnvironment& environment, const std::shared_ptr<const HeldChange>& held,
               StoreDone<std::optional<std::string>> done);

// Makes the change unless it was made. Calls back with the ETag that the store gave, empty for a removal. ETags in
// `held` are those that the store knows. A failure leaves nothing in the bucket, unless its outcome is unknown.
void send_change(const SendEnvironment& environment, std::shared_ptr<const HeldChange> held,
                 StoreDone<std::string> done);

}  // namespace ckptfs
