// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "operations.h"

namespace ckptfs::s3sim {
namespace {

struct ChecksumChoice {
    std::optional<DigestKind> kind;
    bool full_object = false;
};

// Amazon S3 User Guide, "Checking object integrity": SHA is composite only, CRC64NVME full-object only.
Outcome<ChecksumChoice> read_checksum_choice(const HttpRequest& request) {
    const auto name = request.header("x-amz-checksum-algorithm");
    const auto type = request.header("x-amz-checksum-type");
    if (!name) {
        return type ? Outcome<ChecksumChoice>(fail("InvalidRequest",
                                                   "The x-amz-checksum-type header can only be used with the "
                                                   "x-amz-checksum-algorithm header."))
                    : ChecksumChoice{};
    }
    const auto kind = checksum_algorithm(*name);
    if (!kind) {
        return fail("InvalidRequest", "Checksum algorithm provided is unsupported.");
    }
    const bool full_object_only = *kind == DigestKind::kCrc64Nvme;
    const bool full_object = type ? *type == "FULL_OBJECT" : full_object_only;
    if ((type && *type != "FULL_OBJECT" && *type != "COMPOSITE") || (full_object && !is_crc(*kind)) ||
        (!full_object && full_object_only)) {
        return fail("InvalidRequest", "The checksum type cannot be used with this checksum algorithm.");
    }
    return ChecksumChoice{kind, full_object};
}

Outcome<void> check_part_algorithm(const Upload& upload, const std::optional<Checksum>& checksum) {
    if (upload.checksum_kind && (!checksum || checksum->kind != *upload.checksum_kind)) {
        return fail("InvalidRequest",
                    "Checksum Type mismatch occurred, expected checksum Type: " +
                        lower_case(algorithm_name(*upload.checksum_kind)) + ", actual checksum Type: " +
                        (checksum ? lower_case(algorithm_name(checksum->kind)) : std::string("null")));
    }
    return {};
}

std::string upload_id(const S3Request& request) {
    return std::string(request.parameter("uploadId").value_or(""));
}

Outcome<ByteChain> select_copied_bytes(const HttpRequest& request, const Object& source) {
    const auto header = request.header("x-amz-copy-source-range");
    const std::uint64_t size = source.bytes.size();
    ByteRange range{0, size};
    if (header) {
        if (size <= kSmallestPart) {
            return fail("InvalidRequest",
                        "The specified copy range is only valid for source objects of size greater than 5 MB.");
        }
        const auto resolved = resolve_copy_range(*header, size);
        if (!resolved) {
            return tl::unexpected(resolved.error());
        }
        range = *resolved;
    }
    if (range.length > kLargestPart) {
        return fail(
            "InvalidRequest",
            "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120");
    }
    return source.bytes.range(range.offset, range.length);
}

void add_checksum(XmlWriter& writer, const Checksum& checksum) {
    writer.element(checksum_element(checksum.kind), checksum.value);
    writer.element("ChecksumType", checksum.composite ? "COMPOSITE" : "FULL_OBJECT");
}

}  // namespace

OperationResult create_multipart_upload(const OperationInput& input) {
    const auto choice = read_checksum_choice(input.request.http);
    if (!choice) {
        return tl::unexpected(choice.error());
    }
    Upload upload;
    upload.key = input.request.key;
    upload.attributes = read_attributes(input.request.http);
    upload.checksum_kind = choice->kind;
    upload.full_object_checksum = choice->full_object;
    const auto id = input.table.create_upload(input.request.bucket, std::move(upload));
    if (!id) {
        return tl::unexpected(id.error());
    }
    XmlWriter writer;
    writer.open_root("InitiateMultipartUploadResult");
    writer.element("Bucket", input.request.bucket);
    writer.element("Key", input.request.key);
    writer.element("UploadId", *id);
    S3Reply reply = S3Reply::xml(writer.finish());
    if (choice->kind) {
        reply.headers.emplace_back("x-amz-checksum-algorithm", algorithm_name(*choice->kind));
        reply.headers.emplace_back("x-amz-checksum-type", choice->full_object ? "FULL_OBJECT" : "COMPOSITE");
    }
    return reply;
}

OperationResult upload_part(const OperationInput& input) {
    const std::string id = upload_id(input.request);
    const auto upload = input.table.upload_settings(input.request.bucket, input.request.key, id);
    if (!upload) {
        return tl::unexpected(upload.error());
    }
    if (auto checked = check_part_algorithm(*upload, input.checksum); !checked) {
        return tl::unexpected(std::move(checked.error()));
    }
    const auto etag = input.table.put_part(input.request.bucket, input.request.key, id, input.request.part_number(),
                                           StoredPart{std::move(input.body.bytes), {}, {}, input.checksum});
    if (!etag) {
        return tl::unexpected(etag.error());
    }
    S3Reply reply;
    reply.headers.emplace_back("ETag", quoted(*etag));
    if (input.checksum) {
        reply.headers.emplace_back(checksum_header(input.checksum->kind), input.checksum->value);
    }
    return reply;
}

OperationResult upload_part_copy(const OperationInput& input) {
    const std::string id = upload_id(input.request);
    const auto upload = input.table.upload_settings(input.request.bucket, input.request.key, id);
    if (!upload) {
        return tl::unexpected(upload.error());
    }
    const auto source = find_copy_source(input);
    if (!source) {
        return tl::unexpected(source.error());
    }
    const auto bytes = select_copied_bytes(input.request.http, **source);
    if (!bytes) {
        return tl::unexpected(bytes.error());
    }
    StoredPart part{*bytes, {}, {}, std::nullopt};
    if (const auto kind = upload->checksum_kind) {
        part.checksum = Checksum{*kind, to_base64(digest_of(*kind, *bytes)), false};
    }
    const std::optional<Checksum> checksum = part.checksum;
    const auto etag =
        input.table.put_part(input.request.bucket, input.request.key, id, input.request.part_number(), std::move(part));
    if (!etag) {
        return tl::unexpected(etag.error());
    }
    XmlWriter writer;
    writer.open_root("CopyPartResult");
    writer.element("LastModified", iso_date(input.table.now()));
    writer.element("ETag", quoted(*etag));
    if (checksum) {
        writer.element(checksum_element(checksum->kind), checksum->value);
    }
    S3Reply reply = S3Reply::xml(writer.finish());
    reply.bytes_copied = bytes->size();
    return reply;
}

OperationResult complete_multipart_upload(const OperationInput& input) {
    auto parts = read_complete_multipart_upload(input.body.bytes.to_string());
    if (!parts) {
        return tl::unexpected(std::move(parts.error()));
    }
    const auto condition = read_write_condition(input.request.http);
    if (!condition) {
        return tl::unexpected(condition.error());
    }
    const CompleteRequest complete{std::move(*parts), *condition, read_object_checksum(input.request.http),
                                   parse_number(input.request.http.header_or("x-amz-mp-object-size", "")),
                                   input.part_rules};
    const auto object =
        input.table.complete(input.request.bucket, input.request.key, upload_id(input.request), complete);
    if (!object) {
        return tl::unexpected(object.error());
    }
    XmlWriter writer;
    writer.open_root("CompleteMultipartUploadResult");
    writer.element("Location", "http://s3sim/" + input.request.bucket + "/" + input.request.key);
    writer.element("Bucket", input.request.bucket);
    writer.element("Key", input.request.key);
    writer.element("ETag", quoted((*object)->etag));
    if ((*object)->checksum) {
        add_checksum(writer, *(*object)->checksum);
    }
    return S3Reply::xml(writer.finish());
}

OperationResult abort_multipart_upload(const OperationInput& input) {
    const auto aborted = input.table.abort(input.request.bucket, input.request.key, upload_id(input.request));
    if (!aborted) {
        return tl::unexpected(aborted.error());
    }
    S3Reply reply;
    reply.status = 204;
    return reply;
}

}  // namespace ckptfs::s3sim
