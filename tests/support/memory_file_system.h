// SPDX-License-Identifier: Apache-2.0
// A FileSystem that keeps everything in memory, for tests and measurements of the FUSE layer alone.
//
// With Contents::kDiscard written data is dropped and reads give zeros, so that only the way through FUSE costs.
// Operations can be held: their replies are kept until the test lets them go.
// Threads: all functions may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fs/file_system.h"

namespace ckptfs::fs {

class MemoryFileSystem : public FileSystem {
public:
    enum class Contents : std::uint8_t { kKeep, kDiscard };
    struct Options {
        Contents contents = Contents::kKeep;
        bool direct_io = false;
        uid_t uid = 0;
        gid_t gid = 0;
    };

    explicit MemoryFileSystem(Options options);

    // From now on the replies of this operation ("read", "flush", …) wait for let_go().
    void hold(std::string operation);
    // From now on opens are answered with this number (OpenedFile::backing).
    void pass_through(int backing) { backing_ = backing; }
    // Calls the held replies and holds no more.
    void let_go();
    [[nodiscard]] std::size_t held() const;
    // From now on this operation fails.
    void fail(std::string operation, Error error);

    // What abandon() will name.
    void set_abandoned(std::vector<std::string> keys);

    // Sum of all lookup counts but the root's, and how many handles are open.
    [[nodiscard]] std::uint64_t lookups() const;
    [[nodiscard]] std::size_t open_handles() const;
    [[nodiscard]] std::optional<std::string> contents(const std::string& name) const;
    void add_file(const std::string& name, std::string contents);
    // Where in its buffer the data of the latest write began.
    [[nodiscard]] std::ptrdiff_t data_offset_of_write() const;

    void lookup(NodeId parent, std::string name, const Caller& caller, Reply<Entry> reply) override;
    void forget(NodeId node, std::uint64_t lookups) override;
    void getattr(NodeId node, std::optional<HandleId> handle, pid_t thread, Reply<Attributes> reply) override;
    void setattr(NodeId node, std::optional<HandleId> handle, AttributeChange change, Reply<Attributes> reply) override;
    void get_extended(NodeId node, std::string_view name, Reply<std::string> reply) override;
    void list_extended(NodeId node, Reply<std::vector<std::string>> reply) override;
    void remove_extended(NodeId node, std::string_view name, Reply<void> reply) override;
    void link(NodeId node, NodeId new_parent, std::string new_name, Caller caller, Reply<Entry> reply) override;
    void symlink(NodeId parent, std::string name, std::string target, Caller caller, Reply<Entry> reply) override;
    void readlink(NodeId node, Reply<std::string> reply) override;
    void make_special(NodeId parent, std::string name, FileType type, mode_t mode, Caller caller,
                      Reply<Entry> reply) override;
    void mkdir(NodeId parent, std::string name, Reply<Entry> reply) override;
    void rmdir(NodeId parent, std::string name, Reply<void> reply) override;
    void unlink(NodeId parent, std::string name, Reply<void> reply) override;
    void rename(NodeId parent, std::string name, NodeId new_parent, std::string new_name, unsigned flags, Caller caller,
                Reply<void> reply) override;
    void create_file(NodeId parent, std::string name, int flags, Caller caller, Reply<CreatedFile> reply) override;
    void open(NodeId node, int flags, Caller caller, Reply<OpenedFile> reply) override;
    void read(HandleId handle, std::uint64_t offset, std::size_t size, Reply<Payload> reply) override;
    void write(HandleId handle, std::uint64_t offset, WriteData data, Caller caller, Reply<void> reply) override;
    void flush(HandleId handle, Caller caller, Reply<void> reply) override;
    void fsync(HandleId handle, Reply<void> reply) override;
    void sync_directory(NodeId node, Reply<void> reply) override;
    void release(HandleId handle, Reply<void> reply) override;
    void open_directory(NodeId node, Reply<HandleId> reply) override;
    void read_directory(HandleId handle, std::uint64_t offset, std::size_t max_entries, bool with_attributes,
                        Reply<std::vector<DirectoryEntry>> reply) override;
    void release_directory(HandleId handle) override;
    [[nodiscard]] struct statvfs statfs() const override;
    void drain(Reply<void> reply) override;
    void end_renames(const std::vector<std::string>& /*record_keys*/) override {}
    void record_unfinished(UnfinishedFile /*file*/, Reply<void> reply) override { reply({}); }
    void recall_failure(const std::string& /*key*/, const std::string& /*record*/) override {}
    void announced_by_others(const std::string& /*marker_key*/, const std::string& /*disk*/,
                             Reply<std::vector<std::uint64_t>> reply) override {
        reply(std::vector<std::uint64_t>());
    }
    void change_lost(const std::string& /*key*/, const Error& /*why*/) override {}
    void change_made_good(const std::string& /*key*/) override {}
    void may_mark(const std::string& /*marker_key*/, const AskedBy& /*by*/, Reply<void> reply) override { reply({}); }
    void disconnected() override { disconnected_ = true; }
    [[nodiscard]] bool is_disconnected() const { return disconnected_; }
    [[nodiscard]] std::vector<UploadProgress> uploads() const override;
    [[nodiscard]] std::vector<ReadProgress> reads() const override { return {}; }
    [[nodiscard]] FileStatistics statistics() const override { return {}; }
    [[nodiscard]] UnwrittenFiles unwritten(std::size_t) const override { return {}; }
    [[nodiscard]] std::vector<std::string> renames() const override { return {}; }
    std::vector<std::string> abandon(Reply<void> ended) override;
    [[nodiscard]] std::vector<std::string> left_undone() override { return {}; }

private:
    struct Node {
        NodeId id = 0;
        FileType type = FileType::kFile;
        std::map<std::string, std::shared_ptr<Node>> children;
        std::string data;
        std::uint64_t size = 0;
        WallTime modified{};
        std::uint64_t lookups = 0;
    };
    using NodePointer = std::shared_ptr<Node>;
    std::atomic<bool> disconnected_ = false;
    std::atomic<int> backing_ = 0;

    // All of these want mutex_ held.
    Result<NodePointer> find(NodeId id) const;
    Result<NodePointer> find_directory(NodeId id) const;
    Result<NodePointer> find_open(HandleId handle) const;
    NodePointer add(Node& parent, const std::string& name, FileType type);
    [[nodiscard]] Attributes attributes_of(const Node& node) const;
    Entry entry_of(Node& node);
    HandleId open_handle(NodePointer node);
    Status remove(NodeId parent, const std::string& name, FileType type);

    // Replies now, or keeps the reply for let_go(); without mutex_.
    template <class T>
    void answer(const char* operation, Reply<T> reply, Result<T> result);

    const Options options_;
    const Payload zeros_;
    mutable std::mutex mutex_;
    // Guarded by mutex_.
    std::map<NodeId, NodePointer> nodes_;
    std::map<HandleId, NodePointer> handles_;
    NodeId next_node_ = kRootNode + 1;
    HandleId next_handle_ = 1;
    std::set<std::string> holding_;
    std::map<std::string, Error> failing_;
    std::deque<std::function<void()>> held_;
    std::vector<std::string> abandoned_;
    std::ptrdiff_t data_offset_of_write_ = -1;
};

}  // namespace ckptfs::fs
