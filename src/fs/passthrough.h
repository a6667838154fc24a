// SPDX-License-Identifier: Apache-2.0
// Files on a local disk that the kernel reads in place of a file of the mount, past this process.
//
// All that have the same node open at a time must read the same file so, and none of them in another way: the kernel
// fails opens that break this with EIO.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <memory>

namespace ckptfs::fs {

// The kernel has it open for as long as this lives, and for as long as a program has a file open that was answered with
// its number.
class BackingFile {
public:
    virtual ~BackingFile() = default;
    [[nodiscard]] virtual int number() const = 0;
};

class Passthrough {
public:
    virtual ~Passthrough() = default;
    // Not before the kernel has agreed to it, and not after it has refused a file.
    [[nodiscard]] virtual bool is_possible() const = 0;
    // `file` may be closed after it. Null where the kernel does not take it.
    [[nodiscard]] virtual std::shared_ptr<BackingFile> offer(int file) = 0;
};

}  // namespace ckptfs::fs
