// SPDX-License-Identifier: Apache-2.0
// What describes an object in the record of --cache-only, as a disk gives it back.
#include <optional>
#include <string_view>

#include "disk/object_text.h"
#include "require.h"

namespace ckptfs {
namespace {

void check(std::string_view text) {
    const std::optional<SeenObject> seen = object_of_text(text);
    if (!seen) {
        return;
    }
    // What was read is written so that the same is read again.
    const std::optional<SeenObject> again = object_of_text(text_of_object(*seen));
    CKPTFS_REQUIRE(again.has_value());
    CKPTFS_REQUIRE(text_of_object(*again) == text_of_object(*seen));
    CKPTFS_REQUIRE(again->info.size == seen->info.size && again->info.etag == seen->info.etag &&
                   again->info.last_modified == seen->info.last_modified && again->is_described == seen->is_described &&
                   again->info.metadata == seen->info.metadata &&
                   again->info.other_headers == seen->info.other_headers);
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    ckptfs::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
