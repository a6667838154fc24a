// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

namespace ckptfs {

namespace {

// RFC 3629, section 3: what follows from the first byte.
struct Sequence {
    std::size_t size = 0;
    // The bits of the code point that the first byte has.
    char32_t bits = 0;
    // A smaller value is an overlong form.
    char32_t least = 0;
};

Sequence sequence_of(unsigned char first) {
    if (first < 0x80) {
        return {1, first, 0};
    }
    if ((first & 0xE0) == 0xC0) {
        return {2, first & 0x1FU, 0x80};
    }
    if ((first & 0xF0) == 0xE0) {
        return {3, first & 0x0FU, 0x800};
    }
    if ((first & 0xF8) == 0xF0) {
        return {4, first & 0x07U, 0x10000};
    }
    return {};
}

bool is_surrogate(char32_t value) {
    return value >= 0xD800 && value <= 0xDFFF;
}

}  // namespace

std::optional<CodePoint> first_code_point(std::string_view text) {
    if (text.empty()) {
        return std::nullopt;
    }
    const Sequence sequence = sequence_of(static_cast<unsigned char>(text.front()));
    if (sequence.size == 0 || text.size() < sequence.size) {
        return std::nullopt;
    }
    char32_t value = sequence.bits;
    for (const char each : text.substr(1, sequence.size - 1)) {
        const auto byte = static_cast<unsigned char>(each);
        if ((byte & 0xC0) != 0x80) {
            return std::nullopt;
        }
        value = (value << 6) | (byte & 0x3FU);
    }
    if (value < sequence.least || value > 0x10FFFF || is_surrogate(value)) {
        return std::nullopt;
    }
    return CodePoint{value, sequence.size};
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const auto point = first_code_point(text);
        if (!point) {
            return false;
        }
        text.remove_prefix(point->size);
    }
    return true;
}

}  // namespace ckptfs
