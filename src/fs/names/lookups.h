// SPDX-License-Identifier: Apache-2.0
// From names to nodes: what the node table knows, and what the bucket is asked for.
//
// A name is asked for as an object and as a directory at once. If it is both, the directory wins, because what lies
// below it could not be reached otherwise; the object is hidden and reported once. Positive results are valid for the
// metadata TTL, or for a minute while names are removed one after the other. A directory that a rename hides does not
// exist. Negative results are not cached, except for a process whose open(2) has O_CREAT and O_TRUNC: that cuts
// away what another mount has put there meanwhile in any case. For such processes one list of the directory serves for
// a second, or the TTL if that is less.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <string>
#include <unordered_set>

#include "base/mutex.h"
#include "fs/moves/rename_repairs.h"
#include "fs/names/absent_names.h"
#include "fs/names/hidden_names.h"
#include "fs/names/unlink_batches.h"
#include "fs/state/shared_state.h"

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

    // `thread`: the thread that asks; 0 if it is not known.
    void lookup(NodeId parent, std::string name, pid_t thread, Reply<Entry> reply) {
        lookup(Question{parent, std::move(name), thread}, std::move(reply));
    }
    // Asks the bucket; `key` without a trailing '/'.
    void find(std::string key, Reply<FoundName> reply);

    // The node of this version under the name: the one that is there if it is the same version or is being written by
    // this mount, else a new one. `checked`: as Node::checked.
    NodePtr found_file(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name,
                       const ObjectVersion& version, SteadyTime checked) REQUIRES(node_table);
    NodePtr found_directory(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name,
                            bool has_marker, SteadyTime checked) REQUIRES(node_table);
    // The bucket has nothing under the name.
    void found_nothing(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name)
        REQUIRES(node_table);
    // A process does something else with the name of a failed file than unlink it: the name is gone.
    void look_at_failed_name(const NodeTable::Lock& lock, const NodePtr& node) REQUIRES(node_table);
    void report_hidden(const std::string& key);
    // EBUSY if a directory's rename hides the name, by what the lookup has found that the kernel made for this.
    [[nodiscard]] Status may_be_taken(const NodeTable::Lock& lock, const Node& parent, const std::string& name) const
        REQUIRES(node_table);
    [[nodiscard]] Status may_be_taken(NodeId parent, const std::string& name) const;
    // A listing showed this file.
    void note_listed(NodeId directory, const std::string& name, const ObjectVersion& version, SteadyTime asked) {
        batches_.listed().add(directory, name, version, asked);
    }
    // To be called for each commit, and for whatever gives the name to something else: otherwise unlink(2) would remove
    // the version that was listed, and the present one would stay.
    void forget_listed(NodeId directory, const std::string& name) {
        batches_.listed().forget(directory, name);
        absent_.taken(directory, name);
    }
    // The directory was renamed: it and those below it hold copies by now.
    void forget_listed_below(const NodeTable::Lock& lock, const Node& directory) REQUIRES(node_table);
    // Whether the directory with this marker object, as a list shows it, is hidden.
    [[nodiscard]] bool hides(const ObjectInfo& marker) const { return repairs_.hides(marker); }

private:
    // How often a lookup goes on to the next version if one is replaced before its size is known.
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
        // NodeTable::last_removal() before the question.
        std::uint64_t removal = 0;
        // The table has no node of the name, and nothing else is known of it here.
        bool is_unknown = false;
    };
    void lookup(const Question& question, Reply<Entry> reply);
    // An answer that needs no request; else empty, and `asked` is what to ask for.
    std::optional<Result<Entry>> from_table(NodeId parent_id, const std::string& name, Asked& asked);
    // find() for a process whose open(2) has O_CREAT and O_TRUNC: by the list of the directory, which serves for the
    // names beside the file as well.
    void find_among(NodeId directory, const std::string& key, Reply<FoundName> reply);
    [[nodiscard]] bool believes_absent(NodeId directory, const std::string& name) const;
    [[nodiscard]] bool may_list(NodeId directory) const;
    // ENOENT, or the name of a file that failed and may be unlinked.
    Result<Entry> nothing_there(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name)
        REQUIRES(node_table);
    // Takes what was found into the table. `content`: of the object, if one was found. Empty if this mount has removed
    // the name since it asked.
    std::optional<Result<Entry>> apply(NodeId parent_id, const std::string& name, const FoundName& found,
                                       ObjectContent content, const Asked& asked, bool may_ask_again);

    SharedState& state_;
    RenameRepairs& repairs_;
    UnlinkBatches& batches_;
    HiddenNames hidden_;
    AbsentNames absent_;

    Mutex reported_mutex_;
    // Bounded: further keys go unreported.
    std::unordered_set<std::string> reported_ GUARDED_BY(reported_mutex_);
};

}  // namespace ckptfs::fs
