// SPDX-License-Identifier: Apache-2.0
// The XML bodies of S3, both ways. Pure; the one place that names the XML library.
//
// What comes in is hostile until checked: sizes and counts are bounded, and anything that is not what was asked for is
// an Error (EPROTO, retryable: a body can be cut short), never a crash.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aws/credentials.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "s3/error_table.h"

namespace ckptfs::s3 {

// The body's <Error>; empty if the body is something else.
[[nodiscard]] std::optional<S3ErrorBody> parse_error_body(std::string_view body);

// The reply to AssumeRole and AssumeRoleWithWebIdentity of the Security Token Service.
[[nodiscard]] Result<Credentials> parse_assumed_role(std::string_view body);

[[nodiscard]] Result<ListResponse> parse_list_result(std::string_view body);

struct CreatedUpload {
    std::string upload_id;
};
[[nodiscard]] Result<CreatedUpload> parse_created_upload(std::string_view body);

// CompleteMultipartUploadResult, CopyObjectResult and CopyPartResult.
struct WrittenObject {
    std::string etag;
    std::optional<WallTime> last_modified;
    std::string checksum_crc32c;
};
[[nodiscard]] Result<WrittenObject> parse_complete_result(std::string_view body);
[[nodiscard]] Result<WrittenObject> parse_copy_result(std::string_view body);

struct UploadPage {
    std::vector<OpenUpload> uploads;
    // False if the store has not said whether its keys are encoded, and one of them may be.
    bool are_keys_known = true;
    bool truncated = false;
    std::string next_key_marker;
    std::string next_upload_id_marker;
};
[[nodiscard]] Result<UploadPage> parse_upload_page(std::string_view body);

struct PartPage {
    std::vector<UploadedPart> parts;
    bool truncated = false;
    int next_part_number_marker = 0;
};
[[nodiscard]] Result<PartPage> parse_part_page(std::string_view body);

struct KeyFailure {
    std::string key;
    S3ErrorBody error;
};
[[nodiscard]] Result<std::vector<KeyFailure>> parse_delete_result(std::string_view body);

[[nodiscard]] std::string complete_upload_body(const std::vector<UploadedPart>& parts);
// Quiet: the reply names only what was not deleted.
[[nodiscard]] std::string delete_objects_body(const std::vector<RemoveRequest>& requests);
// Whether every XML parser reads this text back unchanged. XML 1.0 has no control characters, makes a newline of a
// carriage return, and may drop blanks at the ends.
[[nodiscard]] bool is_plain_in_xml(std::string_view text);

}  // namespace ckptfs::s3
