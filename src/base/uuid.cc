// SPDX-License-Identifier: Apache-2.0
#include "base/uuid.h"

#include <sys/random.h>

#include <array>
#include <cstddef>
#include <cstdlib>

#include "base/digest.h"

namespace ckptfs {

std::string random_uuid() {
    std::array<std::byte, 16> bytes{};
    // Up to 256 bytes come whole and without interruption (getrandom(2)).
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        std::abort();
    }
    bytes[6] = (bytes[6] & std::byte{0x0F}) | std::byte{0x40};
    bytes[8] = (bytes[8] & std::byte{0x3F}) | std::byte{0x80};
    std::string text = hex(bytes);
    for (const std::size_t position : {8U, 13U, 18U, 23U}) {
        text.insert(position, 1, '-');
    }
    return text;
}

}  // namespace ckptfs
