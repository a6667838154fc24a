// SPDX-License-Identifier: Apache-2.0
#include "fs/state/nodes.h"

#include <algorithm>
#include <utility>

#include "fs/state/paths.h"

namespace ckptfs::fs {

namespace {

// Threads that look a name up again: more would be waiting for one another.
constexpr std::size_t kMostExpected = 64;

}  // namespace

NodeTable::NodeTable() : root_(std::make_shared<Node>(kRootNode, FileType::kDirectory)) {
    root_->inode = kRootNode;
    root_->has_marker = true;
    own(root_);
}

NodePtr NodeTable::find(const Lock&, NodeId id) const {
    const auto found = nodes_.find(id);
    return found == nodes_.end() ? nullptr : found->second;
}

NodePtr NodeTable::child(const Lock& lock, const NodePtr& parent, std::string_view name) const {
    const auto& children = parent->directory().children;
    const auto found = children.find(name);
    return found == children.end() ? nullptr : find(lock, found->second->id);
}

NodePtr NodeTable::link_new(const Lock& lock, const NodePtr& parent, const std::string& name, FileType type) {
    const NodePtr old = child(lock, parent, name);
    if (old != nullptr) {
        unlink(lock, old);
    }
    auto node = std::make_shared<Node>(next_id_++, type);
    node->parent = parent;
    node->name = name;
    parent->change_directory().children[name] = node.get();
    node->inode = old != nullptr && !is_of_another_file(old->inode, *node) ? old->inode : free_inode(lock, *node);
    own(node);
    if (old != nullptr) {
        for (const ExpectedOpen& expected : std::exchange(old->expected, {})) {
            expect(lock, *node, expected);
        }
    }
    take_expected_names(lock, *node);
    if (type == FileType::kDirectory && forgotten_change_ != WallTime{}) {
        node->change_directory().names_changed = forgotten_change_;
    }
    if (is_special(type)) {
        ++specials_;
    }
    return node;
}

void NodeTable::expect(const Lock& lock, const NodePtr& parent, const std::string& name, ExpectedOpen expected) {
    if (const NodePtr named = child(lock, parent, name)) {
        expect(lock, *named, expected);
        return;
    }
    expected_names_.push_back({parent->id, name, expected});
    if (expected_names_.size() > kMostExpected) {
        expected_names_.pop_front();
    }
}

void NodeTable::expect(const Lock& lock, Node& node, ExpectedOpen expected) {
    if (node.expected.size() >= kMostExpected) {
        node.expected.erase(node.expected.begin());
    }
    node.expected.push_back(expected);
    expected_nodes_.emplace_back(node.id, expected.since);
    drop_expired(lock, expected.since);
}

void NodeTable::drop_expired(const Lock& lock, SteadyTime now) {
    while (!expected_nodes_.empty() && now - expected_nodes_.front().second > ExpectedOpen::kFor) {
        const NodePtr node = find(lock, expected_nodes_.front().first);
        expected_nodes_.pop_front();
        if (node != nullptr) {
            std::erase_if(node->expected,
                          [now](const ExpectedOpen& each) { return now - each.since > ExpectedOpen::kFor; });
            drop_if_unused(lock, node);
        }
    }
}

void NodeTable::expect_no_more(const Lock& /*lock*/, const Node& parent, std::string_view name) {
    std::erase_if(expected_names_,
                  [&](const ExpectedName& expected) { return expected.parent == parent.id && expected.name == name; });
}

void NodeTable::take_expected_names(const Lock& lock, Node& node) {
    std::erase_if(expected_names_, [&](const ExpectedName& expected) REQUIRES(node_table) {
        const bool is_its_own = expected.parent == node.parent->id && expected.name == node.name;
        if (is_its_own) {
            expect(lock, node, expected.open);
        }
        return is_its_own;
    });
}

std::uint64_t NodeTable::free_inode(const Lock& lock, const Node& node) const {
    const std::string name = path(lock, node);
    std::uint64_t inode = inode_number(name);
    for (int attempt = 1; is_of_another_file(inode, node); ++attempt) {
        // No path has a zero byte.
        inode = inode_number(name + '\0' + std::to_string(attempt));
    }
    return inode;
}

// Whether a node with this number was removed or renamed, or its directory was; or is an earlier version that can still
// be written, also where that is a version of its own behind the same inode: /proc tells descriptors apart by their
// inode numbers only.
bool NodeTable::is_of_another_file(std::uint64_t inode, const Node& node) const {
    const auto [first, last] = by_inode_.equal_range(inode);
    return std::any_of(first, last, [&node](const auto& other) REQUIRES(node_table) {
        return other.second->removed || other.second->writable_handles > 0 || other.second->shares_inode ||
               other.second->parent != node.parent || other.second->name != node.name;
    });
}

void NodeTable::own(const NodePtr& node) {
    if (nodes_.emplace(node->id, node).second) {
        by_inode_.emplace(node->inode, node.get());
    }
}

bool NodeTable::disown(const Node& node) {
    if (nodes_.erase(node.id) == 0) {
        return false;
    }
    const auto [first, last] = by_inode_.equal_range(node.inode);
    by_inode_.erase(std::find_if(first, last, [&node](const auto& entry) { return entry.second == &node; }));
    return true;
}

void NodeTable::unlink(const Lock& lock, const NodePtr& node) {
    if (!node->linked || node == root_) {
        return;
    }
    node->linked = false;
    for (const NodePtr& earlier : overtaken(lock, node->parent, node->name)) {
        // What has the name from now on, if anything, did not replace these versions.
        earlier->version->replaced_by.reset();
    }
    if (node->writer != nullptr && !node->removed) {
        overtaken_.push_back(node);
        node->version->has_later = true;
    }
    const NodePtr parent = node->parent;
    forget_child(*parent, *node);
    if (is_special(node->type)) {
        --specials_;
    } else if (node->type == FileType::kDirectory && specials_ > 0) {
        unlink_specials_below(lock, node);
    }
    drop_if_unused(lock, node);
}

std::vector<NodePtr> NodeTable::overtaken(const Lock&) const {
    std::vector<NodePtr> versions;
    std::erase_if(overtaken_, [&versions](const std::weak_ptr<Node>& weak) REQUIRES(node_table) {
        NodePtr node = weak.lock();
        const bool is_over = node == nullptr || node->writer == nullptr || node->removed || node->linked;
        if (!is_over) {
            versions.push_back(std::move(node));
        }
        return is_over;
    });
    return versions;
}

std::vector<NodePtr> NodeTable::overtaken(const Lock& lock, const NodePtr& parent, std::string_view name) const {
    std::vector<NodePtr> versions = overtaken(lock);
    const auto has_another_name = [&](const NodePtr& version) REQUIRES(node_table) {
        return version->parent != parent || version->name != name;
    };
    std::erase_if(versions, has_another_name);
    return versions;
}

void NodeTable::unlink_specials_below(const Lock& lock, const NodePtr& directory) {
    std::vector<NodePtr> below;
    for (const auto& [name, child] : directory->directory().children) {
        if (is_special(child->type) || child->type == FileType::kDirectory) {
            below.push_back(find(lock, child->id));
        }
    }
    for (const NodePtr& node : below) {
        if (node->type == FileType::kDirectory) {
            unlink_specials_below(lock, node);
        } else {
            node->removed = true;
            unlink(lock, node);
        }
    }
}

bool NodeTable::holds_special(const Lock&, const Node& directory) {
    const auto& children = directory.directory().children;
    return std::any_of(children.begin(), children.end(),
                       [](const auto& child) { return is_special(child.second->type); });
}

void NodeTable::move(const Lock& lock, const NodePtr& node, const NodePtr& new_parent, const std::string& new_name) {
    if (const NodePtr old = child(lock, new_parent, new_name); old != nullptr && old != node) {
        old->removed = true;
        unlink(lock, old);
    }
    const NodePtr old_parent = node->parent;
    note_removal(lock, *old_parent, node->name);
    forget_child(*old_parent, *node);
    node->parent = new_parent;
    node->name = new_name;
    node->linked = true;
    new_parent->change_directory().children[new_name] = node.get();
    take_expected_names(lock, *node);
    // The renaming request may be its last holder: a child that the table does not own would dangle.
    own(node);
    drop_if_unused(lock, old_parent);
    drop_if_unused(lock, node);
}

std::vector<std::shared_ptr<FileWriter>> NodeTable::remove(const Lock& lock, const NodePtr& parent,
                                                           const std::string& name) {
    note_removal(lock, *parent, name);
    std::vector<std::shared_ptr<FileWriter>> writers;
    std::vector<NodePtr> versions = overtaken(lock, parent, name);
    if (NodePtr node = child(lock, parent, name)) {
        versions.push_back(std::move(node));
    }
    for (const NodePtr& node : versions) {
        node->removed = true;
        if (node->writer != nullptr) {
            writers.push_back(node->writer);
        }
        unlink(lock, node);
    }
    return writers;
}

std::vector<NodePtr> NodeTable::earlier_of(const Lock& lock, const Node& node) const {
    std::vector<NodePtr> earlier;
    const auto [first, last] = by_inode_.equal_range(node.inode);
    for (auto each = first; each != last; ++each) {
        const Node& other = *each->second;
        if (&other != &node && !other.linked && !other.removed && other.open_handles > 0) {
            earlier.push_back(find(lock, other.id));
        }
    }
    std::erase(earlier, nullptr);
    return earlier;
}

void NodeTable::forget_child(Node& parent, const Node& node) {
    auto& children = parent.change_directory().children;
    const auto found = children.find(node.name);
    if (found != children.end() && found->second == &node) {
        children.erase(found);
    }
}

void NodeTable::note_removal(const Lock& /*lock*/, Node& directory, const std::string& name) {
    DirectoryState& state = directory.change_directory();
    state.removals.push_back({name, ++last_removal_});
    if (state.removals.size() > kMostRemovals) {
        state.forgotten_removal = state.removals.front().number;
        state.removals.erase(state.removals.begin());
    }
}

bool NodeTable::was_removed_since(const Lock& /*lock*/, const Node& directory, std::string_view name,
                                  std::uint64_t removal, bool or_unknown) {
    const DirectoryState& state = directory.directory();
    return (or_unknown && state.forgotten_removal > removal) ||
           std::any_of(state.removals.begin(), state.removals.end(),
                       [&](const DirectoryState::Removal& each) { return each.number > removal && each.name == name; });
}

bool NodeTable::holds_writer(const Lock& lock, const Node& directory, SteadyTime since) {
    const auto& children = directory.directory().children;
    return std::any_of(children.begin(), children.end(), [&lock, since](const auto& child) REQUIRES(node_table) {
        const Node& node = *child.second;
        return (node.writer != nullptr && node.has_its_name_here()) || node.checked > since ||
               holds_writer(lock, node, since);
    });
}

std::string NodeTable::path(const Lock&, const Node& node) const {
    std::vector<const Node*> chain;
    for (const Node* at = &node; at->parent != nullptr; at = at->parent.get()) {
        chain.push_back(at);
    }
    std::string path;
    for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
        path += (*at)->name;
        if ((*at)->type == FileType::kDirectory) {
            path += '/';
        }
    }
    return path;
}

