// SPDX-License-Identifier: Apache-2.0
#pragma once

// Digests and the encodings that S3 writes them in. Written apart from the client's, so that the two check each other.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ckptfs::s3sim {

class ByteChain;

enum class DigestKind { kCrc32, kCrc32c, kCrc64Nvme, kMd5, kSha1, kSha256 };

class Digest {
public:
    virtual ~Digest() = default;
    virtual void update(std::span<const std::byte> bytes) = 0;
    // The raw value, most significant byte first. Call once.
    virtual std::string finish() = 0;
};

std::unique_ptr<Digest> make_digest(DigestKind kind);
std::string digest_of(DigestKind kind, std::string_view bytes);
std::string digest_of(DigestKind kind, const ByteChain& bytes);
std::size_t digest_size(DigestKind kind);
bool is_crc(DigestKind kind);

// The CRC of two byte strings joined, from the CRC of each (raw values) and the length of the second.
std::string join_crcs(DigestKind kind, std::string_view first, std::string_view second, std::uint64_t second_length);

std::string hmac_sha256(std::string_view key, std::string_view message);
std::string to_hex(std::string_view raw);
std::string to_base64(std::string_view raw);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ckptfs::s3sim
