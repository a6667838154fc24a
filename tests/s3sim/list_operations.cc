// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "operations.h"
#include "uri.h"

namespace ckptfs::s3sim {
namespace {

// Amazon S3 API Reference, ListObjectsV2, ListMultipartUploads and ListParts: at most 1,000 entries a reply.
constexpr std::size_t kMostEntries = 1000;

Outcome<std::size_t> read_limit(const S3Request& request, std::string_view name) {
    const auto text = request.parameter(name);
    if (!text || text->empty()) {
        return kMostEntries;
    }
    const auto number = parse_number(*text);
    if (!number || *number > 0x7FFFFFFF) {
        return fail("InvalidArgument", "Provided " + std::string(name) + " not an integer or within integer range");
    }
    return static_cast<std::size_t>(std::min<std::uint64_t>(*number, kMostEntries));
}

// The smallest string greater than every string that starts with `prefix`; empty if there is none.
std::string after_prefix(std::string prefix) {
    while (!prefix.empty() && prefix.back() == '\xFF') {
        prefix.pop_back();
    }
    if (!prefix.empty()) {
        prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
    }
    return prefix;
}

struct ListQuery {
    std::string prefix;
    std::string delimiter;
    std::string after;          // only keys greater than this
    bool after_prefix = false;  // `after` is a common prefix that was listed: nothing below it again
    std::size_t limit = kMostEntries;
    bool encode_keys = false;

