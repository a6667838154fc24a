// SPDX-License-Identifier: Apache-2.0
// What the writers of one mount share: the plan of their parts, the way to the disk and back, and what frees memory
// when it is waited for.
//
// Ownership: made by the first writer of an environment, kept by every writer; the pool knows it as a listener.
// Threads: all functions may be called from any thread. A writer's mutex may be held in enter(), leave() and the
// counters only.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "write/encoding_pace.h"
#include "write/memory_relief.h"
#include "write/part_plan.h"
#include "write/staging.h"

namespace ckptfs {

struct WriteEnvironment;

// A writer, as the group sees it.
class MemoryHolder {
public:
    virtual ~MemoryHolder() = default;
    [[nodiscard]] virtual StuckMemory stuck_memory() const = 0;
    virtual void relieve(Relief relief) = 0;
};

class WriterGroup : public std::enable_shared_from_this<WriterGroup> {
public:
    static std::shared_ptr<WriterGroup> create(WriteEnvironment& environment);

    [[nodiscard]] const PartPlan& plan() const { return plan_; }
    [[nodiscard]] Staging& staging() { return *staging_; }

    // Bytes of memory that a file may take to find what its frames refer to.
    [[nodiscard]] std::uint64_t history_memory() const { return history_memory_; }

    // A writer is in the group from its first byte to its commit or failure.
    void enter(const MemoryHolder* key, std::weak_ptr<MemoryHolder> holder);
    void leave(const MemoryHolder* key);
    // The store's concurrency limit, for all writers of the group.
    [[nodiscard]] Slowdown slowdown(const ObjectStore& store) const;
    // A writer that began to hold memory earlier has a smaller one.
    [[nodiscard]] std::uint64_t next_turn() { return ++turns_; }

    // Memory that is freed when the store has answered.
    void begins_to_leave(std::uint64_t bytes) { leaving_ += bytes; }
    void has_left(std::uint64_t bytes) { leaving_ -= bytes; }
    // A frame waits for a processor until it is encoded.
    void begins_to_encode() { ++encoding_; }
    void has_encoded() { --encoding_; }
    // The effort for the next of these frames. Called on the thread that encodes it.
    [[nodiscard]] EncodeEffort encode_effort();
    // Called when memory was freed or staged, or is waited for: frees more if that is needed.
    void relieve();

private:
    explicit WriterGroup(WriteEnvironment& environment);

    // `decided`: bytes for which something has been done, which may not show yet.
    [[nodiscard]] bool short_of_memory(std::uint64_t decided) const;
    // Frees memory of one writer. Returns how many bytes that will free; 0 if nothing is left to do.
    std::uint64_t relieve_one();
    [[nodiscard]] std::vector<std::shared_ptr<MemoryHolder>> holders() const;

    BufferPool& pool_;
    Clock& clock_;
    const PartPlan plan_;
    const std::uint64_t history_memory_;
    const std::shared_ptr<Staging> staging_;

    std::atomic<std::uint64_t> turns_{0};
    std::atomic<std::uint64_t> leaving_{0};
    std::atomic<std::size_t> encoding_{0};
    // Calls of relieve() that the thread inside it has to serve.
    std::atomic<int> calls_{0};

    mutable Mutex mutex_;
    std::map<const MemoryHolder*, std::weak_ptr<MemoryHolder>> holders_ GUARDED_BY(mutex_);
    EncodingPace pace_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
