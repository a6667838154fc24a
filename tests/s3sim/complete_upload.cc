// SPDX-License-Identifier: Apache-2.0
#include "complete_upload.h"

#include <algorithm>
#include <set>

namespace ckptfs::s3sim {
namespace {

Outcome<void> check_order(const std::vector<CompletedPart>& parts) {
    if (parts.size() > static_cast<std::size_t>(kMostParts)) {
        return fail("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive");
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].number < 1 || parts[i].number > kMostParts) {
            return fail("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive");
        }
        if (i > 0 && parts[i].number <= parts[i - 1].number) {
            return fail("InvalidPartOrder");
        }
    }
    return {};
}

tl::unexpected<S3Error> invalid_part(const Upload& upload, const CompletedPart& named) {
    S3Error error = s3_error("InvalidPart");
    error.details.emplace_back("UploadId", upload.id);
    error.details.emplace_back("PartNumber", std::to_string(named.number));
    error.details.emplace_back("ETag", named.etag);
    return tl::unexpected(std::move(error));
}

Outcome<void> check_part_checksum(const Upload& upload, const StoredPart& part, const CompletedPart& named) {
    for (const auto& [kind, value] : named.checksums) {
        if (!part.checksum || part.checksum->kind != kind || part.checksum->value != value) {
            return invalid_part(upload, named);
        }
    }
    if (upload.checksum_kind && !upload.full_object_checksum && named.checksums.empty()) {
        return fail("InvalidRequest", "The upload was created using a " +
                                          lower_case(algorithm_name(*upload.checksum_kind)) +
                                          " checksum. The complete request must include the checksum for each part. "
                                          "It was missing for part " +
                                          std::to_string(named.number) + " in the request.");
    }
    return {};
}

Outcome<void> check_part(const Upload& upload, const CompletedPart& named, bool last) {
    const auto found = upload.parts.find(named.number);
    if (found == upload.parts.end() || found->second.etag != named.etag) {
        return invalid_part(upload, named);
    }
    if (const auto checked = check_part_checksum(upload, found->second, named); !checked) {
        return checked;
    }
    if (!last && found->second.bytes.size() < kSmallestPart) {
        S3Error error = s3_error("EntityTooSmall");
        error.details.emplace_back("ProposedSize", std::to_string(found->second.bytes.size()));
        error.details.emplace_back("MinSizeAllowed", std::to_string(kSmallestPart));
        error.details.emplace_back("PartNumber", std::to_string(named.number));
        error.details.emplace_back("ETag", named.etag);
        return tl::unexpected(std::move(error));
    }
    return {};
}

// But for the last.
bool has_equal_parts(const Upload& upload, const std::vector<CompletedPart>& parts) {
    std::set<std::size_t> sizes;
    for (const CompletedPart& named : parts) {
        const auto found = upload.parts.find(named.number);
        if (found != upload.parts.end() && &named != &parts.back()) {
            sizes.insert(found->second.bytes.size());
        }
    }
    return sizes.size() <= 1;
}

std::optional<Checksum> object_checksum(const Upload& upload, const std::vector<CompletedPart>& parts) {
    if (!upload.checksum_kind) {
        return std::nullopt;
    }
    const DigestKind kind = *upload.checksum_kind;
    std::vector<std::string> values;
    std::string joined;
    for (const CompletedPart& named : parts) {
        const StoredPart& part = upload.parts.at(named.number);
        if (!part.checksum) {
            return std::nullopt;
        }
        values.push_back(part.checksum->value);
        const std::string raw = from_base64(part.checksum->value).value_or("");
        if (upload.full_object_checksum) {
            joined = joined.empty() ? raw : join_crcs(kind, joined, raw, part.bytes.size());
        }
    }
    if (upload.full_object_checksum) {
        return Checksum{kind, to_base64(joined), false};
    }
    return Checksum{kind, composite_checksum(kind, values), true};
}

Outcome<void> check_claims(const CompleteRequest& request, const Object& object) {
    if (request.size && *request.size != object.bytes.size()) {
        return fail("InvalidRequest", "The provided 'x-amz-mp-object-size' header does not match what was computed.");
    }
    if (!request.checksum) {
        return {};
    }
    // The "-N" of a composite checksum is optional in the request.
    const bool matches = object.checksum && object.checksum->kind == request.checksum->kind &&
                         (object.checksum->value == request.checksum->value ||
                          object.checksum->value.starts_with(request.checksum->value + "-"));
    return matches ? Outcome<void>() : fail("BadDigest");
}

}  // namespace

Outcome<Object> assemble_object(const Upload& upload, const CompleteRequest& request) {
    if (const auto ordered = check_order(request.parts); !ordered) {
        return tl::unexpected(ordered.error());
    }
    if (request.rules.equal_only && !has_equal_parts(upload, request.parts)) {
        return fail("InvalidPart", "All non-trailing parts must have the same length.");
    }
    if (request.rules.named_only && upload.parts.size() > request.parts.size()) {
        return fail("InvalidPart");
    }
    Object object;
    object.attributes = upload.attributes;
    for (const CompletedPart& named : request.parts) {
        if (const auto checked = check_part(upload, named, &named == &request.parts.back()); !checked) {
            return tl::unexpected(checked.error());
        }
        const StoredPart& part = upload.parts.at(named.number);
        object.bytes.append(part.bytes);
        object.parts.push_back(ObjectPart{named.number, part.bytes.size(),
                                          part.checksum ? std::optional(part.checksum->value) : std::nullopt});
    }
    if (object.bytes.size() > kLargestObject) {
        return fail("EntityTooLarge");
    }
    object.checksum = object_checksum(upload, request.parts);
    if (const auto checked = check_claims(request, object); !checked) {
        return tl::unexpected(checked.error());
    }
    return object;
}

std::string multipart_md5_etag(const Upload& upload, const std::vector<CompletedPart>& parts) {
    std::string joined;
    for (const CompletedPart& named : parts) {
        const std::string& hex = upload.parts.at(named.number).etag;
        for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
            joined.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
        }
    }
    return to_hex(digest_of(DigestKind::kMd5, joined));
}

}  // namespace ckptfs::s3sim
