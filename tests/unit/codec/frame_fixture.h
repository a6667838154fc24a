// SPDX-License-Identifier: Apache-2.0
// Frames to look at.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "codec/container.h"
#include "codec/frame_coding.h"

namespace ckptfs::testing {

inline std::string noise(std::size_t size) {
    std::mt19937_64 random(size);
    std::string bytes(size, '\0');
    for (char& byte : bytes) {
        byte = static_cast<char>(random());
    }
    return bytes;
}

struct Coded {
    EncodedFrame frame;
    std::string stored;
};

inline Coded encode(const Payload& raw, FrameCoding coding = {}) {
    std::vector<std::byte> output(kMaxStoredFrame);
    Coded coded;
    coded.frame = encode_frame(raw, output, coding).value();
    coded.stored = coded.frame.stored ? coded.frame.stored->to_string()
                                      : std::string(as_text(ByteSpan(output).first(coded.frame.record.stored_size)));
    return coded;
}

}  // namespace ckptfs::testing
