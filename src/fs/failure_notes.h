// SPDX-License-Identifier: Apache-2.0
// Where a mount writes down which files have failed and are not recorded in the bucket yet, for the mount after a kill.
//
// Threads: called from any thread, without locks held; for one file in the order of what happened.
#pragma once

#include <functional>
#include <string>

namespace ckptfs::fs {

struct FailureNotes {
    // `record`: for FileSystem::recall_failure(). Again where the file has failed again.
    std::function<void(const std::string& key, const std::string& record)> begun = [](const auto&, const auto&) {};
    // The bucket says so, or the file was made good.
    std::function<void(const std::string& key)> ended = [](const auto&) {};
};

}  // namespace ckptfs::fs
