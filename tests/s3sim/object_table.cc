// SPDX-License-Identifier: Apache-2.0
#include "object_table.h"

#include <array>
#include <random>

#include "complete_upload.h"

namespace ckptfs::s3sim {
namespace {

// A repeated Complete is answered like the first for as long as it is remembered.
constexpr std::size_t kCompletedKept = 10'000;

// Spreads a counter over all bits (the finaliser of SplitMix64), so that ids do not look ordered.
std::uint64_t scramble(std::uint64_t value) {
    value += 0x9E3779B97F4A7C15U;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
    return value ^ (value >> 31);
}

std::string hex_of(std::uint64_t value) {
    std::string raw(8, '\0');
    for (char& byte : raw) {
        byte = static_cast<char>(value >> 56U);
        value <<= 8U;
    }
    return to_hex(raw);
}

Upload without_parts(const Upload& upload) {
    return Upload{
        upload.id, upload.key, upload.initiated, upload.attributes, upload.checksum_kind, upload.full_object_checksum,
        {}};
}

// Remembering a Complete must not keep an object that has been replaced or deleted since.
ObjectPtr without_bytes(const Object& object) {
    auto description = std::make_shared<Object>(object);
    description->bytes = {};
    return description;
}

bool same_parts(const std::vector<CompletedPart>& a, const std::vector<CompletedPart>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const CompletedPart& x, const CompletedPart& y) {
        return x.number == y.number && x.etag == y.etag;
    });
}

}  // namespace

Outcome<void> ObjectTable::create_bucket(const std::string& name, const std::string& region) {
    const std::lock_guard lock(mutex_);
    const auto [at, inserted] = buckets_.try_emplace(name);
    if (!inserted) {
        return fail("BucketAlreadyOwnedByYou");
    }
    at->second.info = BucketInfo{name, region, now()};
    return {};
}

Outcome<void> ObjectTable::delete_bucket(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const Bucket* found = find_bucket(name);
    if (found == nullptr) {
        return fail("NoSuchBucket");
    }
    if (!found->objects.empty()) {
        return fail("BucketNotEmpty");
    }
    buckets_.erase(name);
    return {};
}

std::optional<BucketInfo> ObjectTable::bucket(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const Bucket* found = find_bucket(name);
    return found == nullptr ? std::nullopt : std::optional(found->info);
}

std::vector<BucketInfo> ObjectTable::buckets() const {
    const std::lock_guard lock(mutex_);
    std::vector<BucketInfo> infos;
    for (const auto& [name, bucket] : buckets_) {
        infos.push_back(bucket.info);
    }
    return infos;
}

Outcome<ObjectPtr> ObjectTable::find(const std::string& bucket, const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const Bucket* found = find_bucket(bucket);
    if (found == nullptr) {
        return fail("NoSuchBucket");
    }
    const auto object = found->objects.find(key);
    if (object == found->objects.end()) {
        S3Error error = s3_error("NoSuchKey");
        error.details.emplace_back("Key", key);
        return tl::unexpected(std::move(error));
    }
    return object->second;
}

Outcome<ObjectPtr> ObjectTable::put(const std::string& bucket, const std::string& key, Object object,
                                    const WriteCondition& condition) {
    object.etag = new_etag(object.bytes);
    object.last_modified = now();
    auto shared = std::make_shared<const Object>(std::move(object));
    ObjectPtr replaced;  // let go after the lock, as it may free many chunks
    const std::lock_guard lock(mutex_);
    Bucket* found = find_bucket(bucket);
    if (found == nullptr) {
        return fail("NoSuchBucket");
    }
    const auto current = found->objects.find(key);
    const bool exists = current != found->objects.end();
    const auto allowed = check_write_condition(condition, exists ? std::optional(current->second->etag) : std::nullopt);
    if (!allowed) {
        return tl::unexpected(allowed.error());
    }
    if (exists) {
        replaced = std::exchange(current->second, shared);
    } else {
        found->objects.emplace(key, shared);
    }
    return shared;
}

Outcome<void> ObjectTable::erase(const std::string& bucket, const std::string& key,
                                 const std::optional<std::string>& if_match) {
    ObjectPtr erased;
    const std::lock_guard lock(mutex_);
    Bucket* found = find_bucket(bucket);
    if (found == nullptr) {
        return fail("NoSuchBucket");
    }
    const auto current = found->objects.find(key);
    if (current == found->objects.end()) {
        return {};
    }
    if (if_match && *if_match != "*" && *if_match != current->second->etag) {
        return fail("PreconditionFailed");
    }
    erased = std::move(current->second);
    found->objects.erase(current);
    return {};
}

Outcome<std::string> ObjectTable::create_upload(const std::string& bucket, Upload upload) {
    upload.id = new_id();
    upload.initiated = now();
    const std::lock_guard lock(mutex_);
    Bucket* found = find_bucket(bucket);
    if (found == nullptr) {
        return fail("NoSuchBucket");
    }
    const std::string id = upload.id;
    found->uploads.emplace(id, std::move(upload));
    return id;
}

Outcome<void> ObjectTable::check_upload(const std::string& bucket, const std::string& key,
                                        const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = find_upload(bucket, key, id);
    return found ? Outcome<void>() : tl::unexpected(found.error());
}

