// SPDX-License-Identifier: Apache-2.0
// From names to nodes: what the node table knows, and what the bucket is asked for.
//
// A name is asked for as an object and as a directory at once. Where it is both, the directory wins, because what lies
// below it could not be reached otherwise; the object is hidden and reported once. Positive answers live for the
// metadata TTL; for a minute where names are removed one after the other. A directory that a rename hides does not
// exist. Negative ones are not cached, except inside a directory that this mount made or listed within the TTL.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <string>
#include <unordered_set>

#include "base/mutex.h"
#include "fs/hidden_names.h"
#include "fs/rename_repairs.h"
#include "fs/shared_state.h"
#include "fs/unlink_batches.h"

namespace ckptfs::fs {

// What the bucket holds under one name.
struct FoundName {
    std::optional<ObjectInfo> object;
    bool is_directory = false;
    bool has_marker = false;
    // A directory that an unfinished rename hides.
    bool is_hidden = false;
};

class Lookups {
public:
    Lookups(SharedState& state, RenameRepairs& repairs, UnlinkBatches& batches)
        : state_(state), repairs_(repairs), batches_(batches) {}

    void lookup(NodeId parent, std::string name, Reply<Entry> reply) {
        lookup(parent, std::move(name), kAttempts, std::move(reply));
    }
    // Asks the bucket; `key` without a trailing '/'.
    void find(std::string key, Reply<FoundName> reply);

    // The node of this version under the name: the one that is there if it is the same version or is being written by
    // this mount, else a new one. `checked`: as a node's.
    NodePtr found_file(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name,
                       const ObjectVersion& version, SteadyTime checked) REQUIRES(node_table);
    NodePtr found_directory(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name,
                            bool has_marker, SteadyTime checked) REQUIRES(node_table);
    // The bucket has nothing under the name.
    void found_nothing(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name)
        REQUIRES(node_table);
    // A process wants to do something other than unlink it.
    void look_at_failed_name(const NodeTable::Lock& lock, const NodePtr& node) REQUIRES(node_table);
    void report_hidden(const std::string& key);
    // EBUSY where a directory's rename hides the name, as the lookup has found that the kernel made for this.
    [[nodiscard]] Status may_be_taken(const NodeTable::Lock& lock, const Node& parent, const std::string& name) const
        REQUIRES(node_table);
    [[nodiscard]] Status may_be_taken(NodeId parent, const std::string& name) const;
    // A listing showed this file.
    void note_listed(NodeId directory, const std::string& name, const ObjectVersion& version, SteadyTime asked) {
        batches_.listed().add(directory, name, version, asked);
    }
    // Else the version from before is unlinked, and another one stays: for each commit, and whatever gives the name to
    // something else.
    void forget_listed(NodeId directory, const std::string& name) { batches_.listed().forget(directory, name); }
    // The directory was renamed: what it and those below hold are copies by now.
    void forget_listed_below(const NodeTable::Lock& lock, const Node& directory) REQUIRES(node_table);
    // The marker object of a directory, as a list shows it.
    [[nodiscard]] bool hides(const ObjectInfo& marker) const { return repairs_.hides(marker); }

private:
    // How often to go on to the next version where one is replaced before its size is known.
    static constexpr int kAttempts = 5;

    void lookup(NodeId parent, std::string name, int attempts, Reply<Entry> reply);
    struct Asked {
        std::string key;
        SteadyTime when{};
        // The last removal before.
        std::uint64_t removal = 0;
    };
    // An answer that needs no request; else empty, and `asked` is what to ask for.
    std::optional<Result<Entry>> from_table(NodeId parent_id, const std::string& name, Asked& asked);
    // ENOENT, or the name of a file that failed and may be unlinked.
    Result<Entry> nothing_there(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name)
        REQUIRES(node_table);
    // `content`: of the object, where one was found. Empty where this mount has removed the name since it asked.
    std::optional<Result<Entry>> apply(NodeId parent_id, const std::string& name, const FoundName& found,
                                       ObjectContent content, const Asked& asked, bool may_ask_again);

    SharedState& state_;
    RenameRepairs& repairs_;
    UnlinkBatches& batches_;
    HiddenNames hidden_;

    Mutex reported_mutex_;
    // Bounded: beyond it keys go unreported.
    std::unordered_set<std::string> reported_ GUARDED_BY(reported_mutex_);
};

}  // namespace ckptfs::fs
