// SPDX-License-Identifier: Apache-2.0
// Lists that are fetched whole: all pages, one after the other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "s3/request_sender.h"

namespace ckptfs::s3 {

// EPROTO, for a store whose marker does not advance: it would be asked for the same page forever.
[[nodiscard]] Failure repeats_a_page(const char* operation);

void list_all_uploads(const std::shared_ptr<RequestSender>& sender, const std::string& prefix,
                      StoreDone<std::vector<OpenUpload>> done);
void list_all_parts(const std::shared_ptr<RequestSender>& sender, const UploadId& upload,
                    StoreDone<std::vector<UploadedPart>> done);

}  // namespace ckptfs::s3
