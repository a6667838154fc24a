// SPDX-License-Identifier: Apache-2.0
#include "digest.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <bit>
#include <cstring>

#include "byte_chain.h"

namespace ckptfs::s3sim {
namespace {

// Reflected polynomials: CRC-32 (IEEE 802.3), CRC-32C (RFC 3720), CRC-64/NVME (NVM Express command set 1.0).
constexpr std::uint64_t kCrc32Polynomial = 0xEDB88320U;
constexpr std::uint64_t kCrc32cPolynomial = 0x82F63B78U;
constexpr std::uint64_t kCrc64NvmePolynomial = 0x9A6C9329AC4BC9B5U;

std::string big_endian(std::uint64_t value, std::size_t size) {
    std::string raw(size, '\0');
    for (std::size_t i = 0; i < size; ++i) {
        raw[size - 1 - i] = static_cast<char>((value >> (8 * i)) & 0xFFU);
    }
    return raw;
}

std::uint64_t from_big_endian(std::string_view raw) {
    std::uint64_t value = 0;
    for (const char byte : raw) {
        value = (value << 8) | static_cast<unsigned char>(byte);
    }
    return value;
}

// ISA-L takes lengths as int and its inputs as non-const.
constexpr std::size_t kIsalStep = std::size_t{1} << 30;

class Crc32cDigest final : public Digest {
public:
    void update(std::span<const std::byte> bytes) override {
        while (!bytes.empty()) {
            const auto step = bytes.first(std::min(bytes.size(), kIsalStep));
            auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(step.data()));
            state_ = crc32_iscsi(data, static_cast<int>(step.size()), state_);
            bytes = bytes.subspan(step.size());
        }
    }
    std::string finish() override { return big_endian(~state_, 4); }

private:
    std::uint32_t state_ = 0xFFFFFFFFU;
};

class Crc32Digest final : public Digest {
public:
    void update(std::span<const std::byte> bytes) override {
        state_ = crc32_gzip_refl(state_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    }
    std::string finish() override { return big_endian(state_, 4); }

private:
    std::uint32_t state_ = 0;
};

using Crc64Tables = std::array<std::array<std::uint64_t, 256>, 8>;

Crc64Tables make_crc64_tables() {
    Crc64Tables tables{};
    for (std::uint64_t byte = 0; byte < 256; ++byte) {
        std::uint64_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kCrc64NvmePolynomial : 0);
        }
        tables[0][byte] = crc;
    }
    for (std::size_t slice = 1; slice < tables.size(); ++slice) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint64_t previous = tables[slice - 1][byte];
            tables[slice][byte] = (previous >> 8) ^ tables[0][previous & 0xFFU];
        }
    }
    return tables;
}

class Crc64NvmeDigest final : public Digest {
public:
    void update(std::span<const std::byte> bytes) override {
        static const Crc64Tables tables = make_crc64_tables();
        static_assert(std::endian::native == std::endian::little);
        while (bytes.size() >= 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, bytes.data(), sizeof(word));
            word ^= state_;
            state_ = 0;
            for (std::size_t i = 0; i < 8; ++i) {
                state_ ^= tables[7 - i][(word >> (8 * i)) & 0xFFU];
            }
            bytes = bytes.subspan(8);
        }
        for (const std::byte byte : bytes) {
            state_ = (state_ >> 8) ^ tables[0][(state_ ^ std::to_integer<std::uint64_t>(byte)) & 0xFFU];
        }
    }
    std::string finish() override { return big_endian(~state_, 8); }

private:
    std::uint64_t state_ = ~std::uint64_t{0};
};

class EvpDigest final : public Digest {
public:
    explicit EvpDigest(const EVP_MD* algorithm) : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
        EVP_DigestInit_ex(context_.get(), algorithm, nullptr);
    }
    void update(std::span<const std::byte> bytes) override {
        EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
    }
    std::string finish() override {
        std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
        unsigned int size = 0;
        EVP_DigestFinal_ex(context_.get(), raw.data(), &size);
        return {reinterpret_cast<const char*>(raw.data()), size};
    }

private:
    std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// Product of two polynomials modulo the CRC's; bit-reflected, so x^0 is the highest bit.
