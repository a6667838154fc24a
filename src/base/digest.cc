// SPDX-License-Identifier: Apache-2.0
#include "base/digest.h"

#include <isa-l/crc.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

namespace ckptfs {
namespace {

// crc32_iscsi counts in int.
constexpr std::size_t kMaxCrcPiece = std::size_t{1} << 30;

// A linear map over GF(2) on the 32 bits of a checksum register: column i is the image of bit i.
using Gf2Matrix = std::array<std::uint32_t, 32>;

constexpr std::uint32_t apply(const Gf2Matrix& matrix, std::uint32_t bits) {
    std::uint32_t image = 0;
    for (std::size_t column = 0; bits != 0; bits >>= 1, ++column) {
        if ((bits & 1U) != 0) {
            image ^= matrix[column];
        }
    }
    return image;
}

constexpr Gf2Matrix squared(const Gf2Matrix& matrix) {
    Gf2Matrix square{};
    for (std::size_t column = 0; column < square.size(); ++column) {
        square[column] = apply(matrix, matrix[column]);
    }
    return square;
}

// What one zero byte does to the (reflected) register.
constexpr Gf2Matrix zero_byte_matrix() {
    // 0x1EDC6F41 (RFC 3720 B.4) with its bits reversed.
    constexpr std::uint32_t kPolynomial = 0x82F63B78;
    Gf2Matrix matrix{};
    matrix[0] = kPolynomial;
    for (std::size_t column = 1; column < matrix.size(); ++column) {
        matrix[column] = std::uint32_t{1} << (column - 1);
    }
    for (int doubling = 0; doubling < 3; ++doubling) {
        matrix = squared(matrix);
    }
    return matrix;
}

// Element k is what 2^k zero bytes do. Computed once, so that a combination costs at most 64 applications.
constexpr std::array<Gf2Matrix, 64> zero_run_matrices() {
    std::array<Gf2Matrix, 64> runs{};
    runs[0] = zero_byte_matrix();
    for (std::size_t exponent = 1; exponent < runs.size(); ++exponent) {
        runs[exponent] = squared(runs[exponent - 1]);
    }
    return runs;
}

struct DigestDeleter {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

struct FetchedDigestDeleter {
    void operator()(EVP_MD* algorithm) const { EVP_MD_free(algorithm); }
};
// Null where no provider of this machine has the algorithm.
using FetchedDigest = std::unique_ptr<EVP_MD, FetchedDigestDeleter>;

// OpenSSL fails here only when memory is gone or a provider lacks what S3 cannot do without: nothing a caller could
// fix.
void require(bool success) {
    if (!success) {
        std::abort();
    }
}

class EvpDigest {
public:
    explicit EvpDigest(const EVP_MD* algorithm) : context_(EVP_MD_CTX_new()) {
        require(context_ != nullptr && EVP_DigestInit_ex(context_.get(), algorithm, nullptr) == 1);
    }
    void update(ByteSpan bytes) { require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1); }
    template <std::size_t kSize>
    std::array<std::byte, kSize> finish() {
        std::array<std::byte, kSize> digest{};
        unsigned int size = 0;
        require(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &size) == 1);
        require(size == kSize);
        return digest;
    }

private:
    std::unique_ptr<EVP_MD_CTX, DigestDeleter> context_;
};

template <std::size_t kSize>
std::array<std::byte, kSize> digest_of(const EVP_MD* algorithm, ByteSpan bytes) {
    EvpDigest digest(algorithm);
    digest.update(bytes);
    return digest.finish<kSize>();
}

template <std::size_t kSize>
std::array<std::byte, kSize> digest_of(const EVP_MD* algorithm, const Payload& payload) {
    EvpDigest digest(algorithm);
    for (const Slice& slice : payload.slices()) {
        digest.update(slice.bytes);
    }
    return digest.finish<kSize>();
}

bool is_base64(std::string_view text) {
    const auto is_digit = [](char each) {
        return (each >= 'A' && each <= 'Z') || (each >= 'a' && each <= 'z') || (each >= '0' && each <= '9') ||
               each == '+' || each == '/';
    };
    if (text.size() % 4 != 0) {
        return false;
    }
    for (int padding = 0; padding < 2 && !text.empty() && text.back() == '='; ++padding) {
        text.remove_suffix(1);
    }
    return std::all_of(text.begin(), text.end(), is_digit);
}

}  // namespace

