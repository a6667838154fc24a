// SPDX-License-Identifier: Apache-2.0
// DeleteObjects: the answer names the keys that were not deleted, and those whose reason passes are sent again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckptfs/object_store.h"
#include "s3/request_sender.h"

namespace ckptfs {

// At most 1,000 keys ("DeleteObjects", Amazon S3 API Reference); more are EINVAL.
void delete_objects(const std::shared_ptr<RequestSender>& sender, std::vector<std::string> keys,
                    StoreDone<std::vector<DeleteFailure>> done);

}  // namespace ckptfs
