// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "operations.h"

namespace ckptfs::s3sim {
namespace {

// Amazon S3 API Reference, CopyObject: up to 5 GB in one request.
constexpr std::uint64_t kLargestCopy = std::uint64_t{5} << 30;

bool equal_without_case(std::string_view a, std::string_view b) {
    return lower_case(a) == lower_case(b);
}

void add_checksum_headers(std::vector<NameValue>& headers, const Checksum& checksum) {
    headers.emplace_back(checksum_header(checksum.kind), checksum.value);
    headers.emplace_back("x-amz-checksum-type", checksum.composite ? "COMPOSITE" : "FULL_OBJECT");
}

void add_object_headers(std::vector<NameValue>& headers, const Object& object) {
    headers.emplace_back("ETag", quoted(object.etag));
    headers.emplace_back("Last-Modified", http_date(object.last_modified));
    headers.emplace_back("Accept-Ranges", "bytes");
    headers.insert(headers.end(), object.attributes.headers.begin(), object.attributes.headers.end());
    headers.insert(headers.end(), object.attributes.metadata.begin(), object.attributes.metadata.end());
}

// What of an object a read is to return.
struct Selection {
    ByteRange range;
    bool partial = false;
    std::optional<Checksum> checksum;
    std::optional<std::size_t> parts_count;
};

Outcome<Selection> select_part(const Object& object, const S3Request& request) {
    const int number = request.part_number();
    if (object.parts.empty() && number == 1) {
        return Selection{{0, object.bytes.size()}, true, object.checksum, std::nullopt};
    }
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < object.parts.size(); ++i) {
        const ObjectPart& part = object.parts[i];
        if (i + 1 == static_cast<std::size_t>(std::max(number, 0))) {
            Selection selection{{offset, part.size}, true, std::nullopt, object.parts.size()};
            if (part.checksum && object.checksum) {
                selection.checksum = Checksum{object.checksum->kind, *part.checksum, false};
            }
            return selection;
        }
        offset += part.size;
    }
    return fail("InvalidPartNumber");
}

Outcome<Selection> select_bytes(const Object& object, const S3Request& request) {
    if (request.parameter("partNumber")) {
        if (request.http.header("range")) {
            return fail("InvalidRequest", "Cannot specify both Range header and partNumber query parameter");
        }
        return select_part(object, request);
    }
    if (const auto header = request.http.header("range")) {
        const auto range = resolve_range(*header, object.bytes.size());
        if (!range) {
            return tl::unexpected(range.error());
        }
        if (*range) {
            // A checksum of the whole would be wrong for a piece.
            return Selection{**range, true, std::nullopt, std::nullopt};
        }
    }
    return Selection{{0, object.bytes.size()}, false, object.checksum, std::nullopt};
}

Checksum checksum_of(DigestKind kind, const ByteChain& bytes) {
    return Checksum{kind, to_base64(digest_of(kind, bytes)), false};
}

Outcome<std::optional<Checksum>> copied_checksum(const HttpRequest& request, const Object& source) {
    if (const auto name = request.header("x-amz-checksum-algorithm")) {
        const auto kind = checksum_algorithm(*name);
        if (!kind) {
            return fail("InvalidRequest", "Value for x-amz-checksum-algorithm header is invalid.");
        }
        return checksum_of(*kind, source.bytes);
    }
    if (source.checksum && source.checksum->composite) {
        return checksum_of(source.checksum->kind, source.bytes);
    }
    return source.checksum;
}

Outcome<ObjectAttributes> copied_attributes(const S3Request& request, const Object& source) {
    const std::string_view directive = request.http.header_or("x-amz-metadata-directive", "COPY");
    ObjectAttributes attributes = read_attributes(request.http);
    if (directive == "REPLACE") {
        return attributes;
    }
    if (directive != "COPY") {
        return fail("InvalidArgument", "Unknown metadata directive.");
    }
    // Storage class and encryption belong to the copy, everything else to what is copied.
    std::erase_if(attributes.headers, [](const NameValue& header) { return !header.first.starts_with("x-amz-"); });
    for (const NameValue& header : source.attributes.headers) {
        if (!header.first.starts_with("x-amz-")) {
            attributes.headers.push_back(header);
        }
    }
    attributes.metadata = source.attributes.metadata;
    return attributes;
}

Outcome<void> check_self_copy(const OperationInput& input) {
    const auto source = read_copy_source(input.request.http);
    const bool same = source && source->bucket == input.request.bucket && source->key == input.request.key;
    if (same && input.request.http.header_or("x-amz-metadata-directive", "COPY") == "COPY" &&
        !input.request.http.header("x-amz-storage-class") &&
        !input.request.http.header("x-amz-server-side-encryption")) {
        return fail("InvalidRequest",
                    "This copy request is illegal because it is trying to copy an object to itself without changing "
                    "the object's metadata, storage class, website redirect location or encryption attributes.");
    }
    return {};
}

}  // namespace

