// SPDX-License-Identifier: Apache-2.0
#include "s3/xml.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <pugixml.hpp>
#include <sstream>
#include <utility>

#include "aws/times.h"
#include "aws/url.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/utf8.h"
#include "s3/responses.h"

namespace ckptfs::s3 {
namespace {

Failure malformed(std::string_view what) {
    Error error;
    error.errno_value = EPROTO;
    error.retryable = true;
    error.outcome_unknown = true;
    error.message = format("the store's answer is not a {}", what);
    return Failure(std::move(error));
}

// Limits the memory of a reply: some 16 MiB as it comes, and 128 bytes for each of these marks, which is 32 MiB. A page
// of 10,000 uploads, the longest there is, has 20 tags for each.
constexpr std::size_t kMostMarks = std::size_t{256} << 10;

// Counts the beginnings of tags and of attribute values, each of which may become two nodes at most: an element and its
// text.
std::size_t marks_in(std::string_view body) {
    std::size_t marks = 0;
    for (std::size_t at = body.find_first_of("<="); at < body.size(); at = body.find_first_of("<=", at + 1)) {
        const std::size_t next = body[at] == '<' ? at : body.find_first_not_of(" \t\r\n", at + 1);
        marks += next < body.size() && (body[next] == '<' || body[next] == '"' || body[next] == '\'') ? 1 : 0;
    }
    return marks;
}

// S3 has no prefixes in XML names: elements are compared as they are written.
class Document {
public:
    // The whole text of an element matters: keys may begin or end with blanks, or be nothing else.
    explicit Document(std::string_view body) {
        if (marks_in(body) <= kMostMarks) {
            parsed_ =
                document_.load_buffer(body.data(), body.size(), pugi::parse_default | pugi::parse_ws_pcdata_single);
        }
    }

    [[nodiscard]] bool well_formed() const { return static_cast<bool>(parsed_); }
    // Empty if the root has none of these names.
    [[nodiscard]] pugi::xml_node root(std::initializer_list<const char*> names) const {
        pugi::xml_node found;
        for (const char* name : names) {
            if (well_formed() && !found) {
                found = document_.child(name);
            }
        }
        return found;
    }

private:
    pugi::xml_document document_;
    pugi::xml_parse_result parsed_;
};

std::string text_of(const pugi::xml_node& parent, const char* name) {
    return parent.child(name).text().get();
}

bool flag_of(const pugi::xml_node& parent, const char* name) {
    return text_of(parent, name) == "true";
}

template <class Number>
std::optional<Number> number_of(const pugi::xml_node& parent, const char* name) {
    return whole_number<Number>(text_of(parent, name));
}

// Object sizes and part sizes are at most 5 TiB; a claim beyond what a file offset can hold is refused.
std::optional<std::uint64_t> size_of(const pugi::xml_node& parent) {
    const auto size = number_of<std::uint64_t>(parent, "Size");
    if (!size || *size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return std::nullopt;
    }
    return size;
}

// Keys are percent-encoded if the reply says so: not every store does what encoding-type=url asks.
class KeyDecoder {
public:
    explicit KeyDecoder(const pugi::xml_node& root) : encoded_(text_of(root, "EncodingType") == "url") {}

    // If the reply does not say, a key with a percent sign may be encoded or not.
    [[nodiscard]] bool is_sure(std::string_view key) const {
        return encoded_ || key.find('%') == std::string_view::npos;
    }

