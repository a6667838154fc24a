// SPDX-License-Identifier: Apache-2.0
// Files that the kernel reads from this node's disk, past this process (passthrough.h): versions that are there as a
// whole, and checked.
//
// The kernel cannot change from one way of reading an inode to another while it is open. So if one handle reads past
// this process, all do that open the node, and a writer gets a node of its own, as for a file that was read
// (file_reads.h). No handle begins to while others have the node open, or a writer is on its way to it.
// Handles that read so do not follow what is appended: the kernel would show a size that the file on the disk does not
// have. Logs, which are followed, are left to this process.
#include <fcntl.h>

#include <utility>

#include "base/globs.h"
#include "fs/files/open_files.h"

namespace ckptfs::fs {

namespace {

// In bytes: one read through this process costs less than to open the other file.
constexpr std::uint64_t kSmallestPassed = std::uint64_t{1} << 20;

}  // namespace

// Once for each version that is found: another mount, or this one, may replace it meanwhile.
bool OpenFiles::asks_for_backing(const OpenRequest& request, const std::shared_ptr<FileReader>& reader) const {
    const Passthrough* const passthrough = state_.env.passthrough;
    if (passthrough == nullptr || !passthrough->is_possible() || request.pace != ReadPace::kFull ||
        reader->size() < kSmallestPassed || (request.flags & O_DIRECT) != 0 || wants_direct_io(request.flags) ||
        request.asked_for_backing == reader) {
        return false;
    }
    const NodeTable::Lock lock = state_.nodes.lock();
    return !request.node->passes_through() && !matches_any(request.node->name, state_.env.write.config.keep_on_kill);
}

void OpenFiles::ask_for_backing(const OpenRequestPtr& request, const std::shared_ptr<FileReader>& reader) {
    reader->open_checked([this, request, reader](int file) {
        request->asked_for_backing = reader;
        request->backing = file >= 0 ? state_.env.passthrough->offer(file) : nullptr;
        reader_opened(request, reader);
    });
}

void OpenFiles::pass_through(const NodeTable::Lock& lock, const OpenRequest& request,
                             const std::shared_ptr<FileReader>& reader, Handle& handle, OpenedFile& opened) {
    Node& node = *handle.node;
    if (!node.passes_through()) {
        const bool is_of_this_version = reader != nullptr && request.asked_for_backing == reader;
        // The answer to another open may reach the kernel after this one's, whatever way of reading that one has.
        const bool is_the_only_one = node.open_handles == 1 && node.writer == nullptr && !node.is_opened_to_write();
        if (!is_of_this_version || request.backing == nullptr || opened.direct_io || !is_the_only_one) {
            return;
        }
        node.backing = request.backing;
    }
    ++node.passed_handles;
    handle.is_passed_through = true;
    opened = OpenedFile{};
    opened.backing = node.backing->number();
    FileReads::begin_reading(lock, handle);
    counters_.passed_through();
}

void OpenFiles::note_open_to_write(const NodeTable::Lock& /*lock*/, const OpenRequestPtr& request) {
    std::vector<std::weak_ptr<const void>>& opens = request->node->opens_to_write;
    std::erase_if(opens, [](const auto& open) { return open.expired(); });
    opens.emplace_back(request);
}

}  // namespace ckptfs::fs
