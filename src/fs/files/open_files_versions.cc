// SPDX-License-Identifier: Apache-2.0
// Opens of a name that holds another version than the node by which the kernel opens it. ESTALE makes the kernel look
// the name up again, once: so the open that comes back is expected, and gets what the lookup has found. What was asked
// of the bucket before the open began does not count for it: another mount may have replaced that since.
#include <fcntl.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "fs/files/open_files.h"

namespace ckptfs::fs {

Failure OpenFiles::give_new_node(const NodeTable::Lock& lock, const NodePtr& node, const ObjectVersion& version,
                                 std::shared_ptr<FileReader> reader, ExpectedOpen expected) {
    const NodePtr fresh = state_.nodes.link_new(lock, node->parent, node->name, version.type);
    fresh->committed = version;
    fresh->checked = expected.asked != SteadyTime{} ? expected.asked : state_.env.clock.now();
    if (node->committed && node->committed->etag == version.etag) {
        fresh->was_there(node->checked);
    }
    fresh->reader = std::move(reader);
    state_.nodes.expect(lock, *fresh, expected);
    return failure(ESTALE, node->name + " holds another version now");
}

bool OpenFiles::may_take_version(const NodeTable::Lock& /*lock*/, const OpenRequest& request) {
    const Node& node = *request.node;
    return request.expected && !node.removed && node.writer == nullptr && node.open_handles == 0;
}

void OpenFiles::take_version(const NodeTable::Lock& lock, const OpenRequest& request, const ObjectVersion& version,
                             std::shared_ptr<FileReader> reader) {
    Node& node = *request.node;
    for (const NodePtr& follower : NodeTable::followers(lock, node)) {
        // The version is not what the followers have read, grown.
        state_.nodes.stop_following(lock, follower);
    }
    node.committed = version;
    node.reader = std::move(reader);
    node.checked = request.asked;
    node.is_other_than_looked_up = true;
    state_.env.kernel_cache.invalidate_attributes(node.id);
}

// The name was believed to exist, and is free by now: after ESTALE the kernel looks it up again, and makes the file
// where the caller asked for that (O_CREAT).
Failure OpenFiles::not_found_or(const NodeTable::Lock& lock, const NodePtr& node, Error error) {
    if (error.errno_value != ENOENT || node->has_its_name_here()) {
        return failure(std::move(error));
    }
    // Else the lookup would find the name there once more, also that of a file that failed.
    lookups_.forget_listed(node->parent->id, node->name);
    state_.failed.looked_at(state_.key(lock, *node));
    state_.nodes.unlink(lock, node);
    return failure(ESTALE, std::move(error.message));
}

Failure OpenFiles::give_writers_node(const NodeTable::Lock& lock, const NodePtr& node, ExpectedOpen expected,
                                     int flags) {
    Failure look_again = give_new_node(lock, node, *node->committed, node->reader, expected);
    if ((flags & O_APPEND) != 0 && !node->passes_through()) {
        NodeTable::follow(lock, node, state_.nodes.child(lock, node->parent, node->name));
    }
    return look_again;
}

void OpenFiles::expect_again(const NodeTable::Lock& lock, const OpenRequest& request, const std::string& found_etag) {
    const Node& node = *request.node;
    if (node.removed || node.parent == nullptr) {
        return;
    }
    const NodePtr named = state_.nodes.child(lock, node.parent, node.name);
    if (named != nullptr && named->committed && !found_etag.empty() && named->committed->etag == found_etag) {
        named->was_there(request.asked);
    }
    if (named != nullptr && named->passes_through() && writes(request.flags)) {
        static_cast<void>(give_new_node(lock, named, *named->committed, named->reader, expectation(request)));
    } else {
        state_.nodes.expect(lock, node.parent, node.name, expectation(request));
    }
}

// The caller was told to look again, and when it came back yet another version had the name: it gets what it looked up,
// or what is there by now.
bool OpenFiles::is_served_as_looked_up(const NodeTable::Lock& lock, const OpenRequest& request) const {
    const Node& node = *request.node;
    if (node.linked || node.removed || (node.reader == nullptr && node.writer != nullptr) || writes(request.flags)) {
        return false;
    }
    const NodePtr named = state_.nodes.child(lock, node.parent, node.name);
    return named != nullptr && take_expected(lock, *named, request.thread, false);
}

bool OpenFiles::take_expected(const NodeTable::Lock& /*lock*/, Node& node, pid_t thread, bool writes) const {
    const SteadyTime now = state_.env.clock.now();
    std::erase_if(node.expected, [now](const ExpectedOpen& open) { return now - open.since > ExpectedOpen::kFor; });
    const auto found = std::find_if(node.expected.begin(), node.expected.end(), [&](const ExpectedOpen& open) {
        return open.thread == thread && open.writes == writes;
    });
    if (found == node.expected.end()) {
        return false;
    }
    node.expected.erase(found);
    return true;
}

ExpectedOpen OpenFiles::expectation(const OpenRequest& request) const {
    const SteadyTime asked = (request.flags & O_TRUNC) == 0 ? request.asked : SteadyTime{};
    return ExpectedOpen{request.thread, writes(request.flags), state_.env.clock.now(), asked};
}

// Gives up what the same process has opened of a lock file before, perhaps with data in a buffer.
void OpenFiles::give_up_attempts_before(const Handle& handle) const {
    for (const HandlePtr& other : handles_.all()) {
        if (other->node == handle.node && other->opener == handle.opener && other->opened_at < handle.opened_at &&
            other->writer != nullptr && (other->flags & O_APPEND) == 0) {
            other->is_given_up = true;
        }
    }
}

}  // namespace ckptfs::fs
