// SPDX-License-Identifier: Apache-2.0
// What a file's object is, as extended attributes that can only be read: user.ckptfs.codec, .stored_size and .etag.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fs/shared_state.h"

namespace ckptfs::fs {

class ExtendedAttributes {
public:
    explicit ExtendedAttributes(SharedState& state) : state_(state) {}

    // Needs a request only for the codec of a file whose size does not show that it is plain.
    void get(NodeId node, std::string_view name, Reply<std::string> reply);
    void list(NodeId node, Reply<std::vector<std::string>> reply);

private:
    struct Committed {
        std::string key;
        ObjectVersion version;
    };
    // ENODATA for a directory, and for a file that has no object yet.
    Result<Committed> committed(NodeId node) const;
    void find_codec(Committed object, Reply<std::string> reply);

    SharedState& state_;
};

}  // namespace ckptfs::fs
