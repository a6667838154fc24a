// SPDX-License-Identifier: Apache-2.0
// What a fuzz target holds to be true of every input.
#pragma once

#include <cstdio>
#include <cstdlib>

// Not assert(): release builds replay the corpus, too.
#define CKPTFS_REQUIRE(condition)                                                          \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                                  \
        }                                                                                  \
    } while (false)

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);
