// SPDX-License-Identifier: Apache-2.0
// Files on a local disk that the kernel reads in place of a file of the mount, past this process.
//
// All handles that have a node open at the same time must read the same file in this way, or none of them may: the
// kernel fails opens that break this with EIO.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <memory>

namespace ckptfs::fs {

// The kernel keeps the file open as long as this object lives, and as long as a program has a file open that was
// answered with this number.
class BackingFile {
public:
    virtual ~BackingFile() = default;
    [[nodiscard]] virtual int number() const = 0;
};

class Passthrough {
public:
    virtual ~Passthrough() = default;
    // False before the kernel has agreed to passthrough, and after it has refused a file.
    [[nodiscard]] virtual bool is_possible() const = 0;
    // Registers a descriptor, which may be closed after the call, with the kernel. Null if the kernel refuses it.
    [[nodiscard]] virtual std::shared_ptr<BackingFile> offer(int file) = 0;
};

}  // namespace ckptfs::fs
