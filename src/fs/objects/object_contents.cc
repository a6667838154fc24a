// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/object_contents.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/xxhash.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "fs/objects/symlink_object.h"

namespace ckptfs::fs {

namespace {

// 5 MiB of memory. When it is full, all are forgotten.
constexpr std::size_t kMaxContents = 100'000;
constexpr std::size_t kMostReadings = 4;

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
    if (files_ == nullptr || known(object) || !files_->may_have(object.etag)) {
        find(object, std::move(done));
        return;
    }
    files_->whole_size(object, true, [this, object, done = std::move(done)](std::optional<std::uint64_t> size) {
        if (size) {
            const ObjectContent content = content_of(object, *size);
            remember(object.key, object.etag, content);
            done(content);
        } else {
            find(object, done);
        }
    });
}

void ObjectContents::find(const ObjectInfo& object, Found done) {
    if (const std::optional<ObjectContent> content = known(object)) {
        done(*content);
        return;
    }
    fetch_tail(object, {}, std::move(done));
}

void ObjectContents::fetch_tail(const ObjectInfo& object, Readings before, Found done) {
    fetch_range(store_, object.key, object.etag, last_bytes(object.size, kSizeTail),
                [this, object, before = std::move(before), done = std::move(done)](Result<FetchedRange> end) {
                    if (end) {
                        tail_here(object, before, *end, done);
                    } else {
                        done(failure(std::move(end.error())));
                    }
                });
}

void ObjectContents::tail_here(const ObjectInfo& object, Readings readings, const FetchedRange& tail,
                               const Found& done) {
    const Result<ObjectContent> content = read_tail(tail);
    const Reading reading = content ? Reading(*content) : std::nullopt;
    const bool is_certain = content ? codec_.described_size(tail.object).has_value() : !content.error().damaged;
    const bool agrees = is_certain || std::find(readings.begin(), readings.end(), reading) != readings.end();
    if (agrees && content) {
        remember(object.key, object.etag, *content);
        done(content);
    } else if (!agrees && readings.size() + 1 < kMostReadings) {
        readings.push_back(reading);
        fetch_tail(object, std::move(readings), done);
    } else {
        log_warning(format("{}: shown with the size of its object: {}", escaped(object.key),
                           content ? "its end was different each time it was read" : escaped(content.error().message)));
        done(ObjectContent{FileType::kFile, object.size});
    }
}

Result<ObjectContent> ObjectContents::read_tail(const FetchedRange& tail) const {
    return codec_.size_from_tail(tail.object, tail.bytes).map([&](std::uint64_t size) {
        return content_of(tail.object, codec_.described_size(tail.object).value_or(size));
    });
}

void ObjectContents::remember(const std::string& key, const std::string& etag, ObjectContent content) {
    const MutexLock lock(mutex_);
    if (contents_.size() >= kMaxContents) {
        contents_.clear();
    }
    contents_[version_hash(key, etag)] = content;
}

}  // namespace ckptfs::fs
