// SPDX-License-Identifier: Apache-2.0
#include "s3sim/byte_chain.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

ByteChain chain_of(std::initializer_list<const char*> texts) {
    ByteChain chain;
    for (const char* text : texts) {
        chain.append(ByteChain::from_string(text));
    }
    return chain;
}

TEST(ByteChain, JoinsWithoutEmptySlices) {
    const ByteChain chain = chain_of({"abc", "", "de", "fghi"});
    EXPECT_EQ(chain.size(), 9U);
    EXPECT_EQ(chain.slice_count(), 3U);
    EXPECT_EQ(chain.to_string(), "abcdefghi");
}

TEST(ByteChain, CutsEveryRange) {
    const std::string all = "abcdefghi";
    const ByteChain chain = chain_of({"abc", "de", "fghi"});
    for (std::size_t offset = 0; offset <= all.size() + 1; ++offset) {
        for (std::size_t length = 0; length <= all.size() + 1; ++length) {
            const std::string expected = offset > all.size() ? "" : all.substr(offset, length);
            EXPECT_EQ(chain.range(offset, length).to_string(), expected) << offset << "+" << length;
        }
    }
}

TEST(ByteChain, RangesKeepTheirBytesAlive) {
    ByteChain range;
    {
        const ByteChain chain = chain_of({"abcdef"});
        range = chain.range(2, 2);
    }
    EXPECT_EQ(range.to_string(), "cd");
}

TEST(ByteChain, FlipsOneBit) {
    const ByteChain chain = chain_of({"aa", "aa"});
    EXPECT_EQ(with_flipped_bit(chain, 3).to_string(), "aaa`");
    EXPECT_EQ(with_flipped_bit(chain, 4).to_string(), "aaaa");
    EXPECT_EQ(chain.to_string(), "aaaa");
}

TEST(ChunkPool, UsesChunksAgain) {
    ChunkPool pool(8 * kChunkBytes);
    const std::byte* first = nullptr;
    {
        const Chunk chunk = pool.get(kChunkBytes);
        first = chunk.data.get();
        EXPECT_EQ(pool.bytes_in_use(), kChunkBytes);
    }
    EXPECT_EQ(pool.bytes_in_use(), 0U);
    EXPECT_EQ(pool.get(kChunkBytes).data.get(), first);
}

TEST(ChunkPool, KeepsItsLimit) {
    ChunkPool pool(2 * kChunkBytes);
    const Chunk first = pool.get(kChunkBytes);
    const Chunk second = pool.get(kChunkBytes);
    EXPECT_TRUE(first);
    EXPECT_TRUE(second);
    EXPECT_FALSE(pool.get(1));
}

TEST(ChunkPool, PreallocatedMemoryIsFree) {
    ChunkPool pool(std::size_t{256} << 20);
    pool.preallocate(std::size_t{100} << 20);
    EXPECT_EQ(pool.bytes_in_use(), 0U);
    EXPECT_TRUE(pool.get(kChunkBytes));
}

TEST(ChunkPool, FitsSmallChunks) {
    ChunkPool pool(kChunkBytes);
    const Chunk chunk = pool.get(100);
    EXPECT_EQ(chunk.capacity, 100U);
    EXPECT_EQ(pool.bytes_in_use(), 100U);
}

}  // namespace
}  // namespace ckptfs::s3sim
