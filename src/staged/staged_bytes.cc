// SPDX-License-Identifier: Apache-2.0
#include "staged/staged_bytes.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "base/unlinked_file.h"
#include "ckptfs/log.h"

namespace ckptfs {

Status StagedBytes::write(std::uint64_t offset, ByteSpan bytes) {
    if (!file_) {
        file_ = open_unlinked(directory_);
        if (!file_) {
            return cannot_write(errno);
        }
    }
    Payload payload;
    payload.append(Slice{nullptr, bytes});
    const int problem = write_all(file_.get(), std::move(payload), offset);
    return problem == 0 ? Status() : cannot_write(problem);
}

Status StagedBytes::read(std::uint64_t offset, MutableByteSpan target) const {
    if (const int problem = read_all(file_.get(), target, offset); problem != 0) {
        return failure(EIO, format("read {}: what was put into --staging-dir {} cannot be read back: {}",
                                   escaped(name_), escaped(directory_), std::strerror(problem)));
    }
    return {};
}

void StagedBytes::truncate(std::uint64_t size) {
    // A disk that does not take space back has it back with the file.
    if (file_ && ::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) {
        log_warning(format("{}: --staging-dir {} keeps its space: {}", escaped(name_), escaped(directory_),
                           std::strerror(errno)));
    }
}

Failure StagedBytes::cannot_write(int errno_value) const {
    return failure(
        errno_value == ENOSPC || errno_value == EDQUOT ? errno_value : EIO,
        format("write {}: --staging-dir {} takes no more of what is changed in this file before it is closed: "
               "{}; make room there or use another directory, and write the file again",
               escaped(name_), escaped(directory_), std::strerror(errno_value)));
}

}  // namespace ckptfs
