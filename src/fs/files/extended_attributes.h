// SPDX-License-Identifier: Apache-2.0
// Describes a file's object by extended attributes that can only be read: user.ckptfs.codec, .stored_size and .etag.
// With --cache-dir also by user.ckptfs.kept, how many of the file's bytes this node keeps; removing that attribute
// drops them.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class ExtendedAttributes {
public:
    explicit ExtendedAttributes(SharedState& state) : state_(state) {}

    // Sends a request only for the codec of a file whose size does not show that it is plain, and for what is kept.
    void get(NodeId node, std::string_view name, Reply<std::string> reply);
    void list(NodeId node, Reply<std::vector<std::string>> reply);
    void remove(NodeId node, std::string_view name, Reply<void> reply);

private:
    struct Committed {
        std::string key;
        ObjectVersion version;
    };
    // ENODATA for a directory, and for a file that has no object yet.
    Result<Committed> committed(NodeId node) const;
    void find_codec(Committed object, Reply<std::string> reply);
    // HEAD of the object; ESTALE if another version is there by now.
    void describe(const Committed& object, Reply<ObjectInfo> reply);

    SharedState& state_;
};

}  // namespace ckptfs::fs
