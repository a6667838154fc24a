// SPDX-License-Identifier: Apache-2.0
// Where the parts of a file begin is read from files that anyone may have written.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "read/part_table.h"
#include "require.h"

namespace ckptfs {
namespace {

void check(const PartOffsets& parts, std::uint64_t file_size) {
    CKPTFS_REQUIRE(parts.size() <= kMaxParts);
    CKPTFS_REQUIRE(std::is_sorted(parts.begin(), parts.end()));
    CKPTFS_REQUIRE(std::adjacent_find(parts.begin(), parts.end()) == parts.end());
    CKPTFS_REQUIRE(parts.empty() || parts.back() < file_size);
}

}  // namespace
}  // namespace ckptfs

// The first byte says how much of the file is not among the bytes.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    using namespace ckptfs;
    if (size == 0) {
        return 0;
    }
    const ByteSpan bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
    const std::uint64_t file_size = bytes.size() + std::uint64_t{data[0]} * 4096;
    check(zip_records(bytes, file_size), file_size);
    check(safetensors_tensors(bytes, file_size), file_size);
    return 0;
}
