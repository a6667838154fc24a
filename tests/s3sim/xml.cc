// SPDX-License-Identifier: Apache-2.0
#include "xml.h"

#include <algorithm>
#include <array>
#include <pugixml.hpp>

#include "conditions.h"
#include "http_message.h"

namespace ckptfs::s3sim {
namespace {

constexpr std::string_view kNamespace = "http://s3.amazonaws.com/doc/2006-03-01/";
constexpr std::size_t kMostKeysPerDelete = 1000;

constexpr std::array kChecksums{DigestKind::kCrc32, DigestKind::kCrc32c, DigestKind::kCrc64Nvme, DigestKind::kSha1,
                                DigestKind::kSha256};

void append_escaped(std::string& out, std::string_view text) {
    for (const char c : text) {
        if (c == '&') {
            out += "&amp;";
        } else if (c == '<') {
            out += "&lt;";
        } else if (c == '>') {
            out += "&gt;";
        } else if (c == '"') {
            out += "&quot;";
        } else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
            // S3 writes control characters so, though XML 1.0 forbids most; encoding-type=url is the remedy.
            out += "&#" + std::to_string(static_cast<int>(c)) + ";";
        } else {
            out.push_back(c);
        }
    }
}

}  // namespace

XmlWriter::XmlWriter() : text_("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n") {}

void XmlWriter::open(std::string_view name) {
    text_.append("<").append(name).append(">");
    open_.emplace_back(name);
}

void XmlWriter::open_root(std::string_view name) {
    text_.append("<").append(name).append(" xmlns=\"").append(kNamespace).append("\">");
    open_.emplace_back(name);
}

void XmlWriter::close() {
    text_.append("</").append(open_.back()).append(">");
    open_.pop_back();
}

void XmlWriter::element(std::string_view name, std::string_view content) {
    open(name);
    text(content);
    close();
}

XmlWriter& XmlWriter::text(std::string_view content) {
    append_escaped(text_, content);
    return *this;
}

void XmlWriter::element(std::string_view name, std::uint64_t number) {
    element(name, std::to_string(number));
}

void XmlWriter::element(std::string_view name, bool value) {
    element(name, value ? std::string_view("true") : std::string_view("false"));
}

std::string XmlWriter::finish() {
    while (!open_.empty()) {
        close();
    }
    return std::move(text_);
}

Outcome<std::vector<CompletedPart>> read_complete_multipart_upload(std::string_view body) {
    pugi::xml_document document;
    if (!document.load_buffer(body.data(), body.size())) {
        return fail("MalformedXML");
    }
    std::vector<CompletedPart> parts;
    for (const pugi::xml_node& node : document.child("CompleteMultipartUpload").children("Part")) {
        const auto number = parse_number(trim(node.child_value("PartNumber")));
        if (!number || *number > 1'000'000 || !node.child("ETag")) {
            return fail("MalformedXML");
        }
        CompletedPart part{static_cast<int>(*number), unquote_etag(trim(node.child_value("ETag"))), {}};
        for (const DigestKind kind : kChecksums) {
            if (const auto value = node.child(checksum_element(kind))) {
                part.checksums.emplace_back(kind, trim(value.child_value()));
            }
        }
        parts.push_back(std::move(part));
    }
    if (parts.empty()) {
        return fail("MalformedXML", "You must specify at least one part.");
    }
    return parts;
}

Outcome<DeleteRequest> read_delete(std::string_view body) {
    pugi::xml_document document;
    // Keys may begin or end with blanks, or be nothing else.
    if (!document.load_buffer(body.data(), body.size(), pugi::parse_default | pugi::parse_ws_pcdata)) {
        return fail("MalformedXML");
    }
    const pugi::xml_node root = document.child("Delete");
    DeleteRequest request;
    request.quiet = trim(root.child_value("Quiet")) == "true";
    for (const pugi::xml_node& node : root.children("Object")) {
        if (!node.child("Key") || request.entries.size() == kMostKeysPerDelete) {
            return fail("MalformedXML");
        }
        DeleteRequest::Entry entry{node.child_value("Key"), std::nullopt};
        if (const auto etag = node.child("ETag")) {
            entry.etag = unquote_etag(trim(etag.child_value()));
        }
        request.entries.push_back(std::move(entry));
    }
    if (request.entries.empty()) {
        return fail("MalformedXML");
    }
    return request;
}

const char* checksum_element(DigestKind kind) {
    switch (kind) {
        case DigestKind::kCrc32:
            return "ChecksumCRC32";
        case DigestKind::kCrc32c:
            return "ChecksumCRC32C";
        case DigestKind::kCrc64Nvme:
            return "ChecksumCRC64NVME";
        case DigestKind::kSha1:
            return "ChecksumSHA1";
        default:
            return "ChecksumSHA256";
    }
}

}  // namespace ckptfs::s3sim
