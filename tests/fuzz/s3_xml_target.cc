// SPDX-License-Identifier: Apache-2.0
// Whatever a store answers in a body: an Error, or values that the rest may rely on.
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "require.h"
#include "s3/xml.h"

namespace ckptfs {
namespace {

constexpr auto kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

void require_etag(const std::string& etag) {
    CKPTFS_REQUIRE(etag.empty() || etag.back() == '"');
}

void check_list(std::string_view body) {
    const auto list = s3::parse_list_result(body);
    if (!list) {
        return;
    }
    std::vector<RemoveRequest> removals;
    for (const ObjectInfo& object : list->objects) {
        CKPTFS_REQUIRE(!object.key.empty());
        CKPTFS_REQUIRE(object.size <= kMaxOffset);
        require_etag(object.etag);
        removals.push_back({object.key, object.etag});
    }
    for (const std::string& prefix : list->common_prefixes) {
        CKPTFS_REQUIRE(!prefix.empty());
    }
    CKPTFS_REQUIRE(s3::delete_objects_body(removals).size() >= removals.size());
}

void check_session(std::string_view body) {
    const auto session = s3::parse_assumed_role(body);
    CKPTFS_REQUIRE(!session || (!session->access_key_id.empty() && session->expires));
}

void check_uploads(std::string_view body) {
    const auto page = s3::parse_upload_page(body);
    if (!page) {
        return;
    }
    for (const OpenUpload& open : page->uploads) {
        CKPTFS_REQUIRE(!open.upload.key.empty() && !open.upload.id.empty());
    }
    CKPTFS_REQUIRE(!page->truncated || !page->next_key_marker.empty());
}

void check_parts(std::string_view body) {
    const auto page = s3::parse_part_page(body);
    if (!page) {
        return;
    }
    for (const UploadedPart& part : page->parts) {
        CKPTFS_REQUIRE(part.part_number >= 1 && part.size <= kMaxOffset);
        require_etag(part.etag);
    }
    CKPTFS_REQUIRE(!page->truncated || page->next_part_number_marker >= 1);
    CKPTFS_REQUIRE(!s3::complete_upload_body(page->parts).empty());
}

void check(std::string_view body) {
    check_list(body);
    check_uploads(body);
    check_parts(body);
    check_session(body);
    static_cast<void>(s3::parse_error_body(body));
    static_cast<void>(s3::parse_delete_result(body));
    if (const auto created = s3::parse_created_upload(body)) {
        CKPTFS_REQUIRE(!created->upload_id.empty());
    }
    for (const auto& written : {s3::parse_complete_result(body), s3::parse_copy_result(body)}) {
        CKPTFS_REQUIRE(!written || !written->etag.empty());
    }
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    ckptfs::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
