// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"
#include "write/upload_cycle.h"

namespace ckptfs {
namespace {

// It is unknown here whether the mount was made by a command or from /etc/fstab.
constexpr std::string_view kRemedy =
    "mount with --stage GLOB (in /etc/fstab: stage=GLOB) where GLOB matches the file's name";

}  // namespace

bool UploadCycle::patchable(std::uint64_t offset, std::uint64_t end) const {
    return offset >= sequencer_.open_offset() || assembler_->patchable(offset, std::min(end, sequencer_.open_offset()));
}

void UploadCycle::patch(std::uint64_t offset, const Slice& slice) {
    const std::uint64_t open = sequencer_.open_offset();
    Payload bytes;
    bytes.append(slice);
    bytes = bytes.subrange(0, sequencer_.end() - offset);
    if (history_) {
        history_->forget(offset, offset + bytes.size());
    }
    if (kept_) {
        owner_.outbox().add([kept = kept_, offset, end = offset + bytes.size()] { kept->forget(offset, end); });
    }
    if (offset < open) {
        assembler_->patch(offset, bytes.subrange(0, open - offset));
    }
    const std::uint64_t from = std::max(offset, open);
    if (from < offset + bytes.size()) {
        discard(sequencer_.patch(from, bytes.subrange(from - offset, bytes.size())));
    }
}

Error UploadCycle::out_of_order(std::uint64_t offset, std::uint64_t size, std::uint64_t file_size) const {
    if (assembler_->referred_to(offset, offset + size)) {
        return failure(
                   EOPNOTSUPP,
                   format("write {}: {} bytes at offset {} would change bf16 weights that fp32 weights already in the "
                          "store are encoded against; {}, write the file in order, or mount with --compress none",
                          owner_.shown_key(), size, offset, kRemedy))
            .value();
    }
    if (assembler_->holds(offset, offset + size)) {
        return failure(EOPNOTSUPP, format("write {}: {} bytes at offset {} would change more of a compressed part than "
                                          "memory can hold; {}, write it in order, or use a larger --max-memory",
                                          owner_.shown_key(), size, offset, kRemedy))
            .value();
    }
    return failure(EOPNOTSUPP,
                   format("write {}: {} bytes at offset {} lie before {}, from where bytes can still be changed (the "
                          "file ends at {}); {}, or write it in order",
                          owner_.shown_key(), size, offset, assembler_->patchable_from(), file_size, kRemedy))
        .value();
}

bool UploadCycle::cut(std::uint64_t size) {
    if (size >= sequencer_.open_offset()) {
        discard(sequencer_.restart(sequencer_.open_offset(),
                                   sequencer_.open().subrange(0, size - sequencer_.open_offset())));
        return true;
    }
    if (begins_behind(size) || !assembler_->can_cut(size)) {
        return false;
    }
    if (history_) {
        history_->forget(size, std::numeric_limits<std::uint64_t>::max());
    }
    if (kept_) {
        owner_.outbox().add([kept = kept_, size] { kept->forget(size, std::numeric_limits<std::uint64_t>::max()); });
    }
    Payload open = assembler_->cut(size);
    const std::uint64_t open_offset = size - open.size();
    discard(sequencer_.restart(open_offset, std::move(open)));
    if (upload_) {
        const int first = assembler_->open().number();
        // Through the outbox, after the parts that are on their way to the upload.
        owner_.outbox().add([upload = upload_, first] { upload->forget_parts_from(first); });
        for (auto part = latest_sending_.lower_bound(first); part != latest_sending_.end(); ++part) {
            part->second = ++sendings_;
        }
    }
    return true;
}

}  // namespace ckptfs
