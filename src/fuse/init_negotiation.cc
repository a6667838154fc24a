// SPDX-License-Identifier: Apache-2.0
#include "fuse/init_negotiation.h"

#include <linux/fuse.h>

#include <cstring>

namespace ckptfs {
namespace {

// Bits 36 and 37 of the INIT flags (linux/fuse.h of kernels 6.6 and 6.9); the upper 32 bits travel in flags2.
constexpr std::uint32_t kDirectIoAllowMmap2 = std::uint32_t{1} << (36 - 32);
constexpr std::uint32_t kPassthrough2 = std::uint32_t{1} << (37 - 32);
// max_stack_depth of the reply lies where unused[0] was: the files themselves are on no stacked file system.
constexpr std::uint32_t kMaxStackDepth = 1;

}  // namespace

void InitNegotiation::on_request(ByteSpan request) {
    fuse_in_header header{};
    if (finished_.load(std::memory_order_acquire) || request.size() < sizeof header) {
        return;
    }
    std::memcpy(&header, request.data(), sizeof header);
    if (header.opcode != FUSE_INIT) {
        return;
    }
    // Kernels before 5.17 send a shorter request, without flags2.
    fuse_init_in init{};
    const ByteSpan body = request.subspan(sizeof header);
    std::memcpy(&init, body.data(), std::min(body.size(), sizeof init));
    const MutexLock lock(mutex_);
    request_ = Request{header.unique, init.flags, (init.flags & FUSE_INIT_EXT) != 0 ? init.flags2 : 0};
}

bool InitNegotiation::on_reply(const struct iovec* parts, int count) {
    fuse_out_header header{};
    if (finished_.load(std::memory_order_acquire) || count < 1 || parts[0].iov_len < sizeof header) {
        return false;
    }
    std::memcpy(&header, parts[0].iov_base, sizeof header);
    const MutexLock lock(mutex_);
    if (!request_ || header.unique != request_->unique) {
        return false;
    }
    fuse_init_out reply{};
    if (header.error == 0 && count >= 2 && parts[1].iov_len >= sizeof reply) {
        std::memcpy(&reply, parts[1].iov_base, sizeof reply);
        reply.flags |= request_->flags & (FUSE_PARALLEL_DIROPS | FUSE_HANDLE_KILLPRIV_V2);
        if ((request_->flags2 & kDirectIoAllowMmap2) != 0) {
            reply.flags |= FUSE_INIT_EXT;
            reply.flags2 |= kDirectIoAllowMmap2;
            direct_io_allows_mmap_.store(true, std::memory_order_release);
        }
        if (wants_passthrough_.load(std::memory_order_acquire) && (request_->flags2 & kPassthrough2) != 0) {
            reply.flags |= FUSE_INIT_EXT;
            reply.flags2 |= kPassthrough2;
            reply.unused[0] = kMaxStackDepth;
            passes_through_.store(true, std::memory_order_release);
        }
        std::memcpy(parts[1].iov_base, &reply, sizeof reply);
    }
    finished_.store(header.error == 0, std::memory_order_release);
    request_.reset();
    return true;
}

}  // namespace ckptfs
