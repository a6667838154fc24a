// SPDX-License-Identifier: Apache-2.0
// What a daemon of any version, or whoever sits at its socket, answers to `ckptfs status`.
#include <string>
#include <string_view>

#include "daemon/status_json.h"
#include "require.h"

namespace ckptfs {
namespace {

void check(std::string_view text) {
    const Result<MountStatus> status = parse_status(text);
    if (!status) {
        CKPTFS_REQUIRE(status.error().errno_value == EPROTO);
        return;
    }
    const std::string written = json_of(*status);
    const Result<MountStatus> again = parse_status(written);
    CKPTFS_REQUIRE(again && json_of(*again) == written);
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    ckptfs::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
