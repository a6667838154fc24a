// SPDX-License-Identifier: Apache-2.0
// Collects encoded frames into parts by the plan, and keeps what may still be patched: the part being filled, the first
// part of the file and the last part that was sent.
//
// Guarded by its owner's mutex.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ckptfs/bytes.h"
#include "write/part.h"
#include "write/part_plan.h"

namespace ckptfs {

class PartAssembler {
public:
    // `copied_parts`: part numbers taken by what is copied from the committed object, which is the first `begin` bytes
    // of the file and `stored_begin` of the object. `whole_blocks`: a part ends only where kFrameSize bytes of the file
    // do.
    PartAssembler(const PartPlan& plan, int copied_parts, std::uint64_t begin, std::uint64_t stored_begin,
                  bool whole_blocks);

    // 0 if it is not known.
    void set_known_size(std::uint64_t size) { known_size_ = size; }
    void set_slowdown(Slowdown slowdown) { slowdown_ = slowdown; }

    // Offset in the file where the next copied run begins: the part before it ends there, and must not be too small. 0
    // if no more is copied.
    void set_next_copy(std::uint64_t offset) { next_copy_ = offset; }
    // Skips a copied run, which ends at `end` of the file and has `stored_size` bytes of the object. It takes `parts`
    // part numbers, of which the first is returned. The part being filled is empty, and nothing is kept.
    [[nodiscard]] int pass_copied(int parts, std::uint64_t end, std::uint64_t stored_size);

    // Returns the parts that are to be sent now. A full first part waits for the byte after it, so that a file of just
    // its size is one request.
    [[nodiscard]] std::vector<Part> add(PartFrame frame);
    // Closes the part being filled, full or not; returns what is to be sent. Nothing for an empty one.
    [[nodiscard]] std::vector<Part> seal();
    // The part being filled is all there is of the file, whether or not more was sent.
    [[nodiscard]] bool is_whole() const { return open_.number() == 1 && open_.begin() == 0; }
    // Takes the part being filled as the whole object (no part has been sent, or counts).
    [[nodiscard]] Part take_whole();

    // Whether the part being filled may end where it does now.
    [[nodiscard]] bool at_boundary() const {
        return (!whole_blocks_ || open_.end() % kFrameSize == 0) && leaves_a_part(open_.end(), next_copy_);
    }
    // The part being filled, full or not, as the last of the object; it may be empty.
    [[nodiscard]] Part take_last();

    [[nodiscard]] Part& open() { return open_; }
    [[nodiscard]] const Part& open() const { return open_; }
    [[nodiscard]] std::uint64_t end() const { return open_.end(); }

    // Whether all bytes from `offset` to the smaller of `end` and end() are still here.
    [[nodiscard]] bool holds(std::uint64_t offset, std::uint64_t end) const;
    // Whether these bytes can be changed, too: they do not touch so many frames of one part that it could not be
    // encoded as a whole, and no frame that is no longer here refers to them.
    [[nodiscard]] bool patchable(std::uint64_t offset, std::uint64_t end) const;
    // Whether frames that can no longer be encoded again refer to any of these bytes.
    [[nodiscard]] bool referred_to(std::uint64_t offset, std::uint64_t end) const;
    // The lowest offset from which everything up to the end can still be changed.
    [[nodiscard]] std::uint64_t patchable_from() const;
    void patch(std::uint64_t offset, const Payload& bytes);
    // Kept parts that were patched after they had been sent; they must be sent again.
    [[nodiscard]] std::vector<Part> take_patched();

    // Whether the file can be cut at `end`: the bytes of the part that is cut are still here.
    [[nodiscard]] bool can_cut(std::uint64_t end) const;
    // Drops everything from `end` on. Returns the beginning of the frame that was cut, to be filled further. Parts with
    // numbers from open().number() on have to be forgotten.
    Payload cut(std::uint64_t end);

    // Memory held by parts that have been sent and are kept for patches only.
    [[nodiscard]] std::uint64_t kept_bytes() const;
    [[nodiscard]] std::vector<FrameBytes> kept_in_memory() const;
    // The frame's bytes are on the disk now. Returns what held them in memory; nothing if it has changed or is gone.
    [[nodiscard]] Payload stage(const FrameBytes& frame);
    // Releases the kept parts; returns those that must be sent again because they were patched.
    [[nodiscard]] std::vector<Part> drop_kept();

    // Bytes that are no longer needed, to be freed where no mutex is held.
    [[nodiscard]] std::vector<Part> take_discarded() { return std::exchange(discarded_, {}); }

private:
    struct Kept {
        Part part;
        bool patched = false;
    };

    [[nodiscard]] bool full() const;
    // Whether the part could still be prepared, in the memory that is reserved for that, if these bytes changed.
    [[nodiscard]] bool may_change(const Part& part, std::uint64_t offset, std::uint64_t end) const;
    void seal_into(std::vector<Part>& parts);
    void discard(std::optional<Kept>& place);
    // Notes what the frames of a part that is about to be released refer to.
    void keep_references(const Part& part);
    [[nodiscard]] std::vector<Kept*> kept();
    [[nodiscard]] std::vector<const Kept*> kept() const;

    const PartPlan& plan_;
    const bool first_is_copied_;
    const bool whole_blocks_;
    std::uint64_t known_size_ = 0;
    Slowdown slowdown_;
    std::uint64_t next_copy_ = 0;
    Part open_;
    std::optional<Kept> first_;
    std::optional<Kept> last_;
    // Bytes of the first part to which frames of released parts refer: end by begin, disjoint.
    std::map<std::uint64_t, std::uint64_t> referred_to_;
    std::vector<Part> discarded_;
};

}  // namespace ckptfs
