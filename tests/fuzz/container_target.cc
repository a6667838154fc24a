// SPDX-License-Identifier: Apache-2.0
// Containers are read from objects that anybody may have written: the table, and where frames begin.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/container.h"
#include "require.h"

namespace ckptfs {
namespace {

template <class T>
void check_failure(const Result<T>& result) {
    CKPTFS_REQUIRE(result || (result.error().errno_value == EIO && !result.error().message.empty()));
}

void check_frames(const FrameTable& table, std::uint64_t object_size) {
    std::uint64_t offset = 0;
    std::uint64_t stored_offset = 0;
    for (std::uint64_t index = 0; index < table.records().size(); ++index) {
        const Frame frame = table.frame(index);
        CKPTFS_REQUIRE(frame.offset == offset && frame.size > 0 && frame.size <= kFrameSize);
        CKPTFS_REQUIRE(frame.stored_offset == stored_offset);
        CKPTFS_REQUIRE(frame.stored_size > 0 && frame.stored_size <= kMaxStoredFrame);
        offset += frame.size;
        stored_offset += frame.stored_size;
    }
    CKPTFS_REQUIRE(offset == table.size() && stored_offset < object_size);
}

// `end`: the last bytes of an object of this size.
void check(ByteSpan end, std::uint64_t object_size) {
    const Result<std::uint64_t> needed = table_size(end, object_size);
    check_failure(needed);
    const Result<std::uint64_t> size = container_file_size(end.last(std::min(end.size(), kSizeTail)), object_size);
    check_failure(size);
    const Result<FrameTable> table = FrameTable::parse(end, object_size, References::kPossible);
    check_failure(table);
    if (table) {
        CKPTFS_REQUIRE(needed && *needed <= end.size() && *needed < object_size);
        CKPTFS_REQUIRE(size && *size == table->size());
        check_frames(*table, object_size);
    }
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    using namespace ckptfs;
    const ByteSpan object(reinterpret_cast<const std::byte*>(data), size);
    check(object, size);
    // As the first request on an object of a TiB finds it, whose footer may claim as much.
    check(object, std::uint64_t{1} << 40);
    const Result<std::uint64_t> skipped = leading_skippable(object);
    check_failure(skipped);
    CKPTFS_REQUIRE(!skipped || *skipped <= size);
    return 0;
}
