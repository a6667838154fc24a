// SPDX-License-Identifier: Apache-2.0
// Files of /proc hold names that any process can choose for itself.
#include <string_view>

#include "base/proc_text.h"
#include "require.h"

namespace ckptfs {
namespace {

void check(std::string_view text) {
    static_cast<void>(parse_task_stat(text));
    if (const auto status = parse_task_status(text)) {
        CKPTFS_REQUIRE(status->thread_group > 0);
    }
    static_cast<void>(may_trace_everyone(text));
    static_cast<void>(parse_descriptor_info(text));
    static_cast<void>(parse_open_call(text));
    const std::string_view name = text.substr(0, text.find('\n'));
    if (only_ends_in(text, name)) {
        CKPTFS_REQUIRE(text.ends_with(name));
    }
    static_cast<void>(find_mount_on(text, "/mnt"));
    if (const auto mount = find_mount_by_id(text, 30)) {
        CKPTFS_REQUIRE(mount->mount_id == 30);
    }
    static_cast<void>(is_locked(text, name, 30, 1));
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    ckptfs::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
