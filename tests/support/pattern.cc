// SPDX-License-Identifier: Apache-2.0
#include "support/pattern.h"

namespace ckptfs::testing {

std::string pattern(std::uint64_t size, std::uint64_t offset) {
    std::string text(size, '\0');
    std::uint64_t place = offset;
    for (char& byte : text) {
        byte = static_cast<char>('A' + (place ^ (place >> 8) ^ (place >> 20)) % 53);
        ++place;
    }
    return text;
}

}  // namespace ckptfs::testing
