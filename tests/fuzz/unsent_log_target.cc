// SPDX-License-Identifier: Apache-2.0
// A log of unsent changes, as a disk gives it back.
#include <string>
#include <string_view>

#include "require.h"
#include "writeback/unsent_change.h"

namespace ckptfs {
namespace {

void check(std::string_view text) {
    const LogContents contents = parse_log(text);
    CKPTFS_REQUIRE(contents.whole <= text.size());
    // What was read is written so that it is read again.
    std::string written;
    for (const LogEntry& entry : contents.entries) {
        written += encode_entry(entry);
    }
    const LogContents again = parse_log(written);
    CKPTFS_REQUIRE(again.entries.size() == contents.entries.size() && again.whole == written.size());
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    ckptfs::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
