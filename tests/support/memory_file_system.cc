// SPDX-License-Identifier: Apache-2.0
#include "support/memory_file_system.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

namespace ckptfs::fs {

MemoryFileSystem::MemoryFileSystem(Options options)
    : options_(options), zeros_(Payload::from_string(std::string(std::size_t{1} << 20, '\0'))) {
    auto root = std::make_shared<Node>();
    root->id = kRootNode;
    root->type = FileType::kDirectory;
    root->lookups = 1;
    nodes_.emplace(kRootNode, std::move(root));
}

void MemoryFileSystem::hold(std::string operation) {
    const std::lock_guard lock(mutex_);
    holding_.insert(std::move(operation));
}

void MemoryFileSystem::let_go() {
    std::deque<std::function<void()>> replies;
    {
        const std::lock_guard lock(mutex_);
        holding_.clear();
        replies.swap(held_);
    }
    for (const auto& reply : replies) {
        reply();
    }
}

std::size_t MemoryFileSystem::held() const {
    const std::lock_guard lock(mutex_);
    return held_.size();
}

void MemoryFileSystem::fail(std::string operation, Error error) {
    const std::lock_guard lock(mutex_);
    failing_.insert_or_assign(std::move(operation), std::move(error));
}

std::uint64_t MemoryFileSystem::lookups() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& [id, node] : nodes_) {
        sum += id == kRootNode ? 0 : node->lookups;
    }
    return sum;
}

std::size_t MemoryFileSystem::open_handles() const {
    const std::lock_guard lock(mutex_);
    return handles_.size();
}

std::optional<std::string> MemoryFileSystem::contents(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto& root = *nodes_.at(kRootNode);
    const auto found = root.children.find(name);
    return found == root.children.end() ? std::nullopt : std::optional(found->second->data);
}

std::ptrdiff_t MemoryFileSystem::data_offset_of_write() const {
    const std::lock_guard lock(mutex_);
    return data_offset_of_write_;
}

void MemoryFileSystem::add_file(const std::string& name, std::string contents) {
    const std::lock_guard lock(mutex_);
    const NodePointer node = add(*nodes_.at(kRootNode), name, FileType::kFile);
    node->size = contents.size();
    node->data = std::move(contents);
}

template <class T>
void MemoryFileSystem::answer(const char* operation, Reply<T> reply, Result<T> result) {
    {
        const std::lock_guard lock(mutex_);
        if (const auto failing = failing_.find(operation); failing != failing_.end()) {
            result = failure(failing->second);
        }
        if (holding_.contains(operation)) {
            held_.push_back([reply = std::move(reply), result = std::move(result)] { reply(result); });
            return;
        }
    }
    reply(std::move(result));
}

Result<MemoryFileSystem::NodePointer> MemoryFileSystem::find(NodeId id) const {
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) {
        return failure(ESTALE, "no such node");
    }
    return found->second;
}

Result<MemoryFileSystem::NodePointer> MemoryFileSystem::find_directory(NodeId id) const {
    auto node = find(id);
    if (node && (*node)->type != FileType::kDirectory) {
        return failure(ENOTDIR, "not a directory");
    }
    return node;
}

Result<MemoryFileSystem::NodePointer> MemoryFileSystem::find_open(HandleId handle) const {
    const auto found = handles_.find(handle);
    if (found == handles_.end()) {
        return failure(EBADF, "no such handle");
    }
    return found->second;
}

MemoryFileSystem::NodePointer MemoryFileSystem::add(Node& parent, const std::string& name, FileType type) {
    auto node = std::make_shared<Node>();
    node->id = next_node_++;
    node->type = type;
    nodes_.emplace(node->id, node);
    parent.children.insert_or_assign(name, node);
    return node;
}

Attributes MemoryFileSystem::attributes_of(const Node& node) const {
    Attributes attributes;
    attributes.inode = node.id;
    attributes.type = node.type;
    attributes.mode = node.type == FileType::kDirectory ? 0755 : 0644;
    attributes.uid = options_.uid;
    attributes.gid = options_.gid;
    attributes.size = node.size;
    attributes.modified = node.modified;
    attributes.valid_for = std::chrono::seconds(1);
    return attributes;
}

Entry MemoryFileSystem::entry_of(Node& node) {
    ++node.lookups;
    return Entry{node.id, attributes_of(node), std::chrono::seconds(1)};
}

