// SPDX-License-Identifier: Apache-2.0
#include "fs/object_contents.h"

#include <utility>

#include "base/range_fetch.h"
#include "base/text.h"
#include "base/xxhash.h"
#include "ckptfs/format.h"
#include "ckptfs/log.h"
#include "fs/symlink_object.h"

namespace ckptfs::fs {

namespace {

// 5 MiB of memory. Beyond it all are asked for again.
constexpr std::size_t kMaxContents = 100'000;

// Keys and ETags hold no zero bytes.
std::uint64_t version_hash(const std::string& key, const std::string& etag) {
    std::string name = key;
    name.push_back('\0');
    name += etag;
    return xxh3(name);
}

}  // namespace

ObjectContent content_of(const ObjectInfo& object, std::uint64_t file_size) {
    if (const std::optional<std::uint64_t> size = symlink_size(object)) {
        return {FileType::kSymlink, *size};
    }
    return {FileType::kFile, file_size};
}

std::optional<ObjectContent> ObjectContents::known(const ObjectInfo& object) const {
    if (!has_marked_size(object.size)) {
        return ObjectContent{FileType::kFile, object.size};
    }
    const MutexLock lock(mutex_);
    const auto found = contents_.find(version_hash(object.key, object.etag));
    return found == contents_.end() ? std::nullopt : std::optional(found->second);
}

void ObjectContents::find_described(const ObjectInfo& object, Found done) {
    if (const std::optional<std::uint64_t> size = codec_.described_size(object)) {
        const ObjectContent content = content_of(object, *size);
        remember(object.key, object.etag, content);
        done(content);
        return;
    }
    find(object, std::move(done));
}

void ObjectContents::find(const ObjectInfo& object, Found done) {
    if (const std::optional<ObjectContent> content = known(object)) {
        done(*content);
        return;
    }
    fetch_tail(object, false, std::move(done));
}

void ObjectContents::fetch_tail(const ObjectInfo& object, bool again, Found done) {
    fetch_range(store_, object.key, object.etag, last_bytes(object.size, kSizeTail),
                [this, object, again, done = std::move(done)](Result<FetchedRange> end) {
                    if (!end) {
                        done(failure(std::move(end.error())));
                        return;
                    }
                    const Result<ObjectContent> content = read_tail(end->object, end->bytes);
                    if (content) {
                        remember(object.key, object.etag, *content);
                        done(content);
                    } else if (content.error().damaged && !again) {
                        // Perhaps on its way only.
                        fetch_tail(object, true, done);
                    } else {
                        log_warning(format("{}: shown with the size of its object: {}", escaped(object.key),
                                           escaped(content.error().message)));
                        done(ObjectContent{FileType::kFile, object.size});
                    }
                });
}

Result<ObjectContent> ObjectContents::read_tail(const ObjectInfo& fetched, const Payload& tail) const {
    return codec_.size_from_tail(fetched, tail).map([&](std::uint64_t size) { return content_of(fetched, size); });
}

void ObjectContents::remember(const std::string& key, const std::string& etag, ObjectContent content) {
    const MutexLock lock(mutex_);
    if (contents_.size() >= kMaxContents) {
        contents_.clear();
    }
    contents_[version_hash(key, etag)] = content;
}

}  // namespace ckptfs::fs
