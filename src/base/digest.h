// SPDX-License-Identifier: Apache-2.0
// Checksums, hashes and the text forms that S3 gives them.
//
// Pure functions, safe from any thread; a RunningDigest is used by one thread at a time. Large inputs belong on an
// executor, not on an HTTP or FUSE thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/bytes.h"

namespace ckptfs {

using Sha256 = std::array<std::byte, 32>;
using Md5 = std::array<std::byte, 16>;
using Sha1 = std::array<std::byte, 20>;

// CRC-32C (Castagnoli, RFC 3720 B.4). Incremental: `before` is the checksum of the bytes that come before these.
[[nodiscard]] std::uint32_t crc32c(ByteSpan bytes, std::uint32_t before = 0);
[[nodiscard]] std::uint32_t crc32c(const Payload& payload, std::uint32_t before = 0);
// The checksum of A followed by B, from theirs and B's length in bytes; no byte is read.
[[nodiscard]] std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b);
// The form that x-amz-checksum-crc32c takes: base64 of the four bytes, highest first.
[[nodiscard]] std::string crc32c_base64(std::uint32_t crc);

// Keeps OpenSSL from freeing its state at the end of the process, which a thread that hangs in the disk may come back
// to and use. To be called before anything here, or libcurl, is used.
void keep_digests_until_exit();

[[nodiscard]] Sha256 sha256(ByteSpan bytes);
[[nodiscard]] Sha256 sha256(const Payload& payload);
[[nodiscard]] Sha256 hmac_sha256(ByteSpan key, ByteSpan message);

// For Content-MD5 and for ETags, not for security. Empty if OpenSSL does not provide it, as on machines that enforce
// FIPS 140. `properties`: of the implementation to be fetched, as in EVP_MD_fetch(3); null: those of the machine.
[[nodiscard]] std::optional<Md5> md5(ByteSpan bytes, const char* properties = nullptr);
[[nodiscard]] std::optional<Md5> md5(const Payload& payload, const char* properties = nullptr);

// For names of files of the AWS tools, not for security.
[[nodiscard]] Sha1 sha1(ByteSpan bytes);

// RFC 4648 section 4, with padding. Decoding takes nothing else: empty for any other character or length.
[[nodiscard]] std::string base64_encode(ByteSpan bytes);
[[nodiscard]] std::optional<std::vector<std::byte>> base64_decode(std::string_view text);

// Lower case.
[[nodiscard]] std::string hex(ByteSpan bytes);

enum class DigestKind : std::uint8_t { kCrc32, kCrc32c, kCrc64Nvme, kSha1, kSha256, kMd5 };

// A digest of bytes that come piece by piece, in the text form of S3: base64 of its bytes, highest first; for MD5
// hexadecimal digits, as in ETags.
class RunningDigest {
public:
    virtual ~RunningDigest() = default;
    virtual void take(ByteSpan bytes) = 0;
    // The digest of all bytes that were taken. To be called once, at the end.
    [[nodiscard]] virtual std::string text() = 0;
};

// Null if it is MD5 and this machine has none. `md5_properties`: as in md5().
[[nodiscard]] std::unique_ptr<RunningDigest> running_digest(DigestKind kind, const char* md5_properties = nullptr);

}  // namespace ckptfs