    std::string shown(std::string_view key) const { return encode_keys ? encode_listed_key(key) : std::string(key); }
};

struct ListPage {
    struct Entry {
        std::string name;  // a key, or a common prefix where there is no object
        ObjectPtr object;
    };
    std::vector<Entry> entries;
    bool truncated = false;
};

// The common prefix that a key is rolled up into, or nothing.
std::optional<std::string> common_prefix(const ListQuery& query, std::string_view key) {
    if (query.delimiter.empty()) {
        return std::nullopt;
    }
    const std::size_t at = key.find(query.delimiter, query.prefix.size());
    if (at == std::string_view::npos) {
        return std::nullopt;
    }
    return std::string(key.substr(0, at + query.delimiter.size()));
}

Outcome<ListPage> list_page(const ObjectTable& table, const std::string& bucket, const ListQuery& query) {
    ListPage page;
    std::string from = std::max(query.prefix, query.after);
    if (query.after_prefix) {
        from = std::max(query.prefix, after_prefix(query.after));
    }
    const auto scanned =
        table.scan(bucket, from, [&](const std::string& key, const ObjectPtr& object) -> std::optional<std::string> {
            if (!key.starts_with(query.prefix)) {
                return std::nullopt;
            }
            if (key == query.after) {
                return key;
            }
            if (page.entries.size() == query.limit) {
                page.truncated = query.limit > 0;
                return std::nullopt;
            }
            auto rolled_up = common_prefix(query, key);
            if (!rolled_up) {
                page.entries.push_back({key, object});
                return key;
            }
            std::string next = after_prefix(*rolled_up);
            page.entries.push_back({std::move(*rolled_up), nullptr});
            return next.empty() ? std::nullopt : std::optional(std::move(next));
        });
    return scanned ? Outcome<ListPage>(std::move(page)) : tl::unexpected(scanned.error());
}

// Tokens are opaque to clients; these hold the kind and name of the last entry, and characters that need escapes.
std::string continuation_token(const ListPage& page) {
    const ListPage::Entry& last = page.entries.back();
    return to_base64((last.object ? "key:" : "dir:") + last.name);
}

Outcome<void> read_continuation(std::string_view token, ListQuery& query) {
    const auto decoded = from_base64(token);
    if (!decoded || (!decoded->starts_with("key:") && !decoded->starts_with("dir:"))) {
        return fail("InvalidArgument", "The continuation token provided is incorrect");
    }
    query.after = decoded->substr(4);
    query.after_prefix = decoded->starts_with("dir:");
    return {};
}

Outcome<ListQuery> read_list_query(const S3Request& request) {
    ListQuery query;
    query.prefix = request.parameter("prefix").value_or("");
    query.delimiter = request.parameter("delimiter").value_or("");
    const auto limit = read_limit(request, "max-keys");
    if (!limit) {
        return tl::unexpected(limit.error());
    }
    query.limit = *limit;
    if (const auto encoding = request.parameter("encoding-type"); encoding && !encoding->empty()) {
        if (*encoding != "url") {
            return fail("InvalidArgument", "Invalid Encoding Method specified in Request");
        }
        query.encode_keys = true;
    }
    if (request.operation == Operation::kListObjects) {
        query.after = request.parameter("marker").value_or("");
        query.after_prefix = common_prefix(query, query.after) == query.after && !query.after.empty();
        return query;
    }
    query.after = request.parameter("start-after").value_or("");
    if (const auto token = request.parameter("continuation-token")) {
        if (auto read = read_continuation(*token, query); !read) {
            return tl::unexpected(std::move(read.error()));
        }
    }
    return query;
}

void write_entries(XmlWriter& writer, const ListQuery& query, const ListPage& page) {
    for (const ListPage::Entry& entry : page.entries) {
        if (!entry.object) {
            continue;
        }
        writer.open("Contents");
        writer.element("Key", query.shown(entry.name));
        writer.element("LastModified", iso_date(entry.object->last_modified));
        writer.element("ETag", quoted(entry.object->etag));
        if (entry.object->checksum) {
            writer.element("ChecksumAlgorithm", algorithm_name(entry.object->checksum->kind));
        }
        writer.element("Size", entry.object->bytes.size());
        writer.element("StorageClass", "STANDARD");
        writer.close();
    }
    for (const ListPage::Entry& entry : page.entries) {
        if (!entry.object) {
            writer.open("CommonPrefixes");
            writer.element("Prefix", query.shown(entry.name));
            writer.close();
        }
    }
}

void write_position(XmlWriter& writer, const S3Request& request, const ListQuery& query, const ListPage& page) {
    if (request.operation == Operation::kListObjects) {
        writer.element("Marker", query.shown(request.parameter("marker").value_or("")));
        if (page.truncated && !query.delimiter.empty()) {
            writer.element("NextMarker", query.shown(page.entries.back().name));
        }
        return;
    }
    writer.element("KeyCount", std::uint64_t{page.entries.size()});
    if (const auto start_after = request.parameter("start-after")) {
        writer.element("StartAfter", query.shown(*start_after));
    }
    if (const auto token = request.parameter("continuation-token")) {
        writer.element("ContinuationToken", *token);
    }
    if (page.truncated) {
        writer.element("NextContinuationToken", continuation_token(page));
    }
}

// `uploads` is in order, and without those before the markers.
std::string upload_listing(const S3Request& request, const ListQuery& query, const std::vector<Upload>& uploads,
                           std::size_t limit) {
    XmlWriter writer;
    writer.open_root("ListMultipartUploadsResult");
    writer.element("Bucket", request.bucket);
    writer.element("KeyMarker", query.shown(request.parameter("key-marker").value_or("")));
    writer.element("UploadIdMarker", request.parameter("upload-id-marker").value_or(""));
    writer.element("Prefix", query.shown(query.prefix));
    if (query.encode_keys) {
        writer.element("EncodingType", "url");
    }
    writer.element("MaxUploads", std::uint64_t{limit});
    std::vector<std::string> prefixes;
    const Upload* last = nullptr;
    std::size_t listed = 0;
    bool truncated = false;
    for (const Upload& upload : uploads) {
        const auto rolled_up = common_prefix(query, upload.key);
        const bool same_prefix = rolled_up && !prefixes.empty() && prefixes.back() == *rolled_up;
        if (listed == limit && !same_prefix) {
            truncated = true;
            break;
        }
        last = &upload;
        if (same_prefix) {
            continue;
        }
        ++listed;
        if (rolled_up) {
            prefixes.push_back(*rolled_up);
            continue;
        }
        writer.open("Upload");
        writer.element("Key", query.shown(upload.key));
        writer.element("UploadId", upload.id);
        writer.element("StorageClass", "STANDARD");
        writer.element("Initiated", iso_date(upload.initiated));
        writer.close();
    }
    for (const std::string& prefix : prefixes) {
        writer.open("CommonPrefixes");
        writer.element("Prefix", query.shown(prefix));
        writer.close();
    }
    if (truncated && last != nullptr) {
        writer.element("NextKeyMarker", query.shown(last->key));
        writer.element("NextUploadIdMarker", last->id);
    }
    writer.element("IsTruncated", truncated);
    return writer.finish();
}

}  // namespace

OperationResult list_objects(const OperationInput& input) {
    const auto query = read_list_query(input.request);
    if (!query) {
        return tl::unexpected(query.error());
    }
    const auto page = list_page(input.table, input.request.bucket, *query);
    if (!page) {
        return tl::unexpected(page.error());
    }
    XmlWriter writer;
    writer.open_root("ListBucketResult");
    writer.element("Name", input.request.bucket);
    writer.element("Prefix", query->shown(query->prefix));
    if (!query->delimiter.empty()) {
        writer.element("Delimiter", query->shown(query->delimiter));
    }
    if (query->encode_keys) {
        writer.element("EncodingType", "url");
    }
    writer.element("MaxKeys", std::uint64_t{query->limit});
    writer.element("IsTruncated", page->truncated);
    write_position(writer, input.request, *query, *page);
    write_entries(writer, *query, *page);
    return S3Reply::xml(writer.finish());
}

OperationResult list_multipart_uploads(const OperationInput& input) {
    const auto limit = read_limit(input.request, "max-uploads");
    if (!limit) {
        return tl::unexpected(limit.error());
    }
    ListQuery query;
    query.prefix = input.request.parameter("prefix").value_or("");
    query.delimiter = input.request.parameter("delimiter").value_or("");
    query.encode_keys = input.request.parameter("encoding-type") == "url";
    const std::string key_marker(input.request.parameter("key-marker").value_or(""));
    const std::string id_marker(input.request.parameter("upload-id-marker").value_or(""));
    std::vector<Upload> uploads = input.table.uploads(input.request.bucket);
    std::sort(uploads.begin(), uploads.end(),
              [](const Upload& a, const Upload& b) { return std::tie(a.key, a.id) < std::tie(b.key, b.id); });
    std::erase_if(uploads, [&](const Upload& upload) {
        const bool passed = id_marker.empty() ? upload.key <= key_marker
                                              : std::tie(upload.key, upload.id) <= std::tie(key_marker, id_marker);
        return !upload.key.starts_with(query.prefix) || (!key_marker.empty() && passed);
    });
    return S3Reply::xml(upload_listing(input.request, query, uploads, *limit));
}

OperationResult list_parts(const OperationInput& input) {
    const auto limit = read_limit(input.request, "max-parts");
    const auto upload = input.table.describe_upload(input.request.bucket, input.request.key,
                                                    std::string(input.request.parameter("uploadId").value_or("")));
    if (!limit || !upload) {
        return tl::unexpected(limit ? upload.error() : limit.error());
    }
    const auto marker = parse_number(input.request.parameter("part-number-marker").value_or("")).value_or(0);
    XmlWriter writer;
    writer.open_root("ListPartsResult");
    writer.element("Bucket", input.request.bucket);
    writer.element("Key", input.request.key);
    writer.element("UploadId", upload->id);
    writer.element("PartNumberMarker", marker);
    writer.element("MaxParts", std::uint64_t{*limit});
    if (upload->checksum_kind) {
        writer.element("ChecksumAlgorithm", algorithm_name(*upload->checksum_kind));
        writer.element("ChecksumType", upload->full_object_checksum ? "FULL_OBJECT" : "COMPOSITE");
    }
    writer.element("StorageClass", "STANDARD");
    std::size_t listed = 0;
    int last = 0;
    auto at = upload->parts.upper_bound(static_cast<int>(std::min<std::uint64_t>(marker, 1'000'000)));
    for (; at != upload->parts.end() && listed < *limit; ++at, ++listed) {
        const auto& [number, part] = *at;
        writer.open("Part");
        writer.element("PartNumber", static_cast<std::uint64_t>(number));
        writer.element("LastModified", iso_date(part.last_modified));
        writer.element("ETag", quoted(part.etag));
        writer.element("Size", part.bytes.size());
        if (part.checksum) {
            writer.element(checksum_element(part.checksum->kind), part.checksum->value);
        }
        writer.close();
        last = number;
    }
    const bool truncated = at != upload->parts.end();
    if (truncated) {
        writer.element("NextPartNumberMarker", static_cast<std::uint64_t>(last));
    }
    writer.element("IsTruncated", truncated);
    return S3Reply::xml(writer.finish());
}

}  // namespace ckptfs::s3sim
