// SPDX-License-Identifier: Apache-2.0
// How the frames of a committed object lie in it, so that the next commit can keep some and send the rest again.
//
// Values, not synchronised.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckptfs/codec.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "write/file_writer.h"

namespace ckptfs {

struct CommittedFrames {
    // Reads what is there, and goes on with it. An identity encoder for a plain object.
    std::shared_ptr<const FrameEncoder> encoder;
    // Nothing for a plain object.
    std::vector<FrameRecord> records;

    [[nodiscard]] bool plain() const { return encoder->identity(); }
    // Where the frame begins in the object.
    [[nodiscard]] std::uint64_t stored_offset(std::uint64_t frame) const;
};

// Looks at the end of an object. `done` is called exactly once, on any thread.
void read_committed_frames(ObjectStore& store, const Codec& codec, const std::string& key,
                           const CommittedObject& committed, std::function<void(Result<CommittedFrames>)> done);

}  // namespace ckptfs