HandleId MemoryFileSystem::open_handle(NodePointer node) {
    handles_.emplace(next_handle_, std::move(node));
    return next_handle_++;
}

void MemoryFileSystem::lookup(NodeId parent, std::string name, const Caller& /*caller*/, Reply<Entry> reply) {
    const auto look = [&]() -> Result<Entry> {
        const std::lock_guard lock(mutex_);
        const auto directory = find_directory(parent);
        if (!directory) {
            return failure(directory.error());
        }
        const auto found = (*directory)->children.find(name);
        if (found == (*directory)->children.end()) {
            return failure(ENOENT, "no such name");
        }
        return entry_of(*found->second);
    };
    answer("lookup", std::move(reply), look());
}

void MemoryFileSystem::forget(NodeId node, std::uint64_t lookups) {
    const std::lock_guard lock(mutex_);
    if (const auto found = nodes_.find(node); found != nodes_.end()) {
        found->second->lookups -= std::min(lookups, found->second->lookups);
    }
}

void MemoryFileSystem::getattr(NodeId node, std::optional<HandleId> /*handle*/, pid_t /*thread*/,
                               Reply<Attributes> reply) {
    setattr(node, std::nullopt, {}, std::move(reply));
}

void MemoryFileSystem::setattr(NodeId node, std::optional<HandleId> /*handle*/, AttributeChange change,
                               Reply<Attributes> reply) {
    const auto set = [&]() -> Result<Attributes> {
        const std::lock_guard lock(mutex_);
        const auto found = find(node);
        if (!found) {
            return failure(found.error());
        }
        if (change.size) {
            (*found)->size = *change.size;
            if (options_.contents == Contents::kKeep) {
                (*found)->data.resize(*change.size);
            }
        }
        (*found)->modified = change.modified.value_or((*found)->modified);
        return attributes_of(**found);
    };
    answer("setattr", std::move(reply), set());
}

// Every node has one.
void MemoryFileSystem::get_extended(NodeId /*node*/, std::string_view name, Reply<std::string> reply) {
    answer<std::string>("getxattr", std::move(reply),
                        name == "user.name" ? Result<std::string>("value") : failure(ENODATA, "no such attribute"));
}

void MemoryFileSystem::remove_extended(NodeId /*node*/, std::string_view /*name*/, Reply<void> reply) {
    reply(failure(EOPNOTSUPP, "cannot be changed"));
}

void MemoryFileSystem::list_extended(NodeId /*node*/, Reply<std::vector<std::string>> reply) {
    answer<std::vector<std::string>>("listxattr", std::move(reply), std::vector<std::string>{"user.name", "user.b"});
}

void MemoryFileSystem::link(NodeId id, NodeId new_parent, std::string new_name, Caller /*caller*/, Reply<Entry> reply) {
    const auto make = [&]() -> Result<Entry> {
        const std::lock_guard lock(mutex_);
        const auto source = find(id);
        const auto directory = find_directory(new_parent);
        if (!source || !directory) {
            return failure(source ? directory.error() : source.error());
        }
        const NodePointer copy = add(**directory, new_name, FileType::kFile);
        copy->data = (*source)->data;
        copy->size = (*source)->size;
        return entry_of(*copy);
    };
    answer("link", std::move(reply), make());
}

void MemoryFileSystem::symlink(NodeId parent, std::string name, std::string target, Caller /*caller*/,
                               Reply<Entry> reply) {
    const auto make = [&]() -> Result<Entry> {
        const std::lock_guard lock(mutex_);
        const auto directory = find_directory(parent);
        if (!directory) {
            return failure(directory.error());
        }
        const NodePointer node = add(**directory, name, FileType::kSymlink);
        node->size = target.size();
        node->data = std::move(target);
        return entry_of(*node);
    };
    answer("symlink", std::move(reply), make());
}

void MemoryFileSystem::readlink(NodeId id, Reply<std::string> reply) {
    std::unique_lock lock(mutex_);
    Result<std::string> target = find(id).map([](const NodePointer& node) { return node->data; });
    lock.unlock();
    answer("readlink", std::move(reply), std::move(target));
}

void MemoryFileSystem::make_special(NodeId parent, std::string name, FileType type, mode_t /*mode*/, Caller /*caller*/,
                                    Reply<Entry> reply) {
    const auto make = [&]() -> Result<Entry> {
        const std::lock_guard lock(mutex_);
        const auto directory = find_directory(parent);
        return directory ? Result<Entry>(entry_of(*add(**directory, name, type))) : failure(directory.error());
    };
    answer("make_special", std::move(reply), make());
}

