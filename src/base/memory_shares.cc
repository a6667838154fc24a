// SPDX-License-Identifier: Apache-2.0
#include "base/memory_shares.h"

#include <algorithm>
#include <numeric>

namespace ckptfs {
namespace {

// A commit that sends bytes again must be able to hold one part of the least size that S3 takes (5 MiB, Amazon S3
// multipart upload limits) whose ends lie inside frames, and the next one beginning.
constexpr std::size_t kSmallestCommitReserve = 8;
constexpr std::size_t kLargestCommitReserve = 256;
constexpr std::size_t kSmallestEncodeReserve = 4;
// A part is sent when it has reached its planned size, in frames that are a little larger than a buffer's share of it:
// all of it may have to come back from the disk at once.
constexpr std::size_t kSparePartBuffers = 2;
constexpr std::size_t kFewestParkedWrites = 8;
constexpr std::size_t kMostParkedWrites = 256;
constexpr std::size_t kLargestReadReserve = 1024;
constexpr std::size_t kLargestWriteReserve = 2048;

std::size_t& at(BuffersInUse& in_use, MemoryUse use) {
    return in_use[static_cast<std::size_t>(use)];
}

bool keeps_reserves(const MemoryShares& shares, const BuffersInUse& in_use) {
    std::size_t needed = 0;
    for (std::size_t use = 0; use < kMemoryUses; ++use) {
        needed += std::max(in_use[use], shares.of[use].reserve);
    }
    return needed <= shares.total;
}

}  // namespace

MemoryShares memory_shares(std::uint64_t max_memory, int fuse_threads, bool encodes) {
    const std::size_t total = std::max(max_memory, kSmallestMaxMemory) / BufferPool::kBufferSize;
    const auto threads = static_cast<std::size_t>(std::max(fuse_threads, 1));

    // Every thread listens with a buffer of its own, also while so many writers wait for memory, whose data stays where
    // it was received: a stat or the interrupt of a killed writer is read behind them. The default budget of 1 GiB has
    // room for as many as DCP with four threads in each of eight ranks makes. Many threads on a small budget take
    // turns.
    const std::size_t parked = std::clamp(total / 32, kFewestParkedWrites, kMostParkedWrites);
    const std::size_t receive = std::min(threads + parked, total / 4);
    const std::size_t read = std::min(total / 8, kLargestReadReserve);
    const std::size_t commit = std::clamp(total / 16, kSmallestCommitReserve, kLargestCommitReserve);
    // A little less than a quarter, so that the largest part fits under the cap of commits (see kSparePartBuffers).
    const std::size_t write = std::min(total / 4 - 2 * kSparePartBuffers, kLargestWriteReserve);
    // The largest part is a quarter of what file data may take.
    const std::size_t part = total * 3 / 16 + kSparePartBuffers;
    // The largest part may have to be encoded as a whole, with a frame to spare. If files are not compressed, those
    // that other mounts compressed may still be appended to.
    const std::size_t encode = encodes ? std::min(part, kLargestWriteReserve)
                                       : std::clamp(total / 128, kSmallestEncodeReserve, kLargestCommitReserve);

    MemoryShares shares;
    shares.total = total;
    const auto share = [&](MemoryUse use) -> MemoryShare& { return shares.of[static_cast<std::size_t>(use)]; };
    // A parked write is data that has not been accepted: more of it than this only moves the queue out of the kernel.
    // It may wait for the commit of its own file, which needs a part's memory meanwhile.
    share(MemoryUse::kReceive) = {
        receive, std::min(receive + total / 8, total - write - read - std::max(commit, part) - encode)};
    share(MemoryUse::kWrite) = {write, total - receive - read - commit - encode};
    share(MemoryUse::kRead) = {read, total - receive - write - commit - encode};
    share(MemoryUse::kCommit) = {commit, total - receive - write - read - encode};
    share(MemoryUse::kEncode) = {encode, total - receive - write - read - commit};
    return shares;
}

int frames_waiting_for_disk(const BuffersInUse& caps) {
    // A frame that was not written at once lies in two buffers.
    constexpr std::size_t kShare = 4;
    constexpr std::size_t kMost = 32;
    const std::size_t least =
        std::min(caps[static_cast<std::size_t>(MemoryUse::kWrite)], caps[static_cast<std::size_t>(MemoryUse::kRead)]);
    return static_cast<int>(std::clamp<std::size_t>(least / kShare, 1, kMost));
}

bool may_take(const MemoryShares& shares, const BuffersInUse& in_use, MemoryUse use) {
    BuffersInUse after = in_use;
    return ++at(after, use) <= shares[use].cap && std::reduce(after.begin(), after.end()) <= shares.total &&
           keeps_reserves(shares, after);
}

bool may_recharge(const MemoryShares& shares, const BuffersInUse& in_use, MemoryUse from, MemoryUse to) {
    BuffersInUse after = in_use;
    --at(after, from);
    return from == to || (++at(after, to) <= shares[to].cap && keeps_reserves(shares, after));
}

}  // namespace ckptfs
