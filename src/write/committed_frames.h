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
#include "write/part_plan.h"

namespace ckptfs {

struct CommittedFrame {
    // Position in the file.
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    // Position in the object.
    ByteRange range;
    std::uint32_t checksum = 0;
    bool may_refer = true;
};

struct CommittedFrames {
    // Decodes what is there, and encodes what is added. An identity encoder for a plain object.
    std::shared_ptr<const FrameEncoder> encoder;
    // Empty for a plain object.
    std::vector<FrameRecord> records;

    [[nodiscard]] bool plain() const { return encoder->identity(); }
    // Where the frame begins in the object.
    [[nodiscard]] std::uint64_t stored_offset(std::uint64_t frame) const;
    // The frame that holds this byte of a file of `size` bytes.
    [[nodiscard]] CommittedFrame frame_at(std::uint64_t offset, std::uint64_t size) const;
};

// What the next commit copies within the store of the first `kept` bytes of the file, by whole frames if it has frames:
// pieces of the object, and the offset from which the file is sent.
[[nodiscard]] CopyPlan plan_kept_copy(const CommittedFrames& frames, std::uint64_t kept, const PartPlan& plan);

// What a commit keeps of the object it starts from, if that is more than its beginning.
struct KeptContent {
    CommittedFrames frames;
    // Bytes that are kept from the beginning of the file on.
    std::uint64_t prefix = 0;
    // Runs after the prefix, in order: whole frames, or up to the end of the file, whose bytes are copied within the
    // store. At least kMinPartSize bytes that are sent precede each of them, and each takes at least as much of the
    // object.
    std::vector<FileRange> runs;
};

// Reads how the frames of an object lie in it, from its end, if it may be a container. `done` is called exactly once,
// on any thread.
void read_committed_frames(ObjectStore& store, const Codec& codec, const std::string& key,
                           const CommittedObject& committed, std::function<void(Result<CommittedFrames>)> done);

}  // namespace ckptfs