void MemoryFileSystem::mkdir(NodeId parent, std::string name, Reply<Entry> reply) {
    const auto make = [&]() -> Result<Entry> {
        const std::lock_guard lock(mutex_);
        const auto directory = find_directory(parent);
        if (!directory) {
            return failure(directory.error());
        }
        if ((*directory)->children.contains(name)) {
            return failure(EEXIST, "the name exists");
        }
        return entry_of(*add(**directory, name, FileType::kDirectory));
    };
    answer("mkdir", std::move(reply), make());
}

Status MemoryFileSystem::remove(NodeId parent, const std::string& name, FileType type) {
    const auto directory = find_directory(parent);
    if (!directory) {
        return failure(directory.error());
    }
    const auto found = (*directory)->children.find(name);
    if (found == (*directory)->children.end()) {
        return failure(ENOENT, "no such name");
    }
    if (found->second->type != type) {
        return failure(type == FileType::kDirectory ? ENOTDIR : EISDIR, "wrong type");
    }
    if (!found->second->children.empty()) {
        return failure(ENOTEMPTY, "not empty");
    }
    (*directory)->children.erase(found);
    return {};
}

void MemoryFileSystem::rmdir(NodeId parent, std::string name, Reply<void> reply) {
    std::unique_lock lock(mutex_);
    Status result = remove(parent, name, FileType::kDirectory);
    lock.unlock();
    answer("rmdir", std::move(reply), std::move(result));
}

void MemoryFileSystem::unlink(NodeId parent, std::string name, Reply<void> reply) {
    std::unique_lock lock(mutex_);
    Status result = remove(parent, name, FileType::kFile);
    lock.unlock();
    answer("unlink", std::move(reply), std::move(result));
}

void MemoryFileSystem::rename(NodeId parent, std::string name, NodeId new_parent, std::string new_name, unsigned flags,
                              Caller /*caller*/, Reply<void> reply) {
    const auto move = [&]() -> Status {
        const std::lock_guard lock(mutex_);
        const auto from = find_directory(parent);
        const auto to = find_directory(new_parent);
        if (!from || !to || !(*from)->children.contains(name)) {
            return failure(ENOENT, "no such name");
        }
        if (flags == RENAME_NOREPLACE && (*to)->children.contains(new_name)) {
            return failure(EEXIST, "the name exists");
        }
        if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE)) != 0) {
            return failure(EINVAL, "unknown flags");
        }
        auto moved = (*from)->children.extract(name);
        moved.key() = new_name;
        (*to)->children.erase(new_name);
        (*to)->children.insert(std::move(moved));
        return {};
    };
    answer("rename", std::move(reply), move());
}

void MemoryFileSystem::create_file(NodeId parent, std::string name, int /*flags*/, Caller /*caller*/,
                                   Reply<CreatedFile> reply) {
    const auto create = [&]() -> Result<CreatedFile> {
        const std::lock_guard lock(mutex_);
        const auto directory = find_directory(parent);
        if (!directory) {
            return failure(directory.error());
        }
        const NodePointer node = add(**directory, name, FileType::kFile);
        return CreatedFile{entry_of(*node), {open_handle(node), options_.direct_io, false, 0}};
    };
    answer("create", std::move(reply), create());
}

void MemoryFileSystem::open(NodeId node, int flags, Caller /*caller*/, Reply<OpenedFile> reply) {
    const auto open = [&]() -> Result<OpenedFile> {
        const std::lock_guard lock(mutex_);
        const auto found = find(node);
        if (!found) {
            return failure(found.error());
        }
        if ((flags & O_TRUNC) != 0) {
            (*found)->data.clear();
            (*found)->size = 0;
        }
        return OpenedFile{open_handle(*found), options_.direct_io, false, backing_};
    };
    answer("open", std::move(reply), open());
}

void MemoryFileSystem::read(HandleId handle, std::uint64_t offset, std::size_t size, Reply<Payload> reply) {
    const auto read = [&]() -> Result<Payload> {
        const std::lock_guard lock(mutex_);
        const auto node = find_open(handle);
        if (!node) {
            return failure(node.error());
        }
        const std::uint64_t left = (*node)->size - std::min(offset, (*node)->size);
        const std::size_t count = std::min<std::size_t>(size, left);
        return options_.contents == Contents::kDiscard ? zeros_.subrange(0, count)
                                                       : Payload::from_string((*node)->data.substr(offset, count));
    };
    answer("read", std::move(reply), read());
}

