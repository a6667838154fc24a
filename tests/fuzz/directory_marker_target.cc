// SPDX-License-Identifier: Apache-2.0
// What a bucket holds in place of the marker of a rename, or of its list of names.
#include "fs/objects/directory_marker.h"
#include "require.h"

namespace ckptfs {
namespace {

void check_marker(std::string_view bytes) {
    const auto marker = fs::parse_marker(bytes);
    if (!marker) {
        return;
    }
    CKPTFS_REQUIRE(marker->source.starts_with(marker->prefix) && marker->source.ends_with('/'));
    CKPTFS_REQUIRE(marker->destination.starts_with(marker->prefix) && marker->destination.ends_with('/'));
    CKPTFS_REQUIRE(!marker->source.starts_with(marker->destination));
    CKPTFS_REQUIRE(!marker->destination.starts_with(marker->source));
    const auto paths = fs::recorded_paths(marker->prefix, fs::record_key(*marker));
    CKPTFS_REQUIRE(paths && paths->source == fs::path_hash(marker->source));
    const auto again = fs::parse_marker(fs::encode_marker(*marker));
    CKPTFS_REQUIRE(again && again->source == marker->source && again->state == marker->state);
}

void check(std::string_view bytes) {
    check_marker(bytes);
    std::string filled(bytes);
    filled.resize(fs::kDirectoryMarkerSize);
    check_marker(filled);
    if (const auto names = fs::parse_names(bytes)) {
        CKPTFS_REQUIRE(fs::encode_names(*names) == bytes);
    }
    static_cast<void>(fs::recorded_paths("", bytes));
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    ckptfs::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
