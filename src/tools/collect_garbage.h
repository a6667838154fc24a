// SPDX-License-Identifier: Apache-2.0
// `ckptfs gc`: finds what is invisible and paid for: uploads that were neither completed nor aborted, files that were
// written out of order and never got their name, and what mounts tell each other below .ckptfs/ of failed files, of
// renames and of unsent files. If asked, ends or removes what is abandoned, and the heartbeats of mounts that are long
// gone.
//
// What is abandoned:
// - An upload, a hidden file, a record of unsent files: no live mount was there when it was begun (leftover_policy.h).
// - The record of a failed file: there is no live mount at all. A mount made after the failure respects it, too; for
//   how long is an option of that mount. A mount is not seen in its first minutes; by default it respects nothing that
//   is as old.
// - The record and the names of a rename: as an upload, and no directory has a marker of that rename, so that a
//   repair would do nothing but remove them. With a marker they decide whether the source or the destination is
//   shown: they stay, for a mount to repair. A mount that takes a record over rewrites it, so that it is young.
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
    // All keys that begin with this are examined.
    std::string prefix;
    Milliseconds older_than{0};
    // Ends what is abandoned; otherwise it is only reported.
    bool end = false;
    // Disks that have acknowledged files and are silent for that long are lost.
    bool forget_disks = false;
};

struct FoundLeftover {
    // For an object, only the key is set.
    UploadId upload;
    // When the upload was begun, or the object written.
    WallTime when{};
    LeftoverKind kind = LeftoverKind::kUpload;
    Leftover state = Leftover::kYoung;
    Milliseconds age{0};
    // Size of the object, or of the parts that are in the store.
    std::uint64_t size = 0;
    // Whether it was ended or, for an object, removed.
    bool ended = false;
    // Why its parts could not be listed, or why it was not ended; empty for neither.
    std::string problem;
};

struct GarbageTotals {
    std::uint64_t uploads = 0;
    std::uint64_t files = 0;
    // Records of failures, of renames and of unsent files.
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

// One line each, without the line feed.
[[nodiscard]] std::string describe(const FoundLeftover& leftover);
[[nodiscard]] std::string describe(const GarbageTotals& totals);

// 1 if something could not be done.
[[nodiscard]] int exit_code(const GarbageTotals& totals);

}  // namespace ckptfs
