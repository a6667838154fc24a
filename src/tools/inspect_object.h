// SPDX-License-Identifier: Apache-2.0
// `ckptfs inspect`: how a file is stored, and where its bytes go.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "ckptfs/codec.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "codec/frame_report.h"

namespace ckptfs {

struct Totals {
    // Frames, or planes of sub-blocks.
    std::uint64_t count = 0;
    // Bytes in the file, and in the object.
    std::uint64_t size = 0;
    std::uint64_t stored_size = 0;

    void add(std::uint64_t more, std::uint64_t more_stored) {
        ++count;
        size += more;
        stored_size += more_stored;
    }
};

struct PlaneKey {
    unsigned width = 1;
    unsigned plane = 0;
    plane_format::Coding coding = plane_format::Coding::kRaw;

    friend bool operator<(const PlaneKey& one, const PlaneKey& other) {
        return std::tie(one.width, one.plane, one.coding) < std::tie(other.width, other.plane, other.coding);
    }
};

struct ObjectReport {
    ObjectInfo object;
    // As Codec::format_name() returns it.
    std::string format;
    // As Codec::may_have_lost_description() returns it.
    bool may_have_lost_description = false;
    // Name of the frames' checksum; empty for a plain object, of which only `size` below is set.
    std::string checksum;
    std::uint64_t size = 0;
    std::uint64_t padding = 0;
    // Indexed by FrameKind.
    std::array<Totals, kFrameKinds> kinds{};
    std::map<PlaneKey, Totals> planes;
    // Upper halves of floats that are not stored; one for each sub-block that refers to others.
    Totals references;

    [[nodiscard]] bool plain() const { return checksum.empty(); }
    [[nodiscard]] std::uint64_t frames() const;
    // Negative where the object is larger than the file.
    [[nodiscard]] double percent_saved() const;
    void add(const Frame& frame, const FrameReport& report);
};

Result<ObjectReport> inspect_object(ObjectStore& store, const Codec& codec, const std::string& key);

[[nodiscard]] const char* name_of(FrameKind kind);
[[nodiscard]] const char* name_of(plane_format::Coding coding);
// Several lines for a person.
[[nodiscard]] std::string describe(const ObjectReport& report);

}  // namespace ckptfs
