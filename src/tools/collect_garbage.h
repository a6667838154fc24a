// SPDX-License-Identifier: Apache-2.0
// `ckptfs gc`: finds what is invisible and paid for: uploads that were begun and neither completed nor ended, files
// that were written out of order and never got their name, and what mounts tell each other below .ckptfs/ of failed
// files and of renames. Ends and removes what is abandoned, and the signs of mounts that are long gone.
//
// What is abandoned:
// - An upload, a hidden file: no mount that lives was there when it was begun (leftover_policy.h).
// - The record of a failed file: no mount lives at all. A mount made after the failure respects it, too; for how
//   long is an option of that mount. In its first minutes a mount is not seen; by default it respects nothing that is
//   as old.
// - The record and the names of a rename: as an upload, and no directory has a marker of that rename, so that a
//   repair would do nothing but remove them. With a marker they decide whether the source or the destination is
//   shown: they stay, for a mount to repair. A mount that takes a record over rewrites it, so it is young.
//
// Threads: blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "tools/leftover_policy.h"
#include "tools/mount_leftovers.h"

namespace ckptfs {

struct GarbageRequest {
    // Every key that begins with it.
    std::string prefix;
    Milliseconds older_than{0};
    // Else it is only reported.
    bool end = false;
    // Disks that have acknowledged files and are silent for that long are lost.
    bool forget_disks = false;
};

struct FoundLeftover {
    // Of an object the key alone.
    UploadId upload;
    // When it was begun, or the object written.
    WallTime when{};
    LeftoverKind kind = LeftoverKind::kUpload;
    Leftover state = Leftover::kYoung;
    Milliseconds age{0};
    // Of the object, or of the parts that are in the store.
    std::uint64_t size = 0;
    // Or removed.
    bool ended = false;
    // Why it was not looked at, or not ended.
    std::string problem;
};

struct GarbageTotals {
    std::uint64_t uploads = 0;
    std::uint64_t files = 0;
    // Of failures and renames.
    std::uint64_t records = 0;
    std::uint64_t size = 0;
    std::uint64_t abandoned = 0;
    std::uint64_t abandoned_size = 0;
    std::uint64_t ended = 0;
    std::uint64_t problems = 0;
    // Heartbeats of mounts that are gone.
    std::uint64_t dead_mounts = 0;
};

// `found` is called once for each, oldest first.
Result<GarbageTotals> collect_garbage(ObjectStore& store, const Clock& clock, const GarbageRequest& request,
                                      const std::function<void(const FoundLeftover&)>& found);

// A line each, without its end.
[[nodiscard]] std::string describe(const FoundLeftover& leftover);
[[nodiscard]] std::string describe(const GarbageTotals& totals);

// 1 where something could not be done.
[[nodiscard]] int exit_code(const GarbageTotals& totals);

}  // namespace ckptfs
