// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "write/file_writer_impl.h"

namespace ckptfs {
namespace {

// It is unknown here whether the mount was made by a command or from /etc/fstab.
constexpr std::string_view kRemedy =
    "mount with --stage GLOB (in /etc/fstab: stage=GLOB) where GLOB matches the file's name";

}  // namespace

bool FileWriterImpl::patchable(std::uint64_t offset, std::uint64_t end) const {
    return offset >= cycle_->sequencer.open_offset() ||
           cycle_->assembler->patchable(offset, std::min(end, cycle_->sequencer.open_offset()));
}

void FileWriterImpl::patch(std::uint64_t offset, const Slice& slice) {
    const std::uint64_t open = cycle_->sequencer.open_offset();
    Payload bytes;
    bytes.append(slice);
    bytes = bytes.subrange(0, cycle_->sequencer.end() - offset);
    if (cycle_->history) {
        cycle_->history->forget(offset, offset + bytes.size());
    }
    if (offset < open) {
        cycle_->assembler->patch(offset, bytes.subrange(0, open - offset));
    }
    const std::uint64_t from = std::max(offset, open);
    if (from < offset + bytes.size()) {
        discard(cycle_->sequencer.patch(from, bytes.subrange(from - offset, bytes.size())));
    }
}

Error FileWriterImpl::out_of_order(std::uint64_t offset, std::uint64_t size) const {
    if (cycle_->assembler->referred_to(offset, offset + size)) {
        return failure(
                   EOPNOTSUPP,
                   format(
                       "write {}: {} bytes at offset {} would change bf16 weights of which fp32 weights that are "
                       "already in the store only have the difference; {}, write it in order, or with --compress none",
                       escaped(key_), size, offset, kRemedy))
            .value();
    }
    if (cycle_->assembler->holds(offset, offset + size)) {
        return failure(EOPNOTSUPP, format("write {}: {} bytes at offset {} would change more of a compressed part than "
                                          "memory can hold; {}, write it in order, or use a larger --max-memory",
                                          escaped(key_), size, offset, kRemedy))
            .value();
    }
    return failure(EOPNOTSUPP,
                   format("write {}: {} bytes at offset {} lie before {}, from where bytes can still be changed (the "
                          "file ends at {}); {}, or write it in order",
                          escaped(key_), size, offset, cycle_->assembler->patchable_from(), size_, kRemedy))
        .value();
}

bool FileWriterImpl::cut(std::uint64_t size) {
    if (!cycle_->begun() || size >= cycle_->sequencer.end()) {
        return true;
    }
    // Frames that are being encoded or staged, and blocks that are being fetched, have to arrive first.
    if (cycle_->sequencer.under_way() > 0 || cycle_->spilling || !cycle_ready()) {
        return false;
    }
    if (size < cycle_->copy.fetch_from && !cycle_->upload) {
        end_cycle();
        return true;
    }
    if (size >= cycle_->sequencer.open_offset()) {
        discard(
            cycle_->sequencer.restart(cycle_->sequencer.open_offset(),
                                      cycle_->sequencer.open().subrange(0, size - cycle_->sequencer.open_offset())));
        return true;
    }
    if (size < cycle_->copy.fetch_from || !cycle_->assembler->can_cut(size)) {
        fail(failure(EOPNOTSUPP, format("truncate {}: the file cannot be cut at {}, because what lies before {} is "
                                        "already in the store; write it anew",
                                        escaped(key_), size, cycle_->assembler->patchable_from()))
                 .value());
        return false;
    }
    if (cycle_->history) {
        cycle_->history->forget(size, std::numeric_limits<std::uint64_t>::max());
    }
    Payload open = cycle_->assembler->cut(size);
    const std::uint64_t open_offset = size - open.size();
    discard(cycle_->sequencer.restart(open_offset, std::move(open)));
    if (cycle_->upload) {
        cycle_->upload->forget_parts_from(cycle_->assembler->open().number());
        for (auto part = cycle_->latest_sending.lower_bound(cycle_->assembler->open().number());
             part != cycle_->latest_sending.end(); ++part) {
            part->second = ++cycle_->sendings;
        }
    }
    return true;
}

void FileWriterImpl::start_over() {
    end_upload();
    end_cycle();
    kept_runs_.clear();
    kept_size_ = 0;
}

}  // namespace ckptfs
