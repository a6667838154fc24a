// SPDX-License-Identifier: Apache-2.0
#pragma once

// The XML of S3's bodies: a writer that escapes as S3 does, and readers for the few documents that clients send.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "digest.h"
#include "outcome.h"

namespace ckptfs::s3sim {

class XmlWriter {
public:
    XmlWriter();

    void open(std::string_view name);
    // With S3's namespace, as the root of every success has it.
    void open_root(std::string_view name);
    void close();
    void element(std::string_view name, std::string_view content);
    // Without this a literal would be taken for a bool.
    void element(std::string_view name, const char* content) { element(name, std::string_view(content)); }
    void element(std::string_view name, const std::string& content) { element(name, std::string_view(content)); }
    void element(std::string_view name, std::uint64_t number);
    void element(std::string_view name, bool value);
    XmlWriter& text(std::string_view content);

    // Closes what is open.
    std::string finish();

private:
    std::string text_;
    std::vector<std::string> open_;
};

struct CompletedPart {
    int number = 0;
    std::string etag;                                           // without quotes
    std::vector<std::pair<DigestKind, std::string>> checksums;  // base64
};

struct DeleteRequest {
    struct Entry {
        std::string key;
        std::optional<std::string> etag;  // without quotes
    };
    std::vector<Entry> entries;
    bool quiet = false;
};

Outcome<std::vector<CompletedPart>> read_complete_multipart_upload(std::string_view body);
Outcome<DeleteRequest> read_delete(std::string_view body);

// The name of S3's XML element for a checksum, such as "ChecksumCRC32C".
const char* checksum_element(DigestKind kind);

}  // namespace ckptfs::s3sim
