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

}  // namespace

void read_table_again(ReadEnvironment& environment, std::shared_ptr<const CachedVersion> version, std::uint64_t offset,
                      std::function<void(std::shared_ptr<const FrameLayout>)> done) {
    const auto parse = [&environment, version, offset, done = std::move(done)](Result<FetchedRange> end) {
        environment.executor.post([&environment, version, offset, done, end = std::move(end)] {
            const auto layout = end ? environment.codec.layout(end->object, end->bytes)
                                    : Result<std::shared_ptr<const FrameLayout>>(failure(end.error()));
            const bool is_other = layout && !(*layout)->identity() && (*layout)->size() == version->size &&
                                  !say_the_same(*version->layout, **layout, offset);
            done(is_other ? *layout : nullptr);
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

}  // namespace ckptfs
