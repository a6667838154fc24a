// SPDX-License-Identifier: Apache-2.0
#include "write/writer_group.h"

#include <algorithm>
#include <utility>

#include "base/executors.h"
#include "ckptfs/log.h"
#include "write/file_writer.h"
#include "write/lazy_writer_group.h"
#include "write/processor_wait.h"

namespace ckptfs {
namespace {

// What file data may take of the budget when it has to share it with reads and commits.
std::uint64_t write_budget(const BufferPool& pool) {
    return std::uint64_t{pool.usage().total_buffers} * BufferPool::kPayloadSize * 3 / 4;
}

// 2 GB/s for a tenth of a second, which is what a part takes; less where there is less memory to hold it.
std::uint64_t enough_leaving(const BufferPool& pool) {
    return std::min(std::uint64_t{192} << 20, write_budget(pool) / 4);
}

}  // namespace

std::shared_ptr<WriterGroup> WriterGroup::create(WriteEnvironment& environment) {
    std::shared_ptr<WriterGroup> group(new WriterGroup(environment));
    environment.pool.add_pressure_listener([weak = std::weak_ptr(group)](MemoryUse waiting) {
        const auto self = weak.lock();
        // Reads have a reserve of their own, and the kernel's requests wait for the writes before them.
        if (self != nullptr &&
            (waiting == MemoryUse::kWrite || waiting == MemoryUse::kCommit || waiting == MemoryUse::kEncode)) {
            self->relieve();
        }
        // What was decided takes effect later.
        return false;
    });
    return group;
}

WriterGroup::WriterGroup(WriteEnvironment& environment)
    : pool_(environment.pool),
      clock_(environment.clock),
      plan_(environment.config, write_budget(environment.pool)),
      history_memory_(std::uint64_t{environment.pool.usage().total_buffers} * BufferPool::kPayloadSize / 64),
      staging_(std::make_shared<Staging>(environment.pool, environment.staging, environment.executor,
                                         environment.config.staging_dir)),
      pace_(static_cast<std::size_t>(processor_count()), enough_leaving(environment.pool)) {
    if (const std::string lowered = plan_.lowered(); !lowered.empty()) {
        log_warning(lowered);
    }
}

void WriterGroup::enter(const MemoryHolder* key, std::weak_ptr<MemoryHolder> holder) {
    const MutexLock lock(mutex_);
    holders_.insert_or_assign(key, std::move(holder));
}

void WriterGroup::leave(const MemoryHolder* key) {
    const MutexLock lock(mutex_);
    holders_.erase(key);
}

Slowdown WriterGroup::slowdown(const ObjectStore& store) const {
    Slowdown slowdown{store.slowed_to(), 1};
    if (slowdown.requests > 0) {
        const MutexLock lock(mutex_);
        slowdown.files = std::max<std::size_t>(holders_.size(), 1);
    }
    return slowdown;
}

EncodeEffort WriterGroup::encode_effort() {
    thread_local std::optional<ProcessorTimes> before;
    const std::optional<ProcessorTimes> times = processor_times();
    const std::optional<ProcessorTimes> last = std::exchange(before, times);
    const SteadyTime now = clock_.now();
    const MutexLock lock(mutex_);
    if (times && last) {
        pace_.note_processor_times(times->ran - last->ran, times->waited - last->waited);
    }
    return pace_.choose(now, encoding_, leaving_);
}

void WriterGroup::relieve() {
    if (calls_.fetch_add(1) > 0) {
        return;
    }
    int answered = 0;
    do {
        answered = calls_;
        std::uint64_t decided = 0;
        while (short_of_memory(decided)) {
            const std::uint64_t bytes = relieve_one();
            if (bytes == 0) {
                if (decided == 0 && leaving_ == 0 && staging_->storing() == 0) {
                    staging_->give_up_one();
                }
                break;
            }
            // However little it is, it holds a buffer.
            decided += std::max<std::uint64_t>(bytes, BufferPool::kPayloadSize);
        }
    } while (calls_.fetch_sub(answered) != answered);
}

bool WriterGroup::short_of_memory(std::uint64_t decided) const {
    const PoolUsage usage = pool_.usage();
    constexpr auto kWrite = static_cast<std::size_t>(MemoryUse::kWrite);
    constexpr auto kCommit = static_cast<std::size_t>(MemoryUse::kCommit);
    constexpr auto kEncode = static_cast<std::size_t>(MemoryUse::kEncode);
    Shortage shortage;
    shortage.writes_waiting = usage.waiting[kWrite];
    // What a part needs to be sent.
    shortage.commits_waiting = usage.waiting[kCommit] + usage.waiting[kEncode];
    shortage.held =
        std::uint64_t{usage.in_use[kWrite] + usage.in_use[kCommit] + usage.in_use[kEncode]} * BufferPool::kPayloadSize;
    shortage.leaving = leaving_;
    shortage.spilling = std::max(staging_->storing(), decided);
    shortage.staged_parts_waiting = staging_->waiting();
    return needs_relief(shortage);
}

std::uint64_t WriterGroup::relieve_one() {
    const std::vector<std::shared_ptr<MemoryHolder>> all = holders();
    std::vector<StuckMemory> stuck;
    stuck.reserve(all.size());
    for (const auto& holder : all) {
        stuck.push_back(holder->stuck_memory());
    }
    const std::optional<ReliefChoice> choice = choose_relief(stuck);
    if (!choice) {
        return 0;
    }
    all[choice->writer]->relieve(choice->relief);
    return choice->bytes;
}

std::vector<std::shared_ptr<MemoryHolder>> WriterGroup::holders() const {
    std::vector<std::shared_ptr<MemoryHolder>> all;
    const MutexLock lock(mutex_);
    all.reserve(holders_.size());
    for (const auto& [key, weak] : holders_) {
        if (auto holder = weak.lock()) {
            all.push_back(std::move(holder));
        }
    }
    return all;
}

std::shared_ptr<WriterGroup> LazyWriterGroup::get(WriteEnvironment& environment) {
    const MutexLock lock(mutex_);
    if (!group_) {
        group_ = WriterGroup::create(environment);
    }
    return group_;
}

}  // namespace ckptfs
