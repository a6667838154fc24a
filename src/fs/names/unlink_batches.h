// SPDX-License-Identifier: Apache-2.0
// Removals that are acknowledged before they are made, many in one request: DeleteObjects, 1,000 keys or 50 ms.
//
// Only where a run of removals is under way (removal_runs.h), and only where the store honours conditional deletes:
// each removal is pinned to the version that was unlinked, so that what another mount commits before the batch arrives
// stays. What it had committed before, while a listing was believed here, goes as well (judge_other_version()). A batch
// has its names to itself from the moment at which they join it: what this mount does to them later waits for it, and
// so do lookups of them, listings, fsync(2), removal and renaming of the directory. What could not be deleted is there
// again, and the failure is reported once: by the next fsync of that directory, or removal in or of it.
//
// Bounded: a directory has one batch on its way and one that is being filled; further removals wait for the first.
// Every wait ends because every request to the store does.
//
// Threads: all functions may be called from any thread, and return at once; callbacks run without locks, also inline.
// The destructor drops what has not been sent: unmounting has waited for it, or has given it up.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "fs/names/listed_names.h"
#include "fs/names/removal_runs.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

enum class OtherVersion : std::uint8_t { kCameLater, kWasThere, kUnknown };
// Whether a version that is there instead of the one that was unlinked was there when unlink(2) was answered.
// `unlinked`: shortly before that, by the store's time. `dates_agree`: as DeleteConditions found it.
[[nodiscard]] OtherVersion judge_other_version(const ObjectInfo& object, WallTime unlinked, bool dates_agree);

class UnlinkBatches {
public:
    explicit UnlinkBatches(SharedState& state);
    ~UnlinkBatches();
    UnlinkBatches(const UnlinkBatches&) = delete;
    UnlinkBatches& operator=(const UnlinkBatches&) = delete;

    // Called on the blocking executor when keys of the directory have been deleted.
    void on_deleted(std::function<void(const NodePtr& directory)> run) { deleted_ = std::move(run); }

    // --- runs of removals
    // True where the removal may go into a batch.
    bool removal_begins(const NodePtr& directory);
    void removal_ends(const NodePtr& directory);
    // Whether a run is under way in the directory: meanwhile what was listed a while ago is believed.
    [[nodiscard]] bool is_running(NodeId directory);
    [[nodiscard]] ListedNames& listed() { return listed_; }

    // --- batches
    enum class Added : std::uint8_t { kYes, kFull, kNo };
    // Adds a removal. kFull: call again once when_settled() calls back. kNo: the name has to be removed at once.
    // `etag`: of the version that goes.
    Added add(const NodePtr& directory, const std::string& name, const std::string& etag);
    [[nodiscard]] bool removes(NodeId directory, const std::string& name);
    // A directory, with this key or below it, of which removals are under way; empty if there is none.
    [[nodiscard]] std::optional<NodeId> removes_below(const std::string& directory_key) const;
    // The failure of an earlier batch of the directory; reported once.
    std::optional<Error> take_failure(NodeId directory);
    // As above, of all directories whose keys begin with this one: the first failure, for all of them.
    std::optional<Error> take_failure_below(const std::string& directory_key);
    // For fsync(2): waits for the batches of the directory, and reports what failed.
    void sync(NodeId directory, Reply<void> reply);
    // Sends what waits in the directory and calls back when the store has answered.
    void when_settled(NodeId directory, std::function<void()> run);
    void when_all_settled(std::function<void()> run);
    // Names of which the removal is acknowledged and not made yet.
    [[nodiscard]] std::uint64_t under_way() const;
    // For the end of the mount: what was removed and is still there, a line for each directory.
    [[nodiscard]] std::vector<std::string> not_made();

private:
    struct Removal {
        std::string etag;
        WallTime unlinked{};
    };
    struct Batch {
        // Kept in the node table until it is settled.
        NodePtr directory;
        KeyOrder::Place place = 0;
        // The key of the directory.
        std::string key;
        std::unordered_map<std::string, Removal> names;
        SteadyTime due{};
        bool is_sent = false;
        std::vector<std::function<void()>> waiting;
    };
    using BatchPtr = std::shared_ptr<Batch>;

    Added add(const NodePtr& directory, const std::string& key, const std::string& name, const Removal& removal,
              bool& is_opened);
    // Adds to the directory's last batch; empty if another batch is to be opened.
    std::optional<Added> add_to_last(NodeId directory, const std::string& name, const Removal& removal)
        REQUIRES(mutex_);
    Added open_with(const NodePtr& directory, const std::string& key, const std::string& name, const Removal& removal)
        REQUIRES(mutex_);
    void work();
    void send(const BatchPtr& batch);
    void answered(const BatchPtr& batch, Result<std::vector<DeleteFailure>> failures);
    // The first failure; empty if all names are gone, or hold later versions by now.
    std::optional<Error> first_failure(const Batch& batch, std::vector<DeleteFailure>& failures);
    // Another version has the name: removes it if it was there before the unlink.
    void look_at(const Batch& batch, const DeleteFailure& failed, std::function<void(Status)> done);
    void remove_other(const ObjectInfo& object, const std::function<void(Status)>& done);
    void settle(const BatchPtr& batch, const std::optional<Error>& failed);

    SharedState& state_;
    std::function<void(const NodePtr&)> deleted_ = [](const NodePtr&) {};
    ListedNames listed_;

    mutable Mutex mutex_;
    Condition changed_;
    RemovalRuns runs_ GUARDED_BY(mutex_);
    // By directory. The first batch may be on its way; the last takes names until it is sent or full.
    std::unordered_map<NodeId, std::deque<BatchPtr>> batches_ GUARDED_BY(mutex_);
    // By the key of the directory: the kernel may forget it in between.
    std::map<std::string, Error> failures_ GUARDED_BY(mutex_);
    std::vector<std::function<void()>> waiting_for_all_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;

    std::thread thread_;
};

}  // namespace ckptfs::fs
