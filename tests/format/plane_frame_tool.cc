// SPDX-License-Identifier: Apache-2.0
// Makes a plane frame of a file: plane_frame_tool INPUT OUTPUT. OUTPUT is empty where a frame does not pay.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "codec/plane_frame.h"

int main(int count, char** arguments) {
    using namespace ckptfs;
    if (count != 3) {
        std::cerr << "usage: " << arguments[0] << " INPUT OUTPUT\n";
        return 2;
    }
    std::ifstream input(arguments[1], std::ios::binary);
    const std::string raw(std::istreambuf_iterator<char>(input), {});
    if (raw.empty() || raw.size() > kMaxPlaneFrameRaw) {
        std::cerr << arguments[1] << ": 1 byte to 1 MiB\n";
        return 1;
    }
    PlaneCoder coder;
    std::vector<std::byte> stored(PlaneCoder::bound(raw.size()));
    const std::size_t written = coder.encode(as_bytes(raw), stored);
    std::ofstream output(arguments[2], std::ios::binary);
    output.write(reinterpret_cast<const char*>(stored.data()), static_cast<std::streamsize>(written));
    return output.good() ? 0 : 1;
}
