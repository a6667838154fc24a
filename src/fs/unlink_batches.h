// SPDX-License-Identifier: Apache-2.0
// Removals that are acknowledged before they are made, many in one request: DeleteObjects, 1,000 keys or 50 ms.
//
// Only where a run of removals is under way (removal_runs.h). A batch has the directory to itself from the first name
// on: what is committed, made, renamed or removed there later waits for it, and so do lookups of its names and
// listings, which send it at once. What could not be deleted is there again, and the failure is told by the next
// removal in that directory.
//
// Bounded: a directory has one batch on its way and one that is filled; whoever comes with more waits for the first.
// Every wait ends because every request to the store does.
//
// Threads: all functions may be called from any thread, and return at once; callbacks run without locks, also inline.
// The destructor drops what has not been sent: unmounting has waited for it, or has given it up.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fs/listed_names.h"
#include "fs/removal_runs.h"
#include "fs/shared_state.h"

namespace ckptfs {

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
    // What was listed a while ago is believed as long as names are removed one after the other.
    [[nodiscard]] bool is_running(NodeId directory);
    [[nodiscard]] ListedNames& listed() { return listed_; }

    // --- batches
    enum class Added : std::uint8_t { kYes, kFull, kNo };
    // kFull: again once when_settled() calls back. kNo: it has to be removed at once.
    Added add(const NodePtr& directory, const std::string& name);
    [[nodiscard]] bool removes(NodeId directory, const std::string& name);
    // Of an earlier batch; told once.
    std::optional<Error> take_failure(NodeId directory);
    // Sends what waits there and calls back when the store has answered.
    void when_settled(NodeId directory, std::function<void()> run);
    void when_all_settled(std::function<void()> run);

private:
    struct Batch {
        NodePtr directory;
        KeyOrder::Place place = 0;
        // Of the directory.
        std::string key;
        std::unordered_set<std::string> names;
        SteadyTime due{};
        bool is_sent = false;
        std::vector<std::function<void()>> waiting;
    };
    using BatchPtr = std::shared_ptr<Batch>;

    // Empty where another batch is to be opened.
    std::optional<Added> add_to_open(NodeId directory, const std::string& name);
    // With `mutex_` held.
    std::optional<Added> add_to_last(const std::deque<BatchPtr>& batches, const std::string& name);
    // Empty where the batch was opened with the name in it; else its place is not needed. `alone`: nothing else is
    // under way in the directory.
    std::optional<Added> open_and_add(Batch batch, bool alone, const std::string& name);
    void work();
    void send(const BatchPtr& batch);
    void answered(const BatchPtr& batch, Result<std::vector<DeleteFailure>> failures);
    void settle(const BatchPtr& batch, const std::optional<Error>& failed);

    SharedState& state_;
    std::function<void(const NodePtr&)> deleted_ = [](const NodePtr&) {};
    ListedNames listed_;

    std::mutex mutex_;
    std::condition_variable changed_;
    // --- guarded by `mutex_`
    RemovalRuns runs_;
    // The first may be on its way; the last is open until then or until it is full.
    std::unordered_map<NodeId, std::deque<BatchPtr>> batches_;
    std::unordered_map<NodeId, Error> failures_;
    std::vector<std::function<void()>> waiting_for_all_;
    bool stopping_ = false;

    std::thread thread_;
};

}  // namespace ckptfs
