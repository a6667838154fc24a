// SPDX-License-Identifier: Apache-2.0
// From names to nodes: what the node table knows, and what the bucket is asked for.
//
// A name is asked for as an object and as a directory at once. Where it is both, the directory wins, because what lies
// below it could not be reached otherwise; the object is hidden and reported once. Positive answers live for the
// metadata TTL; for a minute where names are removed one after the other. A directory that a rename hides does not
// exist. Negative ones are not cached, except for a process that is about to make the file anew: what another mount has
// put there meanwhile is cut away by it all the same. For those one list of the directory answers for a second,
// or the TTL where that is less.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <string>
#include <unordered_set>

#include "base/mutex.h"
#include "fs/absent_names.h"
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

    // `thread`: that asks; 0 where it is not known.
    void lookup(NodeId parent, std::string name, pid_t thread, Reply<Entry> reply) {
        lookup(Question{parent, std::move(name), thread}, std::move(reply));
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
    void forget_listed(NodeId directory, const std::string& name) {
        batches_.listed().forget(directory, name);
        absent_.taken(directory, name);
    }
    // The directory was renamed: what it and those below hold are copies by now.
    void forget_listed_below(const NodeTable::Lock& lock, const Node& directory) REQUIRES(node_table);
    // The marker object of a directory, as a list shows it.
    [[nodiscard]] bool hides(const ObjectInfo& marker) const { return repairs_.hides(marker); }

private:
    // How often to go on to the next version where one is replaced before its size is known.
    static constexpr int kAttempts = 5;

    struct Question {
        NodeId parent = 0;
        std::string name;
        pid_t thread = 0;
        int attempts = kAttempts;

        [[nodiscard]] Question again() const { return {parent, name, thread, attempts - 1}; }
    };
    struct Asked {
        std::string key;
        SteadyTime when{};
        // The last removal before.
        std::uint64_t removal = 0;
        // The table has no node of the name, and nothing else is to be known of it here.
        bool is_unknown = false;
    };
    void lookup(const Question& question, Reply<Entry> reply);
    // An answer that needs no request; else empty, and `asked` is what to ask for.
    std::optional<Result<Entry>> from_table(NodeId parent_id, const std::string& name, Asked& asked);
    // Of who makes it anew: by the list of its directory, which answers for the names beside it as well.
    void find_among(NodeId directory, const std::string& key, Reply<FoundName> reply);
    [[nodiscard]] bool believes_absent(NodeId directory, const std::string& name) const;
    [[nodiscard]] bool may_list(NodeId directory) const;
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
    AbsentNames absent_;

    Mutex reported_mutex_;
    // Bounded: beyond it keys go unreported.
    std::unordered_set<std::string> reported_ GUARDED_BY(reported_mutex_);
};

}  // namespace ckptfs::fs
