// SPDX-License-Identifier: Apache-2.0
#include "base/prefault.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "support/eventually.h"

namespace ckptfs {
namespace {

class Mapping {
public:
    explicit Mapping(std::size_t size)
        : memory_(
              static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
              size) {}
    ~Mapping() { munmap(memory_.data(), memory_.size()); }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    [[nodiscard]] MutableByteSpan bytes() const { return memory_; }
    [[nodiscard]] std::size_t resident_pages() const {
        std::vector<unsigned char> pages(memory_.size() / static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
        mincore(memory_.data(), memory_.size(), pages.data());
        return static_cast<std::size_t>(
            std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1U) != 0; }));
    }
    [[nodiscard]] std::size_t pages() const { return memory_.size() / static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

private:
    MutableByteSpan memory_;
};

TEST(Prefault, TouchesAllOfItAndChangesNothing) {
    const Mapping mapping(std::size_t{20} << 20);
    mapping.bytes()[12345] = std::byte{7};
    const Prefault prefault(mapping.bytes(), Milliseconds(0));
    EXPECT_TRUE(testing::eventually([&] { return mapping.resident_pages() == mapping.pages(); }));
    EXPECT_EQ(mapping.bytes()[12345], std::byte{7});
    EXPECT_EQ(mapping.bytes().back(), std::byte{0});
}

TEST(Prefault, EndsBeforeItHasBegun) {
    const Mapping mapping(std::size_t{20} << 20);
    { const Prefault prefault(mapping.bytes(), std::chrono::hours(1)); }
    EXPECT_EQ(mapping.resident_pages(), 0U);
}

}  // namespace
}  // namespace ckptfs
