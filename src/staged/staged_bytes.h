// SPDX-License-Identifier: Apache-2.0
// The bytes of one file that are changed in place: an unlinked, sparse file in --staging-dir, made with the first byte.
// Its disk space goes back when it is destroyed.
//
// Ownership: shared by the file being written and by reads under way.
// Threads: write() and truncate() by one thread at a time; read() by any number, of bytes that have been written.
// All of them wait for the disk.
#pragma once

#include <cstdint>
#include <string>

#include "base/file_descriptor.h"
#include "ckptfs/bytes.h"
#include "ckptfs/status.h"

namespace ckptfs {

class StagedBytes {
public:
    // `name` is of the file, for messages.
    StagedBytes(std::string directory, std::string name) : directory_(std::move(directory)), name_(std::move(name)) {}

    // ENOSPC or EDQUOT where the disk takes no more, else EIO.
    Status write(std::uint64_t offset, ByteSpan bytes);
    Status read(std::uint64_t offset, MutableByteSpan target) const;
    // Gives back what lies behind.
    void truncate(std::uint64_t size);

private:
    [[nodiscard]] Failure cannot_write(int errno_value) const;

    const std::string directory_;
    const std::string name_;
    FileDescriptor file_;
};

}  // namespace ckptfs