OperationResult put_object(const OperationInput& input) {
    const auto condition = read_write_condition(input.request.http);
    if (!condition) {
        return tl::unexpected(condition.error());
    }
    Object object;
    object.bytes = std::move(input.body.bytes);
    object.attributes = read_attributes(input.request.http);
    object.checksum = input.checksum;
    const auto stored = input.table.put(input.request.bucket, input.request.key, std::move(object), *condition);
    if (!stored) {
        return tl::unexpected(stored.error());
    }
    S3Reply reply;
    reply.headers.emplace_back("ETag", quoted((*stored)->etag));
    if (input.checksum) {
        add_checksum_headers(reply.headers, *input.checksum);
    }
    return reply;
}

OperationResult get_object(const OperationInput& input) {
    const auto object = input.table.find(input.request.bucket, input.request.key);
    if (!object) {
        return tl::unexpected(object.error());
    }
    auto allowed = check_read_conditions(input.request.http, "", (*object)->etag, (*object)->last_modified);
    if (!allowed) {
        if (allowed.error().status == 304) {
            allowed.error().headers.emplace_back("ETag", quoted((*object)->etag));
        }
        return tl::unexpected(std::move(allowed.error()));
    }
    const auto selection = select_bytes(**object, input.request);
    if (!selection) {
        return tl::unexpected(selection.error());
    }
    const auto [offset, length] = selection->range;
    S3Reply reply;
    reply.status = selection->partial ? 206 : 200;
    add_object_headers(reply.headers, **object);
    reply.headers.emplace_back("Content-Length", std::to_string(length));
    if (selection->partial && length > 0) {
        reply.headers.emplace_back("Content-Range", "bytes " + std::to_string(offset) + "-" +
                                                        std::to_string(offset + length - 1) + "/" +
                                                        std::to_string((*object)->bytes.size()));
    }
    if (selection->parts_count) {
        reply.headers.emplace_back("x-amz-mp-parts-count", std::to_string(*selection->parts_count));
    }
    if (selection->checksum && equal_without_case(input.request.http.header_or("x-amz-checksum-mode", ""), "ENABLED")) {
        add_checksum_headers(reply.headers, *selection->checksum);
    }
    if (!input.request.is_head()) {
        reply.body = (*object)->bytes.range(offset, length);
    }
    return reply;
}

OperationResult delete_object(const OperationInput& input) {
    const auto if_match = input.request.http.header("if-match");
    const auto erased = input.table.erase(input.request.bucket, input.request.key,
                                          if_match ? std::optional(unquote_etag(*if_match)) : std::nullopt);
    if (!erased) {
        return tl::unexpected(erased.error());
    }
    S3Reply reply;
    reply.status = 204;
    return reply;
}

OperationResult delete_objects(const OperationInput& input) {
    if (!input.checksum && !input.request.http.header("content-md5")) {
        return fail("InvalidRequest", "Missing required header for this request: Content-MD5");
    }
    const auto request = read_delete(input.body.bytes.to_string());
    if (!request) {
        return tl::unexpected(request.error());
    }
    XmlWriter writer;
    writer.open_root("DeleteResult");
    for (const DeleteRequest::Entry& entry : request->entries) {
        const auto erased = input.table.erase(input.request.bucket, entry.key,
                                              input.ignores_delete_conditions ? std::nullopt : entry.etag);
        if (erased && request->quiet) {
            continue;
        }
        writer.open(erased ? "Deleted" : "Error");
        writer.element("Key", entry.key);
        if (!erased) {
            writer.element("Code", erased.error().code);
            writer.element("Message", erased.error().message);
        }
        writer.close();
    }
    return S3Reply::xml(writer.finish());
}

OperationResult copy_object(const OperationInput& input) {
    const auto condition = read_write_condition(input.request.http);
    const auto source = find_copy_source(input);
    if (!condition || !source) {
        return tl::unexpected(condition ? source.error() : condition.error());
    }
    if ((*source)->bytes.size() > kLargestCopy) {
        return fail(
            "InvalidRequest",
            "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120");
    }
    if (auto checked = check_self_copy(input); !checked) {
        return tl::unexpected(std::move(checked.error()));
    }
    auto attributes = copied_attributes(input.request, **source);
    auto checksum = copied_checksum(input.request.http, **source);
    if (!attributes || !checksum) {
        return tl::unexpected(attributes ? checksum.error() : attributes.error());
    }
    Object object;
    object.bytes = (*source)->bytes;
    object.attributes = std::move(*attributes);
    object.checksum = std::move(*checksum);
    const auto stored = input.table.put(input.request.bucket, input.request.key, std::move(object), *condition);
    if (!stored) {
        return tl::unexpected(stored.error());
    }
    XmlWriter writer;
    writer.open_root("CopyObjectResult");
    writer.element("LastModified", iso_date((*stored)->last_modified));
    writer.element("ETag", quoted((*stored)->etag));
    if ((*stored)->checksum) {
        writer.element(checksum_element((*stored)->checksum->kind), (*stored)->checksum->value);
    }
    S3Reply reply = S3Reply::xml(writer.finish());
    reply.bytes_copied = (*stored)->bytes.size();
    return reply;
}

}  // namespace ckptfs::s3sim
