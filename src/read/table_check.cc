// SPDX-License-Identifier: Apache-2.0
#include "read/table_check.h"

#include <utility>
#include <vector>

#include "base/range_fetch.h"

namespace ckptfs {
namespace {

bool say_the_same(const FrameLayout& one, const FrameLayout& other, std::uint64_t offset) {
    const Frame a = one.frame_at(offset);
    const Frame b = other.frame_at(offset);
    const std::vector<FrameRecord>& first = one.records();
    const std::vector<FrameRecord>& second = other.records();
    if (a.index != b.index || a.stored_offset != b.stored_offset || a.stored_size != b.stored_size) {
        return false;
    }
    if (a.index >= first.size() || a.index >= second.size()) {
        return first.size() == second.size();
    }
    return first[a.index].checksum == second[a.index].checksum && first[a.index].may_refer == second[a.index].may_refer;
}

std::shared_ptr<const FrameLayout> unless_the_same(const CachedVersion& version,
                                                   const std::shared_ptr<const FrameLayout>& table,
                                                   std::uint64_t offset) {
    return table == nullptr || say_the_same(*version.layout, *table, offset) ? nullptr : table;
}

void here(CachedVersion& version, Result<std::shared_ptr<const FrameLayout>> layout) {
    SecondTable& second = version.second_table;
    std::vector<std::pair<std::uint64_t, SecondTable::Done>> waiting;
    std::shared_ptr<const FrameLayout> table;
    // Else the next reader that asks reads it anew.
    const bool can_be_read = layout && !(*layout)->identity() && (*layout)->size() == version.size;
    if (can_be_read && version.layout->records() != (*layout)->records()) {
        table = std::move(*layout);
    }
    {
        const MutexLock lock(second.mutex);
        second.is_under_way = false;
        second.is_here = can_be_read;
        second.layout = table;
        waiting.swap(second.waiting);
    }
    for (const auto& [offset, done] : waiting) {
        done(unless_the_same(version, table, offset));
    }
}

void read(ReadEnvironment& environment, const std::shared_ptr<CachedVersion>& version) {
    const auto parse = [&environment, version](Result<FetchedRange> end) {
        environment.executor.post_urgent([&environment, version, end = std::move(end)] {
            here(*version, end ? environment.codec.layout_in(end->room, end->object, end->bytes)
                               : Result<std::shared_ptr<const FrameLayout>>(failure(end.error())));
        });
    };
    fetch_range(environment.store, version->key, version->etag, last_bytes(version->stored_size, kSizeTail),
                [&environment, parse](Result<FetchedRange> end) {
                    if (end) {
                        fetch_whole_tail(environment.store, environment.codec, std::move(*end), parse);
                    } else {
                        parse(std::move(end));
                    }
                });
}

}  // namespace

void read_table_again(ReadEnvironment& environment, const std::shared_ptr<CachedVersion>& version, std::uint64_t offset,
                      SecondTable::Done done) {
    SecondTable& second = version->second_table;
    MutexLock lock(second.mutex);
    if (second.is_here) {
        const std::shared_ptr<const FrameLayout> table = unless_the_same(*version, second.layout, offset);
        lock.unlock();
        environment.executor.post_urgent([table, done = std::move(done)] { done(table); });
        return;
    }
    second.waiting.emplace_back(offset, std::move(done));
    const bool is_first = !std::exchange(second.is_under_way, true);
    lock.unlock();
    if (is_first) {
        read(environment, version);
    }
}

}  // namespace ckptfs
