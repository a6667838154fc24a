// SPDX-License-Identifier: Apache-2.0
#pragma once

// S3's rules for CompleteMultipartUpload: which parts make which object. Pure.

#include <string>
#include <vector>

#include "object_table.h"

namespace ckptfs::s3sim {

// The object without ETag and time.
Outcome<Object> assemble_object(const Upload& upload, const CompleteRequest& request);

// The MD5 of the parts' MD5s in hex, without "-N"; the parts' ETags must be MD5s.
std::string multipart_md5_etag(const Upload& upload, const std::vector<CompletedPart>& parts);

}  // namespace ckptfs::s3sim