bool NodeTable::is_below(const Lock&, const Node& node, const Node& directory) const {
    for (const Node* at = node.parent.get(); at != nullptr; at = at->parent.get()) {
        if (at == &directory) {
            return true;
        }
    }
    return false;
}

void NodeTable::forget(const Lock& lock, const NodePtr& node, std::uint64_t lookups) {
    node->lookups -= std::min(node->lookups, lookups);
    drop_if_unused(lock, node);
}

void NodeTable::drop_if_unused(const Lock& lock, const NodePtr& node) {
    if (node == root_ || node->lookups > 0 || node->open_handles > 0 || node->writer != nullptr ||
        !node->directory().children.empty() || is_followed(*node) || is_expected(*node) ||
        (is_special(node->type) && node->linked)) {
        return;
    }
    if (!disown(*node)) {
        return;
    }
    // A request that still holds the node, as an open whose caller was killed, must not take the name from a later one.
    node->linked = false;
    forgotten_change_ = std::max(forgotten_change_, node->directory().names_changed);
    const NodePtr parent = node->parent;
    forget_child(*parent, *node);
    drop_if_unused(lock, parent);
}

// The kernel forgets what it finds when it looks a name up once more, and then looks it up again.
bool NodeTable::is_expected(const Node& node) {
    return node.linked && !node.expected.empty();
}