std::uint32_t crc32c(ByteSpan bytes, std::uint32_t before) {
    // The library leaves the inversion of the register, at both ends, to its caller.
    std::uint32_t reg = ~before;
    while (!bytes.empty()) {
        const std::size_t size = std::min(bytes.size(), kMaxCrcPiece);
        // Its signature lacks a const; it only reads.
        auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
        reg = crc32_iscsi(data, static_cast<int>(size), reg);
        bytes = bytes.subspan(size);
    }
    return ~reg;
}

std::uint32_t crc32c(const Payload& payload, std::uint32_t before) {
    for (const Slice& slice : payload.slices()) {
        before = crc32c(slice.bytes, before);
    }
    return before;
}

std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b) {
    static const std::array<Gf2Matrix, 64> kZeroRuns = zero_run_matrices();
    for (std::size_t exponent = 0; length_b != 0; length_b >>= 1, ++exponent) {
        if ((length_b & 1U) != 0) {
            crc_a = apply(kZeroRuns[exponent], crc_a);
        }
    }
    return crc_a ^ crc_b;
}

std::string crc32c_base64(std::uint32_t crc) {
    const std::array<std::byte, 4> bytes = {static_cast<std::byte>(crc >> 24), static_cast<std::byte>(crc >> 16),
                                            static_cast<std::byte>(crc >> 8), static_cast<std::byte>(crc)};
    return base64_encode(bytes);
}

void keep_digests_until_exit() {
    require(OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1);
}

Sha256 sha256(ByteSpan bytes) {
    return digest_of<32>(EVP_sha256(), bytes);
}

Sha256 sha256(const Payload& payload) {
    return digest_of<32>(EVP_sha256(), payload);
}

Sha256 hmac_sha256(ByteSpan key, ByteSpan message) {
    // OpenSSL takes a null key for "the one from last time", so an empty one still has to point somewhere.
    static constexpr unsigned char kNothing = 0;
    const auto* key_data = key.empty() ? &kNothing : reinterpret_cast<const unsigned char*>(key.data());
    const auto* data = message.empty() ? &kNothing : reinterpret_cast<const unsigned char*>(message.data());
    Sha256 digest{};
    unsigned int size = 0;
    require(HMAC(EVP_sha256(), key_data, static_cast<int>(key.size()), data, message.size(),
                 reinterpret_cast<unsigned char*>(digest.data()), &size) != nullptr);
    require(size == digest.size());
    return digest;
}

std::optional<Md5> md5(ByteSpan bytes, const char* properties) {
    const FetchedDigest algorithm(EVP_MD_fetch(nullptr, "MD5", properties));
    return algorithm == nullptr ? std::nullopt : std::optional(digest_of<16>(algorithm.get(), bytes));
}

std::optional<Md5> md5(const Payload& payload, const char* properties) {
    const FetchedDigest algorithm(EVP_MD_fetch(nullptr, "MD5", properties));
    return algorithm == nullptr ? std::nullopt : std::optional(digest_of<16>(algorithm.get(), payload));
}

Sha1 sha1(ByteSpan bytes) {
    return digest_of<20>(EVP_sha1(), bytes);
}

std::string base64_encode(ByteSpan bytes) {
    std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
    const int length =
        EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
    text.resize(static_cast<std::size_t>(length));
    return text;
}

std::optional<std::vector<std::byte>> base64_decode(std::string_view text) {
    // EVP_DecodeBlock would pass over blanks around it.
    if (!is_base64(text)) {
        return std::nullopt;
    }
    std::vector<std::byte> bytes(text.size() / 4 * 3);
    const int length =
        EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                        reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
    if (length < 0) {
        return std::nullopt;
    }
    // Padding counts as zeros.
    const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    bytes.resize(static_cast<std::size_t>(length) - padding);
    return bytes;
}

std::string hex(ByteSpan bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const std::byte each : bytes) {
        text += kDigits[std::to_integer<std::size_t>(each >> 4)];
        text += kDigits[std::to_integer<std::size_t>(each & std::byte{0x0F})];
    }
    return text;
}

// --- piece by piece