void MemoryFileSystem::write(HandleId handle, std::uint64_t offset, WriteData data, Caller /*caller*/,
                             Reply<void> reply) {
    const auto write = [&]() -> Status {
        const std::lock_guard lock(mutex_);
        const auto node = find_open(handle);
        if (!node) {
            return failure(node.error());
        }
        data_offset_of_write_ = data.data.data() - data.buffer.data();
        (*node)->size = std::max<std::uint64_t>((*node)->size, offset + data.data.size());
        if (options_.contents == Contents::kKeep) {
            (*node)->data.resize((*node)->size);
            (*node)->data.replace(offset, data.data.size(), as_text(data.data));
        }
        return {};
    };
    Status result = write();
    // A held write keeps its buffer, as one that waits for memory does.
    answer<void>(
        "write",
        [reply = std::move(reply), data = std::make_shared<WriteData>(std::move(data))](Status status) {
            data->buffer.reset();
            reply(std::move(status));
        },
        std::move(result));
}

void MemoryFileSystem::flush(HandleId /*handle*/, Caller caller, Reply<void> reply) {
    answer("flush", std::move(reply), Status{});
    if (caller.settled != nullptr) {
        caller.settled();
    }
}

void MemoryFileSystem::sync_directory(NodeId /*node*/, Reply<void> reply) {
    answer("sync_directory", std::move(reply), Status{});
}

void MemoryFileSystem::fsync(HandleId /*handle*/, Reply<void> reply) {
    answer("fsync", std::move(reply), Status{});
}

void MemoryFileSystem::release(HandleId handle, Reply<void> reply) {
    release_directory(handle);
    answer("release", std::move(reply), Status{});
}

void MemoryFileSystem::open_directory(NodeId node, Reply<HandleId> reply) {
    const auto open = [&]() -> Result<HandleId> {
        const std::lock_guard lock(mutex_);
        auto found = find_directory(node);
        if (!found) {
            return failure(found.error());
        }
        return open_handle(std::move(*found));
    };
    answer("opendir", std::move(reply), open());
}

void MemoryFileSystem::read_directory(HandleId handle, std::uint64_t offset, std::size_t max_entries,
                                      bool with_attributes, Reply<std::vector<DirectoryEntry>> reply) {
    const auto read = [&]() -> Result<std::vector<DirectoryEntry>> {
        const std::lock_guard lock(mutex_);
        const auto directory = find_open(handle);
        if (!directory) {
            return failure(directory.error());
        }
        std::vector<DirectoryEntry> entries;
        std::uint64_t position = 0;
        const auto emit = [&](const std::string& name, Node& node, bool dot) {
            if (position++ < offset || entries.size() == max_entries) {
                return;
            }
            const bool count = with_attributes && !dot;
            entries.push_back({name, position, count ? entry_of(node) : Entry{0, attributes_of(node), {}}});
        };
        emit(".", **directory, true);
        emit("..", **directory, true);
        for (const auto& [name, node] : (*directory)->children) {
            emit(name, *node, false);
        }
        return entries;
    };
    answer("readdir", std::move(reply), read());
}

void MemoryFileSystem::release_directory(HandleId handle) {
    const std::lock_guard lock(mutex_);
    handles_.erase(handle);
}

struct statvfs MemoryFileSystem::statfs() const {
    struct statvfs result {};
    result.f_bsize = result.f_frsize = 4096;
    result.f_blocks = result.f_bfree = result.f_bavail = std::uint64_t{1} << 38;
    result.f_namemax = 255;
    return result;
}

void MemoryFileSystem::drain(Reply<void> reply) {
    answer("drain", std::move(reply), Status{});
}

std::vector<UploadProgress> MemoryFileSystem::uploads() const {
    return {};
}

std::vector<std::string> MemoryFileSystem::abandon(Reply<void> ended) {
    answer("abandon", std::move(ended), Status{});
    const std::lock_guard lock(mutex_);
    return abandoned_;
}

void MemoryFileSystem::set_abandoned(std::vector<std::string> keys) {
    const std::lock_guard lock(mutex_);
    abandoned_ = std::move(keys);
}

}  // namespace ckptfs::fs
