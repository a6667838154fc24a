// SPDX-License-Identifier: Apache-2.0
// Renames of directories: see fs/renames/renames.h.
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "fs/moves/directory_rename.h"
#include "fs/renames/renames.h"

namespace ckptfs::fs {

namespace {

void keep_copies(FileCache& files, const Copies& copies) {
    std::vector<RenamedObject> renamed;
    for (const auto& [source, copied] : copies) {
        renamed.push_back(
            {copied.source_etag, copied.copy.stored_size, copied.source_write_id, copied.copy.etag, copied.write_id});
    }
    files.renamed(std::move(renamed));
}

Copies as_seen_here(const FileSystemEnvironment& env, Copies copies) {
    if (env.acknowledging != nullptr) {
        for (auto& [source, copied] : copies) {
            copied.source_etag = env.acknowledging->etag_here(source, copied.source_etag);
        }
    }
    return copies;
}

}  // namespace

Status Renames::rename_directory(const Move& move) {
    // Also the failure of a directory below: it is kept under a key that the rename would take from it.
    if (std::optional<Error> failed = directories_.take_failure_below(move.old_key + "/")) {
        return failure(std::move(*failed));
    }
    // Waits for what was acknowledged since the rename has begun to wait: other mounts see a rename in steps.
    if (Status sent = gate_.wait_for_unsent(move.old_key + "/"); !sent) {
        return sent;
    }
    const FileSystemEnvironment& env = state_.env;
    DirectoryRename rename(env.bucket(), env.clock, env.names.rename_repair_after,
                           {env.prefix, move.old_key + "/", move.new_key + "/",
                            env.etag_there(move.new_key + "/", move.replaced_marker), env.write.config.commit_markers});
    set_moving(*move.node, true);
    const std::string from = move.old_key + "/";
    std::vector<FailedRecord> failures;
    DirectoryRenameSteps steps;
    steps.prepare = [&] {
        Status committed = commit_writers_below(move);
        return committed ? gate_.wait_for_unsent(from) : committed;
    };
    steps.allow = [&](const std::vector<ObjectInfo>& sources) { return gate_.check_tree(from, sources); };
    steps.committed = [&](const Copies& copies) { note_moved_directory(move, as_seen_here(env, copies)); };
    steps.find_pins = [&] { return state_.deletes->find_out(); };
    steps.note_failures = [&](const std::vector<ObjectInfo>& sources) {
        Result<std::vector<FailedRecord>> found = gate_.failures_below(from);
        if (!found) {
            return Status(failure(std::move(found.error())));
        }
        failures = std::move(*found);
        // Asks again if anything has failed since the rename was allowed.
        return failures.empty() ? Status() : gate_.check_tree(from, sources);
    };
    steps.move_failures = [&] {
        add_later_failures(from, failures);
        gate_.move_failures(failures, from, move.new_key + "/");
        return !failures.empty();
    };
    steps.leave_failures = [&] { leave_failures(from, move.new_key + "/"); };
    steps.wait = [this](Milliseconds time) { wait_for_late_requests(time); };
    // Asked now, so that the answer is known when the source is removed.
    static_cast<void>(state_.deletes->honoured());
    Status renamed = rename.run(steps);
    set_moving(*move.node, false);
    return renamed;
}

// Takes a thread, of which other changes need some; the end of the mount does not wait for it.
void Renames::wait_for_late_requests(Milliseconds time) {
    constexpr int kMostWaiting = 4;
    if (++waiting_ <= kMostWaiting) {
        const auto over = std::make_shared<std::promise<void>>();
        std::future<void> is_over = over->get_future();
        state_.env.timer.after(time, [over] { over->set_value(); });
        constexpr std::chrono::seconds kBetweenLooks{1};
        for (auto left = time; left > Milliseconds(0) && !state_.draining; left -= kBetweenLooks) {
            if (is_over.wait_for(kBetweenLooks) == std::future_status::ready) {
                break;
            }
        }
    }
    --waiting_;
}

// Adds what has failed on this mount since `failures` were noted: other mounts must know of that, too, when they see
// the directory.
void Renames::add_later_failures(const std::string& directory, std::vector<FailedRecord>& failures) const {
    std::set<std::string> noted;
    for (const FailedRecord& record : failures) {
        noted.insert(record.key);
    }
    for (FailedRecord& record : state_.failed.below(directory)) {
        if (!noted.contains(record.key)) {
            failures.push_back(std::move(record));
        }
    }
}

// Moves the failures that other mounts do not know of, and so cannot move.
void Renames::leave_failures(const std::string& from, const std::string& to) {
    std::vector<FailedRecord> untold = state_.failed.below(from);
    std::erase_if(untold, [this](const FailedRecord& record) { return !state_.failed.is_untold(record.key); });
    state_.failed.leave_recorded_below(from);
    gate_.move_failures(untold, from, to);
    for (const FailedRecord& record : untold) {
        state_.failed.clear(record.key, [] {});
    }
}

void Renames::set_moving(Node& directory, bool moving) {
    const NodeTable::Lock lock = state_.nodes.lock();
    directory.moving = moving;
}

void Renames::note_moved_directory(const Move& move, const Copies& copies) {
    std::vector<std::function<void()>> tell_writers;
    std::vector<NodePtr> overtaken;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        overtaken = state_.nodes.overtaken(lock);
        const auto lies_elsewhere = [&](const NodePtr& node) REQUIRES(node_table) {
            return !state_.nodes.is_below(lock, *node, *move.node);
        };
        std::erase_if(overtaken, lies_elsewhere);
        std::vector<std::pair<NodePtr, std::string>> objects;
        for (const NodePtr& node : state_.nodes.objects_below(lock, move.node)) {
            objects.emplace_back(node, state_.key(lock, *node));
        }
        state_.nodes.move(lock, move.node, move.new_parent, move.new_name);
        for (const auto& [node, old_key] : objects) {
            const auto copied = copies.find(old_key);
            if (copied != copies.end()) {
                tell_writers.push_back(note_moved_file(lock, node, copied->second));
            } else if (node->writer != nullptr) {
                tell_writers.push_back(note_moved_writer(
                    lock, node, "its directory was renamed while it was being uploaded under the old name"));
            }
        }
    }
    for (const std::function<void()>& tell : tell_writers) {
        tell();
    }
    failures_.end_versions(overtaken);
    if (state_.env.read.files != nullptr) {
        keep_copies(*state_.env.read.files, copies);
    }
}

// Commit markers after all else, and only where nothing else has failed.
Status Renames::commit_writers_below(const Move& move) {
    Writing writing;
    Writing markers;
    std::vector<std::string> marker_keys;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        for (const NodePtr& node : state_.nodes.objects_below(lock, move.node)) {
            if (node->writer == nullptr) {
                continue;
            }
            std::string key = state_.key(lock, *node);
            if (gate_.is_marker(key) && node->writer->dirty()) {
                markers.emplace_back(node, node->writer);
                marker_keys.push_back(std::move(key));
            } else {
                writing.emplace_back(node, node->writer);
            }
        }
    }
    if (Status committed = commit_all(writing, {}); !committed || markers.empty()) {
        return committed;
    }
    const Result<StillCounts> counts = gate_.allow(move.old_key + "/", marker_keys);
    return counts ? commit_all(markers, *counts) : failure(counts.error());
}

Status Renames::commit_all(const Writing& writing, const StillCounts& counts) {
    return for_each_in_parallel(writing.size(), writing.size(),
                                [&](std::size_t index, std::function<void(Status)> done) {
                                    const auto& [node, writer] = writing[index];
                                    start_commit(node, writer, counts, std::move(done));
                                });
}

}  // namespace ckptfs::fs