Outcome<Upload> ObjectTable::upload_settings(const std::string& bucket, const std::string& key,
                                             const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = find_upload(bucket, key, id);
    if (!found) {
        return tl::unexpected(found.error());
    }
    return without_parts(**found);
}

Outcome<Upload> ObjectTable::describe_upload(const std::string& bucket, const std::string& key,
                                             const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = find_upload(bucket, key, id);
    if (!found) {
        return tl::unexpected(found.error());
    }
    return **found;
}

std::vector<Upload> ObjectTable::uploads(const std::string& bucket) const {
    const std::lock_guard lock(mutex_);
    std::vector<Upload> all;
    if (const Bucket* found = find_bucket(bucket)) {
        for (const auto& [id, upload] : found->uploads) {
            all.push_back(without_parts(upload));
        }
    }
    return all;
}

Outcome<std::string> ObjectTable::put_part(const std::string& bucket, const std::string& key, const std::string& id,
                                           int number, StoredPart part) {
    part.etag = new_etag(part.bytes);
    part.last_modified = now();
    const std::string etag = part.etag;
    const std::lock_guard lock(mutex_);
    const auto upload = find_upload(bucket, key, id);
    if (!upload) {
        return tl::unexpected(upload.error());
    }
    std::swap((*upload)->parts[number], part);
    return etag;
}

Outcome<void> ObjectTable::abort(const std::string& bucket, const std::string& key, const std::string& id) {
    Upload aborted;
    const std::lock_guard lock(mutex_);
    const auto upload = find_upload(bucket, key, id);
    if (!upload) {
        return tl::unexpected(upload.error());
    }
    aborted = std::move(**upload);
    find_bucket(bucket)->uploads.erase(id);
    return {};
}

Outcome<ObjectPtr> ObjectTable::complete(const std::string& bucket, const std::string& key, const std::string& id,
                                         const CompleteRequest& request) {
    ObjectPtr replaced;
    const std::lock_guard lock(mutex_);
    Bucket* found = find_bucket(bucket);
    if (found == nullptr) {
        return fail("NoSuchBucket");
    }
    const auto current = found->objects.find(key);
    const auto allowed = check_write_condition(
        request.condition, current == found->objects.end() ? std::nullopt : std::optional(current->second->etag));
    if (const auto before = found->completed.find(id); before != found->completed.end() && before->second.key == key) {
        if (!allowed) {
            return tl::unexpected(allowed.error());
        }
        if (!same_parts(before->second.parts, request.parts)) {
            return fail("NoSuchUpload");
        }
        return before->second.object;
    }
    const auto upload = find_upload(bucket, key, id);
    if (!upload) {
        return tl::unexpected(upload.error());
    }
    auto object = assemble_object(**upload, request);
    if (!object) {
        return tl::unexpected(std::move(object.error()));
    }
    if (!allowed) {
        return tl::unexpected(allowed.error());
    }
    object->etag = (md5_etags_ ? multipart_md5_etag(**upload, request.parts)
                               : hex_of(scramble(++last_id_)) + hex_of(scramble(++last_id_))) +
                   "-" + std::to_string(request.parts.size());
    object->last_modified = now();
    auto shared = std::make_shared<const Object>(std::move(*object));
    replaced = std::exchange(found->objects[key], shared);
    found->uploads.erase(id);
    found->completed[id] = Completed{key, request.parts, without_bytes(*shared)};
    found->completed_order.push_back(id);
    if (found->completed_order.size() > kCompletedKept) {
        found->completed.erase(found->completed_order.front());
        found->completed_order.pop_front();
    }
    return shared;
}

const ObjectTable::Bucket* ObjectTable::find_bucket(std::string_view name) const {
    const auto found = buckets_.find(name);
    return found == buckets_.end() ? nullptr : &found->second;
}

ObjectTable::Bucket* ObjectTable::find_bucket(std::string_view name) {
    const auto found = buckets_.find(name);
    return found == buckets_.end() ? nullptr : &found->second;
}

Outcome<const Upload*> ObjectTable::find_upload(const std::string& bucket, const std::string& key,
                                                const std::string& id) const {
    const Bucket* found = find_bucket(bucket);
    if (found == nullptr) {
        return fail("NoSuchBucket");
    }
    const auto upload = found->uploads.find(id);
    if (upload == found->uploads.end() || upload->second.key != key) {
        return fail("NoSuchUpload");
    }
    return &upload->second;
}

Outcome<Upload*> ObjectTable::find_upload(const std::string& bucket, const std::string& key, const std::string& id) {
    const auto found = std::as_const(*this).find_upload(bucket, key, id);
    if (!found) {
        return tl::unexpected(found.error());
    }
    return const_cast<Upload*>(*found);
}

std::string ObjectTable::new_etag(const ByteChain& bytes) {
    if (md5_etags_) {
        return to_hex(digest_of(DigestKind::kMd5, bytes));
    }
    return hex_of(scramble(++last_id_)) + hex_of(scramble(++last_id_));
}

std::string ObjectTable::new_id() {
    static const std::uint64_t seed = std::random_device{}();
    return hex_of(scramble(++last_id_ ^ seed << 32U)) + hex_of(scramble(++last_id_));
}

}  // namespace ckptfs::s3sim
