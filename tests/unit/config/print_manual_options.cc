// SPDX-License-Identifier: Apache-2.0
// Prints the OPTIONS section of man/ckptfs.1.scd as the options table has it.
#include <cstdio>

#include "config/options.h"

int main() {
    std::fputs(ckptfs::manual_options().c_str(), stdout);
    return 0;
}
