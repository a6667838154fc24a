// SPDX-License-Identifier: Apache-2.0
// Registers files with the kernel that it is to read in place of the mount's (FUSE_DEV_IOC_BACKING_OPEN of
// linux/fuse.h, protocol 7.40, kernel 6.9), which needs CAP_SYS_ADMIN.
//
// Ownership: outlives what offer() has returned. `negotiation` outlives it.
// Threads: connect() before any other; the rest from any.
#pragma once

#include <atomic>

#include "fs/passthrough.h"
#include "fuse/init_negotiation.h"

namespace ckptfs {

class KernelPassthrough final : public fs::Passthrough {
public:
    explicit KernelPassthrough(const InitNegotiation& negotiation) : negotiation_(negotiation) {}

    // The descriptor of /dev/fuse; open for as long as this lives.
    void connect(int connection) { connection_ = connection; }
    [[nodiscard]] bool is_possible() const override { return negotiation_.passes_through() && !is_refused_; }
    [[nodiscard]] std::shared_ptr<fs::BackingFile> offer(int file) override;

private:
    const InitNegotiation& negotiation_;
    int connection_ = -1;
    std::atomic<bool> is_refused_{false};
};

}  // namespace ckptfs
