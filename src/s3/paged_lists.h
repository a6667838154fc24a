// SPDX-License-Identifier: Apache-2.0
// Lists of several pages, one after the other.
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

// A page of objects. A store may answer with fewer keys than it has, or with none, as where it has passed over many
// deleted ones: the page goes on until it has some, so that a short page is the end of the list.
void list_page(const std::shared_ptr<RequestSender>& sender, ListRequest request, StoreDone<ListResponse> done);
// Whole lists.
void list_all_uploads(const std::shared_ptr<RequestSender>& sender, const std::string& prefix,
                      StoreDone<std::vector<OpenUpload>> done);
void list_all_parts(const std::shared_ptr<RequestSender>& sender, const UploadId& upload,
                    StoreDone<std::vector<UploadedPart>> done);

}  // namespace ckptfs::s3
