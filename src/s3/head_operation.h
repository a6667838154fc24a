// SPDX-License-Identifier: Apache-2.0
// HeadObject, and the one-byte GET that learns why it was refused.
#pragma once

#include <memory>
#include <string>

#include "ckptfs/object_store.h"
#include "s3/call.h"
#include "s3/request_sender.h"

namespace ckptfs::s3 {

// Replies to HEAD have no body, so an error arrives without its code: except for 404 and 412, which need none, the same
// object is requested by a GET of one byte. The reply to that counts, also if it is a success (credentials renewed or
// the clock corrected meanwhile).
void head_object(const std::shared_ptr<RequestSender>& sender, const std::string& key,
                 const std::shared_ptr<RetryState>& retry, StoreDone<ObjectInfo> done);

}  // namespace ckptfs::s3
