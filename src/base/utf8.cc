// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <cstddef>

namespace ckptfs {

namespace {

unsigned byte_at(std::string_view text, std::size_t place) {
    return static_cast<unsigned char>(text[place]);
}

// RFC 3629, section 4: what the second byte may be follows from the first.
struct Sequence {
    std::size_t length = 0;
    unsigned least_second = 0x80;
    unsigned greatest_second = 0xBF;
};

Sequence sequence_of(unsigned first) {
    if (first < 0x80) {
        return {1};
    }
    if (first >= 0xC2 && first <= 0xDF) {
        return {2};
    }
    if (first >= 0xE0 && first <= 0xEF) {
        return {3, first == 0xE0 ? 0xA0U : 0x80U, first == 0xED ? 0x9FU : 0xBFU};
    }
    if (first >= 0xF0 && first <= 0xF4) {
        return {4, first == 0xF0 ? 0x90U : 0x80U, first == 0xF4 ? 0x8FU : 0xBFU};
    }
    return {};
}

}  // namespace

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const Sequence sequence = sequence_of(byte_at(text, 0));
        if (sequence.length == 0 || sequence.length > text.size()) {
            return false;
        }
        for (std::size_t place = 1; place < sequence.length; ++place) {
            const unsigned byte = byte_at(text, place);
            const bool second = place == 1;
            if (byte < (second ? sequence.least_second : 0x80) || byte > (second ? sequence.greatest_second : 0xBF)) {
                return false;
            }
        }
        text.remove_prefix(sequence.length);
    }
    return true;
}

}  // namespace ckptfs
