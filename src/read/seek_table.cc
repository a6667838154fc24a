// SPDX-License-Identifier: Apache-2.0
#include "read/seek_table.h"

#include <utility>
#include <vector>

#include "base/range_fetch.h"
#include "base/text.h"

namespace ckptfs {
namespace {

using Table = std::shared_ptr<const FrameLayout>;

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

Result<Table> table_in(const Codec& codec, const CachedVersion& version, const Result<FetchedRange>& end) {
    if (!end) {
        return failure(end.error());
    }
    Result<Table> table = codec.layout_in(end->room, end->object, end->bytes);
    if (table && ((*table)->identity() || (*table)->size() != version.size)) {
        return damage(format("{}: the seek table at its end is damaged", version.key));
    }
    return table;
}

void fetch(ReadEnvironment& environment, const std::shared_ptr<CachedVersion>& version, SeekTable::Done done) {
    const auto parse = [&environment, version, done = std::move(done)](Result<FetchedRange> end) {
        environment.executor.post_urgent(
            [&environment, version, done, end = std::move(end)] { done(table_in(environment.codec, *version, end)); });
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

// Keeps `known` instead of a new table that is equal to it, to save memory.
void here(SeekTable& slot, const Table& known, const Result<Table>& table) {
    Result<Table> answer = table;
    if (table && known != nullptr && known->records() == (*table)->records()) {
        answer = known;
    }
    std::vector<SeekTable::Done> waiting;
    {
        const MutexLock lock(slot.mutex);
        slot.is_under_way = false;
        slot.layout = answer ? *answer : nullptr;
        waiting.swap(slot.waiting);
    }
    for (const SeekTable::Done& done : waiting) {
        done(answer);
    }
}

// Whether the caller must read the table. If not, `done` gets it from the executor, or from the caller that reads it.
bool is_to_read(ReadEnvironment& environment, SeekTable& slot, SeekTable::Done done) {
    Table table;
    {
        const MutexLock lock(slot.mutex);
        table = slot.layout;
        if (table == nullptr) {
            slot.waiting.push_back(std::move(done));
            return !std::exchange(slot.is_under_way, true);
        }
    }
    environment.executor.post_urgent([table = std::move(table), done = std::move(done)] { done(table); });
    return false;
}

}  // namespace

void with_table(ReadEnvironment& environment, const std::shared_ptr<CachedVersion>& version, SeekTable::Done done) {
    if (!version->lacks_table) {
        done(version->layout);
        return;
    }
    if (!is_to_read(environment, version->first_table, std::move(done))) {
        return;
    }
    fetch(environment, version, [&environment, version](const Result<Table>& table) {
        if (table || !table.error().damaged) {
            here(version->first_table, nullptr, table);
            return;
        }
        // Perhaps damaged only in transit.
        fetch(environment, version,
              [version](const Result<Table>& again) { here(version->first_table, nullptr, again); });
    });
}

void read_table_again(ReadEnvironment& environment, const std::shared_ptr<CachedVersion>& version,
                      const std::shared_ptr<const FrameLayout>& first, std::uint64_t offset, Reread done) {
    auto compare = [first, offset, done = std::move(done)](const Result<Table>& table) {
        done(table && !say_the_same(*first, **table, offset) ? *table : nullptr);
    };
    if (is_to_read(environment, version->second_table, std::move(compare))) {
        fetch(environment, version,
              [version, first](const Result<Table>& table) { here(version->second_table, first, table); });
    }
}

}  // namespace ckptfs
