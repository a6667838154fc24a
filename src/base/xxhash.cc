// SPDX-License-Identifier: Apache-2.0
#include "base/xxhash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(__x86_64__)
// From the library: it chooses by the processor, which inlined code cannot.
extern "C" XXH64_hash_t XXH3_64bits_dispatch(const void* input, std::size_t length);
#endif

namespace ckptfs {

std::uint64_t xxh64(ByteSpan bytes) {
    return XXH64(bytes.data(), bytes.size(), 0);
}

std::uint64_t xxh64(const Payload& payload) {
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    for (const Slice& slice : payload.slices()) {
        XXH64_update(&state, slice.bytes.data(), slice.bytes.size());
    }
    return XXH64_digest(&state);
}

std::uint64_t xxh3(std::string_view text) {
    return XXH3_64bits(text.data(), text.size());
}

std::uint64_t xxh3_long(ByteSpan bytes) {
#if defined(__x86_64__)
    return XXH3_64bits_dispatch(bytes.data(), bytes.size());
#else
    return XXH3_64bits(bytes.data(), bytes.size());
#endif
}

std::uint64_t xxh3_long(const Payload& payload) {
    if (payload.slices().size() == 1) {
        return xxh3_long(payload.slices().front().bytes);
    }
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (const Slice& slice : payload.slices()) {
        XXH3_64bits_update(&state, slice.bytes.data(), slice.bytes.size());
    }
    return XXH3_64bits_digest(&state);
}

}  // namespace ckptfs
