// SPDX-License-Identifier: Apache-2.0
// DeleteObject and DeleteObjects.
//
// A removal that is pinned to an ETag and comes late, or twice, harms no later version. Where an answer was lost, a 412
// of the next attempt is success: the version may have gone with the first one, and another has its name.
//
// DeleteObjects names keys in XML: those that XML does not keep as they are go one by one. Its body needs a checksum:
// CRC32C, or MD5 (Content-MD5) where the store asks for that one; where this machine has no MD5 (FIPS 140), such a
// store gets one request for each key. Where a store refuses If-Match on DeleteObject, the version is looked at
// instead, before each attempt, and nothing is removed where it is another; it is for the caller to find out what is
// honoured before it relies on it. What the store was found to take is sent to it at once from then on
// (store_habits.h).
#pragma once

#include <memory>
#include <vector>

#include "ckptfs/object_store.h"
#include "s3/request_sender.h"

namespace ckptfs::s3 {

void delete_object(const std::shared_ptr<RequestSender>& sender, const RemoveRequest& request, StoreDone<void> done);

// At most 1,000 keys ("DeleteObjects", Amazon S3 API Reference); more are EINVAL. The answer names the keys that were
// not deleted; those whose reason passes have been tried again. `md5_properties`: as in md5().
void delete_objects(const std::shared_ptr<RequestSender>& sender, const RequestDefaults& defaults,
                    std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done,
                    const char* md5_properties = nullptr);

}  // namespace ckptfs::s3
