// SPDX-License-Identifier: Apache-2.0
// The way of a file's bytes to one commit: from the stream to the parts in the store.
//
// A writer has one at a time. It is replaced by a new one when it ends, by a commit, a failure, or a file that starts
// over: what belongs to it goes with it, and completions that come later find that theirs is no longer the writer's.
//
// Ownership: the writer's alone. Completions only refer to it: its memory is free as soon as it has ended.
// Guarded by its owner's mutex, and freed without it: waiters for memory may call back into the owner.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ckptfs/codec.h"
#include "ckptfs/object_store.h"
#include "write/encoded_room.h"
#include "write/file_writer.h"
#include "write/fill_room.h"
#include "write/frame_sequencer.h"
#include "write/part.h"
#include "write/part_assembler.h"
#include "write/part_plan.h"
#include "write/upload.h"

namespace ckptfs {

// A commit that is under way, and its waiters.
struct ActiveCommit {
    std::vector<FileWriter::CommitDone> done;
    bool last_frame_cut = false;
    bool parts_sent = false;
    // The last part of a container, all but its tail, which needs to know of all others.
    std::optional<Part> last_part;
    bool tail_sent = false;
    bool publishing = false;
    // Of the object.
    std::uint64_t stored_size = 0;
};

struct UploadCycle {
    UploadCycle() = default;
    ~UploadCycle();
    UploadCycle(const UploadCycle&) = delete;
    UploadCycle& operator=(const UploadCycle&) = delete;

    // The stream takes bytes, or what it begins with is being fetched.
    [[nodiscard]] bool begun() const { return assembler.has_value(); }

    // Something of what was committed is being asked for.
    bool fetching = false;

    std::shared_ptr<const FrameEncoder> encoder;
    // What frames may refer to; none where they never do.
    std::shared_ptr<FrameHistory> history;
    CopyPlan copy;
    FrameSequencer sequencer;
    // Absent before the stream begins.
    std::optional<PartAssembler> assembler;
    FillRoom room;
    // Shared with what is being encoded.
    std::shared_ptr<EncodedRoom> encoded_room = std::make_shared<EncodedRoom>();
    // Of the container's frames, those of copied ones included.
    std::vector<FrameRecord> records;

    std::shared_ptr<Upload> upload;
    int parts_under_way = 0;
    // Of them, those that are not yet encoded.
    int parts_being_prepared = 0;
    // The latest sending of each part number that has been sent before or may overtake: earlier ones are left out.
    std::uint64_t sendings = 0;
    std::map<int, std::uint64_t> latest_sending;

    // For the choice of the writer that gives memory up.
    std::uint64_t holds_since = 0;
    bool spilling = false;
    bool spill_when_encoded = false;
    int sent_early = 0;

    std::optional<ActiveCommit> commit;
};

}  // namespace ckptfs