bool NodeTable::is_followed(const Node& node) {
    return std::any_of(node.followers.begin(), node.followers.end(),
                       [](const std::weak_ptr<Node>& follower) { return !follower.expired(); });
}

void NodeTable::follow(const Lock&, const NodePtr& node, const NodePtr& longer) {
    longer->followers = std::move(node->followers);
    longer->followers.push_back(node);
    for (const std::weak_ptr<Node>& weak : longer->followers) {
        if (const NodePtr follower = weak.lock()) {
            follower->grows_as = longer;
        }
    }
}

void NodeTable::stop_following(const Lock& lock, const NodePtr& node) {
    const NodePtr longer = std::exchange(node->grows_as, nullptr);
    if (longer == nullptr) {
        return;
    }
    std::erase_if(longer->followers, [&node](const std::weak_ptr<Node>& weak) {
        const NodePtr follower = weak.lock();
        return follower == nullptr || follower == node;
    });
    drop_if_unused(lock, longer);
}

std::vector<NodePtr> NodeTable::followers(const Lock&, const Node& node) {
    std::vector<NodePtr> followers;
    for (const std::weak_ptr<Node>& weak : node.followers) {
        if (NodePtr follower = weak.lock()) {
            followers.push_back(std::move(follower));
        }
    }
    return followers;
}

