// SPDX-License-Identifier: Apache-2.0
// What to fetch ahead of a handle's reads: a policy without I/O, threads or time.
//
// A handle may carry several sequential streams at once (loaders that read slices from threads, a zip whose directory
// is probed between members); each is found again by where its next read starts. A stream's window begins small, grows
// fourfold while its reads still have to wait, and stops at the limit given: what fills the link, or what memory
// allows. Streams that meet are merged: a walk that comes to where a probe had begun another stream keeps its window.
// The read-ahead of a stream that has stopped is given up. Reads that follow no stream fetch a neighbourhood, which
// grows while neighbours are asked for and shrinks while they are not.
//
// A value; not synchronised. Positions are bytes of the file, spans are block indexes (kFrameSize each).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ckptfs {

// Blocks [begin, end).
struct BlockSpan {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;

    [[nodiscard]] bool empty() const { return begin >= end; }
    [[nodiscard]] std::uint64_t count() const { return empty() ? 0 : end - begin; }
    [[nodiscard]] bool contains(std::uint64_t block) const { return block >= begin && block < end; }
    bool operator==(const BlockSpan&) const = default;
};

// Limits of the whole mount's requests for file data.
struct RequestLimits {
    // Most of the allowed read-ahead requests are in flight (BlockCache::is_crowded).
    bool crowded = false;
    // Concurrency limit after the store has asked to slow down (503); 0 if it has not.
    int slowed_to = 0;
};

// How much of what a read needs was in memory when it came.
enum class Found : std::uint8_t { kReady, kFetching, kAbsent };

struct ReadPlan {
    // Blocks to fetch now, in order, besides those that the read itself needs.
    BlockSpan ahead;
    std::uint64_t blocks_per_request = 1;
    // Blocks that the stream has passed.
    BlockSpan consumed;
    // Blocks that were read ahead for streams that have stopped or are forgotten now.
    std::vector<BlockSpan> abandoned;
    // The read continues no stream and is not at the head of the file.
    bool jumps = false;
    // Index of the stream, for not_fetched().
    std::size_t stream = 0;
};

class ReadWindow {
public:
    // Concurrent streams of one handle that are distinguished: loaders use up to 16 threads on one file.
    static constexpr std::size_t kStreams = 16;
    // The window before a stream has proved itself: four requests of one block bring the first bytes as early as one
    // would.
    static constexpr std::uint64_t kFirstWindow = 4;
    static constexpr std::uint64_t kGrowth = 4;
    // 4 MiB. At 30 ms to the first byte and 90 MB/s a connection a request of this size moves 54 MB/s, so 48 of them
    // (192 MiB) fill 2.5 GB/s; with 8 MiB the same memory carries 1.6 GB/s.
    static constexpr std::uint64_t kMaxBlocksPerRequest = 4;
    // A window this many times a request's size keeps as many connections busy. Where the readers of a mount together
    // want more requests than there may be, each makes fewer, not smaller ones.
    static constexpr std::uint64_t kRequestsPerWindow = 16;
    static constexpr std::uint64_t kRequestsPerWindowInACrowd = 4;
    // 128 MiB: if the store tolerates few requests, what counts is how much each brings.
    static constexpr std::uint64_t kMaxBlocksPerSlowedRequest = 128;
    // 32 MiB: if it tolerates only one, requests without data take turns with it.
    static constexpr std::uint64_t kMaxBlocksInTurns = 32;
    // The kernel hands the pieces of one read-ahead to several threads, which arrive in any order.
    static constexpr std::uint64_t kReorderedBlocks = 16;
    static constexpr std::uint64_t kNewStreamReorderedBlocks = 2;
    static constexpr std::uint64_t kMaxNeighbourhood = 16;
    // A stream has stopped when it was not read from for this many reads of its handle, and for as many bytes (what the
    // cache holds): a thread that copies a tensor elsewhere comes back after 100 ms, in which others read that much.
    static constexpr std::uint64_t kActiveReads = 256;
    static constexpr std::uint64_t kActiveBytes = std::uint64_t{256} << 20;
    // Two streams that were both read from within this many reads are two walks, however near to each other.
    static constexpr std::uint64_t kInterleavedReads = 16;