    std::optional<std::string> operator()(const pugi::xml_node& parent, const char* name) const {
        std::string text = text_of(parent, name);
        return encoded_ ? uri_decode(text) : std::optional(std::move(text));
    }

private:
    bool encoded_;
};

Result<WrittenObject> written_object(const pugi::xml_node& root, std::string_view what) {
    WrittenObject written{quoted_etag(text_of(root, "ETag")), parse_iso8601(text_of(root, "LastModified")),
                          text_of(root, "ChecksumCRC32C")};
    if (written.etag.empty()) {
        return malformed(what);
    }
    return written;
}

std::string to_text(const pugi::xml_document& document) {
    std::ostringstream text;
    document.save(text, "", pugi::format_raw | pugi::format_no_declaration);
    return text.str();
}

void add_text(pugi::xml_node parent, const char* name, const std::string& text) {
    parent.append_child(name).text().set(text.c_str());
}

constexpr const char* kNamespace = "http://s3.amazonaws.com/doc/2006-03-01/";

}  // namespace

std::optional<S3ErrorBody> parse_error_body(std::string_view body) {
    const Document document(body);
    // Other AWS services put it into an envelope.
    const pugi::xml_node envelope = document.root({"ErrorResponse"});
    const pugi::xml_node root = envelope ? envelope.child("Error") : document.root({"Error"});
    if (!root) {
        return std::nullopt;
    }
    return S3ErrorBody{text_of(root, "Code"), text_of(root, "Message"), text_of(root, "RequestId"),
                       text_of(root, "Region")};
}

Result<Credentials> parse_assumed_role(std::string_view body) {
    const Document document(body);
    const pugi::xml_node response = document.root({"AssumeRoleResponse", "AssumeRoleWithWebIdentityResponse"});
    // The name of the result depends on that of the response.
    const pugi::xml_node keys = response.first_child().child("Credentials");
    Credentials credentials{text_of(keys, "AccessKeyId"), Secret(text_of(keys, "SecretAccessKey")),
                            Secret(text_of(keys, "SessionToken")), parse_iso8601(text_of(keys, "Expiration"))};
    if (credentials.access_key_id.empty() || credentials.secret_access_key.empty() || !credentials.expires) {
        return malformed("session of a role");
    }
    return credentials;
}

Result<ListResponse> parse_list_result(std::string_view body) {
    const Document document(body);
    const pugi::xml_node root = document.root({"ListBucketResult"});
    if (!root) {
        return malformed("list of objects");
    }
    const KeyDecoder decoded(root);
    ListResponse list;
    for (const pugi::xml_node& item : root.children("Contents")) {
        auto key = decoded(item, "Key");
        const auto size = size_of(item);
        if (!key || key->empty() || !size) {
            return malformed("list of objects");
        }
        ObjectInfo object;
        object.key = std::move(*key);
        object.size = *size;
        object.etag = quoted_etag(text_of(item, "ETag"));
        object.last_modified = parse_iso8601(text_of(item, "LastModified")).value_or(WallTime{});
        object.storage_class = text_of(item, "StorageClass");
        list.objects.push_back(std::move(object));
    }
    for (const pugi::xml_node& item : root.children("CommonPrefixes")) {
        auto prefix = decoded(item, "Prefix");
        if (!prefix || prefix->empty()) {
            return malformed("list of objects");
        }
        list.common_prefixes.push_back(std::move(*prefix));
    }
    if (flag_of(root, "IsTruncated")) {
        list.next_continuation_token = text_of(root, "NextContinuationToken");
        if (list.next_continuation_token.empty()) {
            return malformed("truncated list of objects without a continuation token");
        }
    }
    return list;
}

Result<CreatedUpload> parse_created_upload(std::string_view body) {
    const Document document(body);
    // rclone's server leaves "Result" out; moto says "Response" for the list of parts.
    CreatedUpload created{
        text_of(document.root({"InitiateMultipartUploadResult", "InitiateMultipartUpload"}), "UploadId")};
    if (created.upload_id.empty()) {
        return malformed("new upload");
    }
    return created;
}

Result<WrittenObject> parse_complete_result(std::string_view body) {
    const Document document(body);
    return written_object(document.root({"CompleteMultipartUploadResult"}), "completed upload");
}

Result<WrittenObject> parse_copy_result(std::string_view body) {
    const Document document(body);
    return written_object(document.root({"CopyObjectResult", "CopyPartResult"}), "copy result");
}

Result<UploadPage> parse_upload_page(std::string_view body) {
    const Document document(body);
    const pugi::xml_node root = document.root({"ListMultipartUploadsResult"});
    if (!root) {
        return malformed("list of uploads");
    }
    const KeyDecoder decoded(root);
    UploadPage page;
    for (const pugi::xml_node& item : root.children("Upload")) {
        auto key = decoded(item, "Key");
        OpenUpload upload;
        upload.upload.id = text_of(item, "UploadId");
        if (!key || key->empty() || upload.upload.id.empty()) {
            return malformed("list of uploads");
        }
        page.are_keys_known = page.are_keys_known && decoded.is_sure(*key);
        upload.upload.key = std::move(*key);
        upload.initiated = parse_iso8601(text_of(item, "Initiated")).value_or(WallTime{});
        page.uploads.push_back(std::move(upload));
    }
    page.truncated = flag_of(root, "IsTruncated");
    auto next_key = decoded(root, "NextKeyMarker");
    if (!next_key || (page.truncated && next_key->empty())) {
        return malformed("truncated list of uploads without a key marker");
    }
    page.next_key_marker = std::move(*next_key);
    page.next_upload_id_marker = text_of(root, "NextUploadIdMarker");
    return page;
}

Result<PartPage> parse_part_page(std::string_view body) {
    const Document document(body);
    const pugi::xml_node root = document.root({"ListPartsResult", "ListPartsResponse"});
    if (!root) {
        return malformed("list of parts");
    }
    PartPage page;
    for (const pugi::xml_node& item : root.children("Part")) {
        const auto number = number_of<int>(item, "PartNumber");
        const auto size = size_of(item);
        if (!number || *number < 1 || !size) {
            return malformed("list of parts");
        }
        page.parts.push_back({*number, quoted_etag(text_of(item, "ETag")), text_of(item, "ChecksumCRC32C"), *size});
    }
    page.truncated = flag_of(root, "IsTruncated");
    page.next_part_number_marker = number_of<int>(root, "NextPartNumberMarker").value_or(0);
    if (page.truncated && page.next_part_number_marker < 1) {
        return malformed("truncated list of parts without a part number marker");
    }
    return page;
}

Result<std::vector<KeyFailure>> parse_delete_result(std::string_view body) {
    const Document document(body);
    const pugi::xml_node root = document.root({"DeleteResult"});
    if (!root) {
        return malformed("result of a deletion");
    }
    std::vector<KeyFailure> failures;
    for (const pugi::xml_node& item : root.children("Error")) {
        failures.push_back({text_of(item, "Key"), {text_of(item, "Code"), text_of(item, "Message"), "", ""}});
    }
    return failures;
}

std::string complete_upload_body(const std::vector<UploadedPart>& parts) {
    pugi::xml_document document;
    pugi::xml_node root = document.append_child("CompleteMultipartUpload");
    root.append_attribute("xmlns").set_value(kNamespace);
    for (const UploadedPart& part : parts) {
        pugi::xml_node item = root.append_child("Part");
        add_text(item, "PartNumber", std::to_string(part.part_number));
        add_text(item, "ETag", part.etag);
        if (!part.checksum_crc32c.empty()) {
            add_text(item, "ChecksumCRC32C", part.checksum_crc32c);
        }
    }
    return to_text(document);
}

bool is_plain_in_xml(std::string_view text) {
    if (text.empty() || text.front() == ' ' || text.back() == ' ') {
        return false;
    }
    while (!text.empty()) {
        const auto point = first_code_point(text);
        // U+0085, a control, and U+2028 are newlines of XML 1.1; U+FFFE and U+FFFF are no characters.
        if (!point || is_control(point->value) || point->value == 0x2028 || point->value == 0xFFFE ||
            point->value == 0xFFFF) {
            return false;
        }
        text.remove_prefix(point->size);
    }
    return true;
}

std::string delete_objects_body(const std::vector<RemoveRequest>& requests) {
    pugi::xml_document document;
    pugi::xml_node root = document.append_child("Delete");
    root.append_attribute("xmlns").set_value(kNamespace);
    add_text(root, "Quiet", "true");
    for (const RemoveRequest& request : requests) {
        pugi::xml_node object = root.append_child("Object");
        add_text(object, "Key", request.key);
        if (!request.if_match.empty()) {
            add_text(object, "ETag", request.if_match);
        }
    }
    return to_text(document);
}

}  // namespace ckptfs::s3
