// SPDX-License-Identifier: Apache-2.0
#include "fuse/directory_reply.h"

#include <fuse_lowlevel.h>
#include <linux/fuse.h>

#include <algorithm>

#include "fuse/replies.h"

namespace ckptfs {
namespace {

// A guess at the length of a name; checkpoint files have names like "__3_1.distcp" or "model-00001-of-00007".
constexpr std::size_t kUsualName = 24;

// libfuse only formats here and does not look at the request, which may have been answered meanwhile.
std::size_t add_entry(char* target, std::size_t room, const fs::DirectoryEntry& entry, bool with_attributes) {
    const auto next = static_cast<off_t>(entry.next_offset);
    if (with_attributes) {
        const fuse_entry_param param = to_entry(entry.entry);
        return fuse_add_direntry_plus(nullptr, target, room, entry.name.c_str(), &param, next);
    }
    const struct stat status = to_stat(entry.entry.attributes);
    return fuse_add_direntry(nullptr, target, room, entry.name.c_str(), &status, next);
}

// The kernel takes no lookup for these.
bool is_dot(const std::string& name) {
    return name == "." || name == "..";
}

}  // namespace

std::size_t entries_that_fit(std::size_t size, bool with_attributes) {
    const std::size_t entry = (with_attributes ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET) + kUsualName;
    return std::max<std::size_t>(size / entry, 1);
}

void reply_directory(fs::FileOperations& fs, PendingRequest& request, const std::vector<fs::DirectoryEntry>& entries,
                     std::size_t size, bool with_attributes) {
    std::vector<char> buffer(size);
    std::size_t used = 0;
    std::size_t sent = 0;
    for (; sent < entries.size(); ++sent) {
        const std::size_t needed = add_entry(buffer.data() + used, size - used, entries[sent], with_attributes);
        if (needed > size - used) {
            break;
        }
        used += needed;
    }
    if (!request.bytes({buffer.data(), used})) {
        sent = 0;
    }
    if (!with_attributes) {
        return;
    }
    for (; sent < entries.size(); ++sent) {
        if (entries[sent].entry.node != 0 && !is_dot(entries[sent].name)) {
            fs.forget(entries[sent].entry.node, 1);
        }
    }
}

}  // namespace ckptfs
