// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "operations.h"

namespace ckptfs::s3sim {
namespace {

// Amazon S3 User Guide, "General purpose bucket naming rules": 3 to 63 lower-case letters, digits, dots, hyphens.
bool valid_bucket_name(std::string_view name) {
    const auto letter_or_digit = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
    return name.size() >= 3 && name.size() <= 63 && letter_or_digit(name.front()) && letter_or_digit(name.back()) &&
           std::all_of(name.begin(), name.end(), [&](char c) { return letter_or_digit(c) || c == '.' || c == '-'; }) &&
           name.find("..") == std::string_view::npos;
}

S3Reply no_content() {
    S3Reply reply;
    reply.status = 204;
    return reply;
}

}  // namespace

OperationResult list_buckets(const OperationInput& input) {
    XmlWriter writer;
    writer.open_root("ListAllMyBucketsResult");
    writer.open("Owner");
    writer.element("ID", "s3sim");
    writer.close();
    writer.open("Buckets");
    for (const BucketInfo& bucket : input.table.buckets()) {
        writer.open("Bucket");
        writer.element("Name", bucket.name);
        writer.element("CreationDate", iso_date(bucket.created));
        writer.element("BucketRegion", bucket.region);
        writer.close();
    }
    return S3Reply::xml(writer.finish());
}

OperationResult create_bucket(const OperationInput& input) {
    if (!valid_bucket_name(input.request.bucket)) {
        return fail("InvalidBucketName");
    }
    if (auto created = input.table.create_bucket(input.request.bucket, input.region); !created) {
        return tl::unexpected(std::move(created.error()));
    }
    S3Reply reply;
    reply.headers.emplace_back("Location", "/" + input.request.bucket);
    return reply;
}

OperationResult head_bucket(const OperationInput& /*input*/) {
    return S3Reply{};
}

OperationResult delete_bucket(const OperationInput& input) {
    if (auto deleted = input.table.delete_bucket(input.request.bucket); !deleted) {
        return tl::unexpected(std::move(deleted.error()));
    }
    return no_content();
}

OperationResult get_bucket_location(const OperationInput& input) {
    const auto bucket = input.table.bucket(input.request.bucket);
    const std::string region = bucket ? bucket->region : input.region;
    XmlWriter writer;
    writer.open_root("LocationConstraint");
    // us-east-1 is the region without a name.
    return S3Reply::xml(region == "us-east-1" ? writer.finish() : writer.text(region).finish());
}

OperationResult get_bucket_versioning(const OperationInput& /*input*/) {
    XmlWriter writer;
    writer.open_root("VersioningConfiguration");
    return S3Reply::xml(writer.finish());
}

}  // namespace ckptfs::s3sim