    explicit ReadWindow(std::uint64_t block_count) : block_count_(block_count) {}

    // size > 0. `limit` is how many blocks all streams of the handle together may have ahead of them.
    ReadPlan on_read(std::uint64_t offset, std::uint64_t size, Found found, std::uint64_t limit,
                     RequestLimits requests = {});
    // Only the blocks before `first` of plan.ahead are being fetched. The window shrinks if memory was short; if enough
    // requests are in flight, the rest is requested as they end.
    void not_fetched(const ReadPlan& plan, std::uint64_t first, bool memory_is_short);

    // The number of streams that were read from lately and have more to request; each deserves a share of the memory.
    // Streams that have just begun do not count: they do with less, and take none from others.
    [[nodiscard]] std::size_t sequential_streams() const;
    // Blocks that were read ahead and that their streams have not passed yet.
    [[nodiscard]] std::vector<BlockSpan> outstanding() const;

private:
    struct Stream {
        bool in_use = false;
        // End of the furthest read.
        std::uint64_t position = 0;
        // In blocks; 0 until a second read has followed the first, unless that was at the head of the file.
        std::uint64_t window = 0;
        // Blocks before this one have been requested.
        std::uint64_t asked = 0;
        std::uint64_t consumed = 0;
        std::uint64_t begun_at = 0;
        std::uint64_t grown_at = 0;
        bool waited = false;
        // The handle's counts of reads and bytes at the stream's last read.
        std::uint64_t last_read = 0;
        std::uint64_t last_bytes = 0;
        // Index of the stream that it was merged into; meaningless while it is in use.
        std::size_t absorbed_by = 0;
    };
    struct Neighbourhood {
        BlockSpan blocks;
        bool useful = false;
    };

    static std::uint64_t reordered_blocks(const Stream& stream);
    [[nodiscard]] static bool may_continue_at(const Stream& stream, std::uint64_t offset);
    [[nodiscard]] static BlockSpan ahead_of(const Stream& stream);
    [[nodiscard]] static bool has_just_begun(const Stream& stream);
    [[nodiscard]] bool is_active(const Stream& stream) const;
    [[nodiscard]] bool are_one(const Stream& one, const Stream& other) const;
    [[nodiscard]] Stream* find(std::uint64_t offset);
    Stream& begin_at(BlockSpan read, std::uint64_t end, ReadPlan& plan);
    void absorb_those_met(Stream& stream, std::uint64_t offset);
    void give_up_stopped(ReadPlan& plan);
    void give_up(const Stream& stream, ReadPlan& plan) const;
    [[nodiscard]] std::size_t index_of(const Stream& stream) const;
    [[nodiscard]] std::uint64_t share_of(const Stream& stream, std::uint64_t limit) const;
    static void advance(Stream& stream, std::uint64_t end, std::uint64_t limit);
    [[nodiscard]] std::uint64_t blocks_per_request(std::uint64_t window, RequestLimits requests) const;
    void plan_ahead(Stream& stream, std::uint64_t limit, RequestLimits requests, ReadPlan& plan) const;
    void plan_neighbourhood(BlockSpan read, Found found, std::uint64_t limit, RequestLimits requests, ReadPlan& plan);

    std::uint64_t block_count_;
    std::uint64_t reads_ = 0;
    std::uint64_t bytes_ = 0;
    std::array<Stream, kStreams> streams_;
    std::uint64_t neighbourhood_size_ = 1;
    std::array<Neighbourhood, kStreams> neighbourhoods_;
    std::size_t next_neighbourhood_ = 0;
};

}  // namespace ckptfs
