// SPDX-License-Identifier: Apache-2.0
// DeleteObject and DeleteObjects.
//
// A removal that is pinned to an ETag and arrives late, or twice, does not remove a later version. After a lost reply,
// a 412 for the next attempt is success: the first attempt may have removed the version, and another one has its name.
//
// DeleteObjects names keys in XML: keys that XML does not preserve are removed one by one. Its body needs a checksum:
// CRC32C, or MD5 (Content-MD5) if the store asks for that; if this machine has no MD5 (FIPS 140), such a store gets one
// request for each key. If a store refuses If-Match on DeleteObject, the version is checked with HEAD before each
// attempt instead, and nothing is removed if it is another; a caller has to find out what is honoured before it relies
// on it. What the store was found to accept is sent at once from then on (store_habits.h).
#pragma once

#include <memory>
#include <vector>

#include "ckptfs/object_store.h"
#include "s3/request_sender.h"

namespace ckptfs::s3 {

void delete_object(const std::shared_ptr<RequestSender>& sender, const RemoveRequest& request, StoreDone<void> done);

// At most 1,000 keys ("DeleteObjects", Amazon S3 API Reference); more are EINVAL. `done` gets the keys that were not
// deleted; those that failed for a reason that passes have been retried. `md5_properties`: as in md5().
void delete_objects(const std::shared_ptr<RequestSender>& sender, const RequestDefaults& defaults,
                    std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done,
                    const char* md5_properties = nullptr);

}  // namespace ckptfs::s3
