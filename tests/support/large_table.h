// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckptfs/object_store.h"
#include "codec/codecs.h"

namespace ckptfs::testing {

// An object that is described as a compressed file of 1 TB, with a seek table of 12 MB. Its frames hold nothing.
struct LargeTable {
    std::string content;
    Metadata metadata;
};

// So large a budget has room for 32 MiB of tables: two of them.
inline constexpr std::uint64_t kMemoryForTwoTables = std::uint64_t{128} << 20;

inline LargeTable large_table() {
    constexpr std::uint32_t kStored = 20;
    const auto codec = make_codec({"auto", {}}).value();
    const auto encoder = codec->encoder("file");
    const std::vector<FrameRecord> records(1'000'000, FrameRecord{kStored, 0, false});
    LargeTable table;
    table.content.resize(records.size() * kStored);
    table.content += encoder->tail(records, records.size() * kFrameSize).to_string();
    table.metadata = encoder->metadata(records.size() * kFrameSize);
    return table;
}

}  // namespace ckptfs::testing
