// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on every file of a folder, and on the beginnings and single changed bytes of each.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "require.h"

namespace {

void run(const std::string& input) {
    // An exact copy on the heap, so that the address sanitizer sees a read behind its end.
    const std::vector<unsigned char> bytes(input.begin(), input.end());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

void run_variants(const std::string& input) {
    run(input);
    const std::size_t step = std::max<std::size_t>(input.size() / 200, 1);
    for (std::size_t i = 0; i < input.size(); i += step) {
        run(input.substr(0, i));
        for (const char byte : {'\0', '<', '-', '9', '\xff'}) {
            std::string changed = input;
            changed[i] = byte;
            run(changed);
        }
    }
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: " << arguments[0] << " FOLDER\n";
        return 2;
    }
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(arguments[1])) {
        std::ifstream file(entry.path(), std::ios::binary);
        run_variants(std::string(std::istreambuf_iterator<char>(file), {}));
        ++files;
    }
    std::cout << files << " files\n";
    return files == 0 ? 1 : 0;
}
