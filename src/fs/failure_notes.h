// SPDX-License-Identifier: Apache-2.0
// Where a mount writes down which files have failed and have no record in the bucket yet, for the next mount after a
// kill.
//
// Threads: called from any thread, without locks held; the calls for one file come in order.
#pragma once

#include <functional>
#include <string>

namespace ckptfs::fs {

struct FailureNotes {
    // The file has failed, perhaps not for the first time. `record`: for FileSystem::recall_failure().
    std::function<void(const std::string& key, const std::string& record)> begun = [](const auto&, const auto&) {};
    // The record is in the bucket, or the failure was resolved.
    std::function<void(const std::string& key)> ended = [](const auto&) {};
};

}  // namespace ckptfs::fs