namespace {

template <class Value>
std::string base64_of_number(Value value) {
    std::array<std::byte, sizeof(Value)> bytes{};
    for (std::size_t at = bytes.size(); at > 0; value >>= 8) {
        bytes[--at] = static_cast<std::byte>(value);
    }
    return base64_encode(bytes);
}

class RunningCrc32c final : public RunningDigest {
public:
    void take(ByteSpan bytes) override { crc_ = crc32c(bytes, crc_); }
    std::string text() override { return crc32c_base64(crc_); }

private:
    std::uint32_t crc_ = 0;
};

// A reflected polynomial over eight bytes at a time ("slicing by 8"): table k has the effect of a byte that k others
// follow.
template <class Value, Value kPolynomial>
class RunningCrc final : public RunningDigest {
public:
    void take(ByteSpan bytes) override {
        const Tables& table = tables();
        Value reg = static_cast<Value>(~crc_);
        while (bytes.size() >= 8) {
            Value next = 0;
            for (std::size_t at = 0; at < 8; ++at, reg = shifted(reg)) {
                next ^= table[7 - at][(static_cast<std::uint8_t>(bytes[at]) ^ reg) & 0xFF];
            }
            reg = next;
            bytes = bytes.subspan(8);
        }
        for (const std::byte byte : bytes) {
            reg = static_cast<Value>(shifted(reg) ^ table[0][(static_cast<std::uint8_t>(byte) ^ reg) & 0xFF]);
        }
        crc_ = static_cast<Value>(~reg);
    }
    std::string text() override { return base64_of_number(crc_); }

private:
    using Tables = std::array<std::array<Value, 256>, 8>;

    static Value shifted(Value reg) { return static_cast<Value>(reg >> 8); }
    static const Tables& tables() {
        static const Tables made = make_tables();
        return made;
    }
    static Tables make_tables() {
        Tables made{};
        for (std::size_t byte = 0; byte < 256; ++byte) {
            auto reg = static_cast<Value>(byte);
            for (int bit = 0; bit < 8; ++bit) {
                reg = static_cast<Value>((reg >> 1) ^ ((reg & 1U) != 0 ? kPolynomial : 0));
            }
            made[0][byte] = reg;
        }
        for (std::size_t follow = 1; follow < made.size(); ++follow) {
            for (std::size_t byte = 0; byte < 256; ++byte) {
                const Value before = made[follow - 1][byte];
                made[follow][byte] = static_cast<Value>(shifted(before) ^ made[0][before & 0xFF]);
            }
        }
        return made;
    }

    Value crc_ = 0;
};
// The CRC-32 of Ethernet and zlib, and CRC-64/NVME (NVM Express NVM Command Set Specification); bits reversed.
using RunningCrc32 = RunningCrc<std::uint32_t, 0xEDB88320U>;
using RunningCrc64Nvme = RunningCrc<std::uint64_t, 0x9A6C9329AC4BC9B5U>;

template <std::size_t kSize>
class RunningSha final : public RunningDigest {
public:
    explicit RunningSha(const EVP_MD* algorithm) : digest_(algorithm) {}
    void take(ByteSpan bytes) override { digest_.update(bytes); }
    std::string text() override { return base64_encode(digest_.finish<kSize>()); }

private:
    EvpDigest digest_;
};

class RunningMd5 final : public RunningDigest {
public:
    explicit RunningMd5(FetchedDigest algorithm) : algorithm_(std::move(algorithm)), digest_(algorithm_.get()) {}
    void take(ByteSpan bytes) override { digest_.update(bytes); }
    std::string text() override { return hex(digest_.finish<16>()); }

private:
    const FetchedDigest algorithm_;
    EvpDigest digest_;
};

}  // namespace

std::unique_ptr<RunningDigest> running_digest(DigestKind kind, const char* md5_properties) {
    switch (kind) {
        case DigestKind::kCrc32:
            return std::make_unique<RunningCrc32>();
        case DigestKind::kCrc32c:
            return std::make_unique<RunningCrc32c>();
        case DigestKind::kCrc64Nvme:
            return std::make_unique<RunningCrc64Nvme>();
        case DigestKind::kSha1:
            return std::make_unique<RunningSha<20>>(EVP_sha1());
        case DigestKind::kSha256:
            return std::make_unique<RunningSha<32>>(EVP_sha256());
        case DigestKind::kMd5:
            break;
    }
    FetchedDigest algorithm(EVP_MD_fetch(nullptr, "MD5", md5_properties));
    return algorithm == nullptr ? nullptr : std::make_unique<RunningMd5>(std::move(algorithm));
}

}  // namespace ckptfs
