// SPDX-License-Identifier: Apache-2.0
#pragma once

// Buckets, objects and multipart uploads: what the simulator holds, and S3's rules for changing it.
// Thread-safe; objects and parts are immutable and shared, so a reader keeps what it found.

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "byte_chain.h"
#include "checksum_headers.h"
#include "conditions.h"
#include "outcome.h"
#include "times.h"
#include "xml.h"

namespace ckptfs::s3sim {

// Amazon S3 User Guide, "Amazon S3 multipart upload limits" and "Creating object key names".
inline constexpr std::uint64_t kSmallestPart = std::uint64_t{5} << 20;
inline constexpr std::uint64_t kLargestPart = std::uint64_t{5} << 30;
inline constexpr std::uint64_t kLargestObject = std::uint64_t{5} << 40;
inline constexpr int kMostParts = 10'000;
inline constexpr std::size_t kLongestKey = 1024;

// What a writer says about an object besides its bytes; answered again by every read.
struct ObjectAttributes {
    std::vector<NameValue> headers;   // Content-Type and the like, as they are answered
    std::vector<NameValue> metadata;  // x-amz-meta-*
};

struct ObjectPart {
    int number = 0;
    std::uint64_t size = 0;
    std::optional<std::string> checksum;  // base64
};

struct Object {
    ByteChain bytes;
    std::string etag;  // without quotes
    SystemTime last_modified;
    ObjectAttributes attributes;
    std::optional<Checksum> checksum;
    std::vector<ObjectPart> parts;  // empty unless it was a multipart upload
};
using ObjectPtr = std::shared_ptr<const Object>;

// Of an upload that is not completed.
struct StoredPart {
    ByteChain bytes;
    std::string etag;
    SystemTime last_modified;
    std::optional<Checksum> checksum;
};

struct Upload {
    std::string id;
    std::string key;
    SystemTime initiated;
    ObjectAttributes attributes;
    std::optional<DigestKind> checksum_kind;
    bool full_object_checksum = false;
    std::map<int, StoredPart> parts;
};

struct BucketInfo {
    std::string name;
    std::string region;
    SystemTime created;
};

// Of stores that refuse in a Complete what S3 takes.
struct PartRules {
    bool equal_only = false;  // parts of one size, the last one aside
    bool named_only = false;  // no part of the upload is left out
};

struct CompleteRequest {
    std::vector<CompletedPart> parts;
    WriteCondition condition;
    std::optional<Checksum> checksum;   // of the whole object, as the client computed it
    std::optional<std::uint64_t> size;  // x-amz-mp-object-size
    PartRules rules;
};

class ObjectTable {
public:
    explicit ObjectTable(bool md5_etags) : md5_etags_(md5_etags) {}

    Outcome<void> create_bucket(const std::string& name, const std::string& region);
    Outcome<void> delete_bucket(const std::string& name);
    std::optional<BucketInfo> bucket(std::string_view name) const;
    std::vector<BucketInfo> buckets() const;

    Outcome<ObjectPtr> find(const std::string& bucket, const std::string& key) const;
    // Fills in ETag and time.
    Outcome<ObjectPtr> put(const std::string& bucket, const std::string& key, Object object,
                           const WriteCondition& condition);
    Outcome<void> erase(const std::string& bucket, const std::string& key, const std::optional<std::string>& if_match);
    // Calls visit(key, object) in byte order from `from` on; it returns the key to go on from, or nothing to stop.
    template <class Visit>
    Outcome<void> scan(const std::string& bucket, const std::string& from, Visit visit) const;

    Outcome<std::string> create_upload(const std::string& bucket, Upload upload);
    Outcome<void> check_upload(const std::string& bucket, const std::string& key, const std::string& id) const;
    // A copy without the parts.
    Outcome<Upload> upload_settings(const std::string& bucket, const std::string& key, const std::string& id) const;
    // A copy that shares the parts' bytes.
    Outcome<Upload> describe_upload(const std::string& bucket, const std::string& key, const std::string& id) const;
    std::vector<Upload> uploads(const std::string& bucket) const;
    // Returns the part's ETag.
    Outcome<std::string> put_part(const std::string& bucket, const std::string& key, const std::string& id, int number,
                                  StoredPart part);
    Outcome<void> abort(const std::string& bucket, const std::string& key, const std::string& id);
    // A repeated call gets the object that the first one made, without its bytes.
    Outcome<ObjectPtr> complete(const std::string& bucket, const std::string& key, const std::string& id,
                                const CompleteRequest& request);

    // By how much the simulator's clock is wrong.
    void set_clock_offset(std::chrono::milliseconds offset) { clock_offset_.store(offset); }
    SystemTime now() const { return std::chrono::system_clock::now() + clock_offset_.load(); }

private:
    struct Completed {
        std::string key;
        std::vector<CompletedPart> parts;
        ObjectPtr object;
    };
    struct Bucket {
        BucketInfo info;
        std::map<std::string, ObjectPtr, std::less<>> objects;
        std::map<std::string, Upload> uploads;  // by id
        std::map<std::string, Completed> completed;
        std::deque<std::string> completed_order;
    };

    const Bucket* find_bucket(std::string_view name) const;  // mutex_ held
    Bucket* find_bucket(std::string_view name);              // mutex_ held
    Outcome<const Upload*> find_upload(const std::string& bucket, const std::string& key,
                                       const std::string& id) const;  // mutex_ held
    Outcome<Upload*> find_upload(const std::string& bucket, const std::string& key,
                                 const std::string& id);  // mutex_ held
    std::string new_etag(const ByteChain& bytes);
    std::string new_id();

    const bool md5_etags_;
    std::atomic<std::uint64_t> last_id_{0};
    std::atomic<std::chrono::milliseconds> clock_offset_{std::chrono::milliseconds(0)};

    mutable std::mutex mutex_;
    std::map<std::string, Bucket, std::less<>> buckets_;  // guarded by mutex_
};

template <class Visit>
Outcome<void> ObjectTable::scan(const std::string& bucket, const std::string& from, Visit visit) const {
    const std::lock_guard lock(mutex_);
    const Bucket* found = find_bucket(bucket);
    if (found == nullptr) {
        return fail("NoSuchBucket");
    }
    auto at = found->objects.lower_bound(from);
    while (at != found->objects.end()) {
        const std::optional<std::string> next = visit(at->first, at->second);
        if (!next) {
            break;
        }
        // Most steps are to the neighbour; a lookup is for jumps over a common prefix.
        ++at;
        if (at != found->objects.end() && at->first < *next) {
            at = found->objects.lower_bound(*next);
        }
    }
    return {};
}

}  // namespace ckptfs::s3sim
