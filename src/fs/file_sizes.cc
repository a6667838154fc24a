// SPDX-License-Identifier: Apache-2.0
#include "fs/file_sizes.h"

#include <utility>

#include "base/range_fetch.h"
#include "base/text.h"
#include "base/xxhash.h"
#include "ckptfs/log.h"

namespace ckptfs {

namespace {

// 4 MiB of memory. Beyond it all are asked for again.
constexpr std::size_t kMaxSizes = 100'000;

// Keys and ETags hold no zero bytes.
std::uint64_t version_hash(const std::string& key, const std::string& etag) {
    std::string name = key;
    name.push_back('\0');
    name += etag;
    return xxh3(name);
}

}  // namespace

std::optional<std::uint64_t> FileSizes::known(const ObjectInfo& object) const {
    if (!codec_.may_be_encoded(object.size)) {
        return object.size;
    }
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(version_hash(object.key, object.etag));
    return found == sizes_.end() ? std::nullopt : std::optional(found->second);
}

void FileSizes::find_described(const ObjectInfo& object, std::function<void(Result<std::uint64_t> size)> done) {
    if (const std::optional<std::uint64_t> size = codec_.described_size(object)) {
        remember(object.key, object.etag, *size);
        done(*size);
        return;
    }
    find(object, std::move(done));
}

void FileSizes::find(const ObjectInfo& object, std::function<void(Result<std::uint64_t> size)> done) {
    if (const std::optional<std::uint64_t> size = known(object)) {
        done(*size);
        return;
    }
    fetch_range(store_, object.key, object.etag, last_bytes(object.size, kSizeTail),
                [this, object, done = std::move(done)](Result<FetchedRange> end) {
                    if (!end) {
                        done(failure(std::move(end.error())));
                        return;
                    }
                    const Result<std::uint64_t> size = codec_.size_from_tail(end->object, end->bytes);
                    if (size) {
                        remember(object.key, object.etag, *size);
                    } else {
                        log_warning(format("{}: shown with the size of its object: {}", escaped(object.key),
                                           escaped(size.error().message)));
                    }
                    done(size.value_or(object.size));
                });
}

void FileSizes::remember(const std::string& key, const std::string& etag, std::uint64_t size) {
    const std::lock_guard lock(mutex_);
    if (sizes_.size() >= kMaxSizes) {
        sizes_.clear();
    }
    sizes_[version_hash(key, etag)] = size;
}

}  // namespace ckptfs
