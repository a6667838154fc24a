// SPDX-License-Identifier: Apache-2.0
// Reads on an open handle, and what read-only handles see of a writer's changes meanwhile.
//
// A handle that has read something keeps that version: a file that others read is written under a node of its own
// (OpenFiles::give_writers_node), so that neither its pages nor its size are the readers'. A handle that opens a file
// open for changes, or had not read yet, sees the changes as they are made, as on a local disk: the node has one
// content then, the writer's, before and after its commits.
//
// Appending changes nothing that was read. Those that have the file open follow it (Node::grows_as): each commit drops
// what the kernel has of their node, above all the page in which the file ended and that is zeros from there on, and
// only then shows the new size. After that the kernel gets no further notice: if a notice overtakes an answer, the
// kernel gives that answer's size to fstat(2) without keeping it, and a mapping of that size would end in SIGBUS.
//
// Threads: all functions may be called from any thread; nothing here blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fs/file_counters.h"
#include "fs/files/kernel_pages.h"
#include "fs/state/handles.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class FileReads {
public:
    FileReads(SharedState& state, HandleTable& handles, FileCounters& counters, KernelPages& pages)
        : state_(state), handles_(handles), counters_(counters), pages_(pages) {}

    void read(HandleId handle, std::uint64_t offset, std::size_t size, Reply<Payload> reply);
    // The handle reads for the first time, perhaps past this process.
    static void begin_reading(const NodeTable::Lock&, Handle& handle) REQUIRES(node_table);

private:
    struct Reading {
        HandlePtr handle;
        std::uint64_t offset = 0;
        std::size_t size = 0;
        // How often this read was started again with another reader or writer, at most kMostReopens.
        int reopens = 0;
        Reply<Payload> reply;
        // Node::rewrites as of the version that is being opened.
        std::uint64_t rewrites = 0;
    };
    // Reads from the writer that makes changes, or from the bucket.
    void read_what_is_seen(const std::shared_ptr<Reading>& reading);
    void read_with(const std::shared_ptr<Reading>& reading);
    bool reopen_and_read(const std::shared_ptr<Reading>& reading, const std::shared_ptr<FileReader>& reader);
    void reopened(const std::shared_ptr<Reading>& reading, const std::string& key,
                  Result<std::shared_ptr<FileReader>> opened);
    void read_after_commit(const std::shared_ptr<Reading>& reading, const std::shared_ptr<FileReader>& reader,
                           const std::string& key, Error error);
    // The writer that serves the handle's reads, if it reads changes; null where it reads from the bucket.
    [[nodiscard]] std::shared_ptr<FileWriter> changing(Handle& handle);
    // Drops the handle's reader if it reads another version than the node's committed one.
    static void forget_earlier_reader(const NodeTable::Lock&, Handle& handle) REQUIRES(node_table);
    // The handle has read a version that a commit of this mount has replaced since.
    static bool is_of_earlier_version(const NodeTable::Lock& lock, Handle& handle) REQUIRES(node_table);
    [[nodiscard]] static bool is_unreadable(const Handle& handle);
    // The read begins beyond the end of the version that the handle reads through the page cache.
    [[nodiscard]] bool is_behind_the_end(const Reading& reading, const FileReader& reader);
    // The file has grown since it was opened, and has lost its name: the added bytes cannot be fetched.
    [[nodiscard]] bool is_out_of_reach(Handle& handle, const FileReader& reader);
    [[nodiscard]] Failure nothing_to_read(const Handle& handle) const;
    // The file has no bytes: nothing was written or lost, and nothing, or an empty version, is committed.
    [[nodiscard]] bool is_pristine(const Handle& handle) const;

    SharedState& state_;
    HandleTable& handles_;
    FileCounters& counters_;
    KernelPages& pages_;
};

}  // namespace ckptfs::fs
