// SPDX-License-Identifier: Apache-2.0
#include "writeback/store_rules.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ckptfs {
namespace {

Failure refused(int errno_value, const char* code, int status, const std::string& key, const char* what) {
    Error error;
    error.errno_value = errno_value;
    error.s3_code = code;
    error.http_status = status;
    error.message = key + ": " + what;
    return failure(std::move(error));
}

}  // namespace

Failure no_such_key(const std::string& key) {
    return refused(ENOENT, "NoSuchKey", 404, key, "no such key");
}

Failure another_version(const std::string& key) {
    return refused(ESTALE, "PreconditionFailed", 412, key, "another version is there");
}

Failure exists_already(const std::string& key) {
    return refused(EEXIST, "PreconditionFailed", 412, key, "exists");
}

Failure invalid_range(const std::string& key) {
    return refused(EINVAL, "InvalidRange", 416, key, "is shorter than that");
}

std::optional<ByteRange> range_in(const std::optional<ByteRange>& range, std::uint64_t size) {
    if (!range) {
        return ByteRange{0, size};
    }
    if (range->suffix) {
        const std::uint64_t length = std::min(range->length, size);
        return ByteRange{size - length, length};
    }
    if (range->offset >= size && size > 0) {
        return std::nullopt;
    }
    const std::uint64_t offset = std::min(range->offset, size);
    return ByteRange{offset, std::min(range->length, size - offset)};
}

}  // namespace ckptfs