std::uint64_t multiply_mod(std::uint64_t a, std::uint64_t b, std::uint64_t polynomial, unsigned width) {
    const std::uint64_t one = std::uint64_t{1} << (width - 1);
    std::uint64_t product = 0;
    for (std::uint64_t bit = one; bit != 0; bit >>= 1) {
        if ((a & bit) != 0) {
            product ^= b;
        }
        b = (b >> 1) ^ ((b & 1U) != 0 ? polynomial : 0);
    }
    return product;
}

}  // namespace

std::unique_ptr<Digest> make_digest(DigestKind kind) {
    switch (kind) {
        case DigestKind::kCrc32:
            return std::make_unique<Crc32Digest>();
        case DigestKind::kCrc32c:
            return std::make_unique<Crc32cDigest>();
        case DigestKind::kCrc64Nvme:
            return std::make_unique<Crc64NvmeDigest>();
        case DigestKind::kMd5:
            return std::make_unique<EvpDigest>(EVP_md5());
        case DigestKind::kSha1:
            return std::make_unique<EvpDigest>(EVP_sha1());
        case DigestKind::kSha256:
            break;
    }
    return std::make_unique<EvpDigest>(EVP_sha256());
}

std::string digest_of(DigestKind kind, std::string_view bytes) {
    const auto digest = make_digest(kind);
    digest->update(std::as_bytes(std::span(bytes)));
    return digest->finish();
}

std::string digest_of(DigestKind kind, const ByteChain& bytes) {
    const auto digest = make_digest(kind);
    for (std::size_t i = 0; i < bytes.slice_count(); ++i) {
        digest->update(bytes.slice(i).bytes());
    }
    return digest->finish();
}

std::size_t digest_size(DigestKind kind) {
    switch (kind) {
        case DigestKind::kCrc32:
        case DigestKind::kCrc32c:
            return 4;
        case DigestKind::kCrc64Nvme:
            return 8;
        case DigestKind::kMd5:
            return 16;
        case DigestKind::kSha1:
            return 20;
        case DigestKind::kSha256:
            break;
    }
    return 32;
}

bool is_crc(DigestKind kind) {
    return kind == DigestKind::kCrc32 || kind == DigestKind::kCrc32c || kind == DigestKind::kCrc64Nvme;
}

std::string join_crcs(DigestKind kind, std::string_view first, std::string_view second, std::uint64_t second_length) {
    const std::uint64_t polynomial = kind == DigestKind::kCrc32    ? kCrc32Polynomial
                                     : kind == DigestKind::kCrc32c ? kCrc32cPolynomial
                                                                   : kCrc64NvmePolynomial;
    const unsigned width = kind == DigestKind::kCrc64Nvme ? 64 : 32;
    std::uint64_t shifted = from_big_endian(first);
    // Appending n bytes multiplies the first CRC by x^(8n); x^8 is squared once per bit of n.
    std::uint64_t factor = std::uint64_t{1} << (width - 9);
    for (; second_length != 0; second_length >>= 1) {
        if ((second_length & 1U) != 0) {
            shifted = multiply_mod(shifted, factor, polynomial, width);
        }
        factor = multiply_mod(factor, factor, polynomial, width);
    }
    return big_endian(shifted ^ from_big_endian(second), width / 8);
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
    unsigned int size = 0;
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(message.data()),
         message.size(), raw.data(), &size);
    return {reinterpret_cast<const char*>(raw.data()), size};
}

std::string to_hex(std::string_view raw) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    text.reserve(raw.size() * 2);
    for (const char byte : raw) {
        const auto value = static_cast<unsigned char>(byte);
        text.push_back(kDigits[value >> 4U]);
        text.push_back(kDigits[value & 0xFU]);
    }
    return text;
}

std::string to_base64(std::string_view raw) {
    std::string text(4 * ((raw.size() + 2) / 3) + 1, '\0');
    const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(raw.data()), static_cast<int>(raw.size()));
    text.resize(static_cast<std::size_t>(size));
    return text;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.empty() || text.size() % 4 != 0 || text.size() > 8192) {
        return std::nullopt;
    }
    const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    if (text.find('=') < text.size() - padding) {
        return std::nullopt;
    }
    std::string raw(text.size() / 4 * 3, '\0');
    const int size =
        EVP_DecodeBlock(reinterpret_cast<unsigned char*>(raw.data()),
                        reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
    if (size < 0) {
        return std::nullopt;
    }
    raw.resize(static_cast<std::size_t>(size) - padding);
    return raw;
}

}  // namespace ckptfs::s3sim
