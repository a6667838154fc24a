// SPDX-License-Identifier: Apache-2.0
// Keys of files that have no name yet:
//
//   PREFIX .ckptfs/tmp/ DIR/ file-MOUNT-UUID/ NAME
//
// No listing shows them, yet a mount that commits in DIR, or above it, finds them: a file is being written there. The
// last component is the file's own, by which it is decided how it is stored.
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ckptfs {

struct HiddenPlace {
    // The prefix of the mount's keys; empty, or ends in '/'.
    std::string prefix;
    // A UUID.
    std::string mount_id;
};

// A hidden key, a new one at every call, for the file that is to become `key`; an unseen key if it would be too long.
[[nodiscard]] std::string new_hidden_key(const HiddenPlace& place, const std::string& key);
// A new key for a file that is never to be published: no commit waits for it. `key` was its name.
[[nodiscard]] std::string new_unseen_key(const HiddenPlace& place, const std::string& key);
// What the hidden keys of all files below a directory begin with. `directory` is empty, or ends in '/'.
[[nodiscard]] std::string hidden_prefix(const std::string& prefix, const std::string& directory);

struct HiddenFile {
    // The key that the file is to get.
    std::string key;
    std::string mount_id;
};
[[nodiscard]] std::optional<HiddenFile> parse_hidden_key(const std::string& prefix, std::string_view hidden);

}  // namespace ckptfs
