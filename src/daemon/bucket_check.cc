// SPDX-License-Identifier: Apache-2.0
#include "daemon/bucket_check.h"

#include <cerrno>
#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

Failure because(std::string_view what, Error error) {
    error.message = format("{}: {}", what, error.message);
    return failure(std::move(error));
}

// Only a warning: one object may belong to another user.
void warn_if_unreadable(ObjectStore& store, const std::string& key) {
    const auto head = wait_for<ObjectInfo>([&](auto done) { store.head(key, std::move(done)); });
    if (!head && head.error().errno_value == EACCES) {
        log_warning("objects cannot be read (s3:GetObject): " + escaped(head.error().message));
    }
}

}  // namespace

Status check_bucket(ObjectStore& store, const std::string& prefix, bool read_only, const std::string& name) {
    ListRequest list;
    list.prefix = prefix;
    list.max_keys = 1;
    auto listed = wait_for<ListResponse>([&](auto done) { store.list(std::move(list), std::move(done)); });
    if (!listed) {
        return because("cannot list the bucket", std::move(listed.error()));
    }
    if (!listed->objects.empty()) {
        warn_if_unreadable(store, listed->objects.front().key);
    }
    if (read_only) {
        return {};
    }
    CreateUploadRequest trial;
    trial.key = format("{}{}{}", prefix, kTemporaryPrefix, name);
    auto upload = wait_for<UploadId>([&](auto done) { store.create_upload(std::move(trial), std::move(done)); });
    if (!upload) {
        return because("cannot write to the bucket (--read-only mounts it without write access)",
                       std::move(upload.error()));
    }
    if (auto ended = wait_for<void>([&](auto done) { store.abort_upload(*upload, std::move(done)); }); !ended) {
        return because("cannot abort an upload in the bucket", std::move(ended.error()));
    }
    return {};
}

}  // namespace ckptfs
