// SPDX-License-Identifier: Apache-2.0
// Digests of bytes that come piece by piece, in the text form that S3 gives them: base64 of the bytes, highest first,
// but for MD5, which ETags have in hexadecimal digits.
//
// Threads: an object is used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ckptfs/bytes.h"

namespace ckptfs {

enum class DigestKind : std::uint8_t { kCrc32, kCrc32c, kCrc64Nvme, kSha1, kSha256, kMd5 };

class RunningDigest {
public:
    virtual ~RunningDigest() = default;
    virtual void take(ByteSpan bytes) = 0;
    // Of all bytes that were taken. Once, at the end.
    [[nodiscard]] virtual std::string text() = 0;
};

// Null where this machine has no MD5.
[[nodiscard]] std::unique_ptr<RunningDigest> running_digest(DigestKind kind);

}  // namespace ckptfs