std::vector<std::pair<NodeId, std::string>> NodeTable::take_unused(const Lock&) const {
    constexpr int kLooks = 64;
    constexpr std::size_t kMostAtOnce = 2;
    // Nodes that were just looked up are about to be used.
    constexpr NodeId kLatest = 1024;
    std::vector<std::pair<NodeId, std::string>> unused;
    for (int look = 0; look < kLooks && unused.size() < kMostAtOnce; ++look) {
        if (++swept_ + kLatest >= next_id_) {
            swept_ = kRootNode;
        }
        const auto found = nodes_.find(swept_);
        if (found == nodes_.end()) {
            continue;
        }
        const Node& node = *found->second;
        if (node.type == FileType::kFile && node.linked && node.open_handles == 0 && node.writer == nullptr &&
            !is_followed(node) && !is_expected(node)) {
            unused.emplace_back(node.parent->id, node.name);
        }
    }
    return unused;
}

std::vector<NodePtr> NodeTable::with_writers(const Lock&) const {
    std::vector<NodePtr> writing;
    for (const auto& [id, node] : nodes_) {
        if (node->writer != nullptr) {
            writing.push_back(node);
        }
    }
    return writing;
}

std::vector<std::shared_ptr<FileReader>> NodeTable::take_idle_readers(const Lock&) const {
    std::vector<std::shared_ptr<FileReader>> idle;
    for (const auto& [id, node] : nodes_) {
        // One that is expected to be opened is about to be needed.
        if (node->reader != nullptr && node->reader->checks_bytes() && node->open_handles == 0 &&
            node->expected.empty()) {
            idle.push_back(std::exchange(node->reader, nullptr));
        }
    }
    return idle;
}

std::vector<NodePtr> NodeTable::objects_below(const Lock& lock, const NodePtr& directory) const {
    std::vector<NodePtr> objects;
    for (const auto& [name, child] : directory->directory().children) {
        const NodePtr node = find(lock, child->id);
        if (node->type == FileType::kFile || node->type == FileType::kSymlink) {
            objects.push_back(node);
        } else {
            const std::vector<NodePtr> below = objects_below(lock, node);
            objects.insert(objects.end(), below.begin(), below.end());
        }
    }
    return objects;
}

}  // namespace ckptfs::fs
