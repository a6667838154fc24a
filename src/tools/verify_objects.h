// SPDX-License-Identifier: Apache-2.0
// `ckptfs verify`: reads everything below a prefix, and checks every frame of what is compressed.
//
// A plain object has no checksums: it is sound if all of it can be read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ckptfs/codec.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

// What is wrong with one object; or why the objects could not be listed, after damage was found.
struct ObjectProblem {
    std::string key;
    // False if the store did not return it, or its format is not known to this version.
    bool damaged = false;
    // The first damaged frame, if the object was sound enough to have frames, and the number of damaged frames.
    std::optional<std::uint64_t> frame;
    std::uint64_t damaged_frames = 0;
    // Names the key and the frame.
    std::string why;
};

struct VerifyTotals {
    std::uint64_t objects = 0;
    // Bytes of files, as far as they were read.
    std::uint64_t size = 0;
    std::uint64_t damaged = 0;
    std::uint64_t not_checked = 0;
};

// Both are called by one thread at a time, and must be short.
struct VerifyEvents {
    // Called once for every object that is not sound, and for keys that could not be listed.
    std::function<void(const ObjectProblem&)> problem;
    // Called now and then.
    std::function<void(const VerifyTotals&)> progress;
};

// `key`: of one object; if there is none, or the key is empty or ends in '/', everything below it. ENOENT if nothing is
// there. Objects that are removed meanwhile are skipped. Takes 15 MiB of memory at most for each of kToolThreads.
Result<VerifyTotals> verify_objects(ObjectStore& store, const Codec& codec, const std::string& key,
                                    const VerifyEvents& events);

// For a person; control characters are escaped.
[[nodiscard]] std::string describe(const ObjectProblem& problem);
[[nodiscard]] std::string describe(const VerifyTotals& totals);

// 0: all is sound; 1: something is damaged; 2: nothing is damaged, as far as could be checked.
[[nodiscard]] int exit_code(const VerifyTotals& totals);

}  // namespace ckptfs
