// SPDX-License-Identifier: Apache-2.0
#include "base/uuid.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>

#include "base/digest.h"

namespace ckptfs {
namespace {

constexpr std::array<std::size_t, 4> kDashes{8, 13, 18, 23};

bool is_hex_digit(char letter) {
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
}

}  // namespace

std::string random_uuid() {
    std::array<std::byte, 16> bytes{};
    // Up to 256 bytes come whole and without interruption (getrandom(2)).
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        std::abort();
    }
    bytes[6] = (bytes[6] & std::byte{0x0F}) | std::byte{0x40};
    bytes[8] = (bytes[8] & std::byte{0x3F}) | std::byte{0x80};
    std::string text = hex(bytes);
    for (const std::size_t position : kDashes) {
        text.insert(position, 1, '-');
    }
    return text;
}

bool is_uuid(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool dash = std::find(kDashes.begin(), kDashes.end(), i) != kDashes.end();
        if (dash ? text[i] != '-' : !is_hex_digit(text[i])) {
            return false;
        }
    }
    return text.size() == kUuidSize;
}

}  // namespace ckptfs
