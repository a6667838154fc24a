// SPDX-License-Identifier: Apache-2.0
#include "s3sim/s3_request.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

S3Request routed(const std::string& method, const std::string& target, const std::string& host = "127.0.0.1:9000",
                 std::vector<NameValue> headers = {}) {
    HttpRequest http;
    http.method = method;
    http.path = target.substr(0, target.find('?'));
    http.query = target.find('?') == std::string::npos ? "" : target.substr(target.find('?') + 1);
    http.headers = std::move(headers);
    http.headers.emplace_back("host", host);
    const auto exists = [](std::string_view bucket) { return bucket == "bkt" || bucket == "my.dotted.bucket"; };
    return route(std::move(http), exists).value_or(S3Request{});
}

TEST(Route, PathStyle) {
    const S3Request request = routed("GET", "/bkt/a%20b/c");
    EXPECT_EQ(request.bucket, "bkt");
    EXPECT_EQ(request.key, "a b/c");
    EXPECT_EQ(request.operation, Operation::kGetObject);
    EXPECT_EQ(routed("GET", "/bkt/k", "localhost:1").bucket, "bkt");
    EXPECT_EQ(routed("GET", "/bkt/k", "s3.example.com").bucket, "bkt");
    EXPECT_EQ(routed("GET", "/bkt/k", "store.local").bucket, "bkt");
}

TEST(Route, VirtualHostStyle) {
    const S3Request request = routed("GET", "/a/b", "bkt.localhost:9000");
    EXPECT_EQ(request.bucket, "bkt");
    EXPECT_EQ(request.key, "a/b");
    EXPECT_EQ(routed("GET", "/k", "my.dotted.bucket.s3.example.com").bucket, "my.dotted.bucket");
    EXPECT_EQ(routed("PUT", "/", "fresh.localhost").bucket, "fresh");
    EXPECT_EQ(routed("PUT", "/", "fresh.localhost").operation, Operation::kCreateBucket);
}

TEST(Route, TellsOperationsApart) {
    const std::vector<NameValue> copy = {{"x-amz-copy-source", "/bkt/x"}};
    EXPECT_EQ(routed("GET", "/").operation, Operation::kListBuckets);
    EXPECT_EQ(routed("GET", "/bkt").operation, Operation::kListObjects);
    EXPECT_EQ(routed("GET", "/bkt?list-type=2").operation, Operation::kListObjectsV2);
    EXPECT_EQ(routed("GET", "/bkt/?uploads").operation, Operation::kListMultipartUploads);
    EXPECT_EQ(routed("GET", "/bkt?location").operation, Operation::kGetBucketLocation);
    EXPECT_EQ(routed("GET", "/bkt?acl").operation, Operation::kNotImplemented);
    EXPECT_EQ(routed("HEAD", "/bkt").operation, Operation::kHeadBucket);
    EXPECT_EQ(routed("POST", "/bkt?delete").operation, Operation::kDeleteObjects);
    EXPECT_EQ(routed("PUT", "/bkt/k").operation, Operation::kPutObject);
    EXPECT_EQ(routed("PUT", "/bkt/k", "h:1", copy).operation, Operation::kCopyObject);
    EXPECT_EQ(routed("PUT", "/bkt/k?partNumber=1&uploadId=u").operation, Operation::kUploadPart);
    EXPECT_EQ(routed("PUT", "/bkt/k?partNumber=1&uploadId=u", "h:1", copy).operation, Operation::kUploadPartCopy);
    EXPECT_EQ(routed("GET", "/bkt/k?uploadId=u").operation, Operation::kListParts);
    EXPECT_EQ(routed("POST", "/bkt/k?uploads").operation, Operation::kCreateMultipartUpload);
    EXPECT_EQ(routed("POST", "/bkt/k?uploadId=u").operation, Operation::kCompleteMultipartUpload);
    EXPECT_EQ(routed("DELETE", "/bkt/k?uploadId=u").operation, Operation::kAbortMultipartUpload);
    EXPECT_EQ(routed("DELETE", "/bkt/k").operation, Operation::kDeleteObject);
    EXPECT_EQ(routed("HEAD", "/bkt/k").operation, Operation::kHeadObject);
    EXPECT_EQ(routed("BREW", "/bkt/k").operation, Operation::kNotImplemented);
}

TEST(Route, PartNumbers) {
    EXPECT_EQ(routed("PUT", "/bkt/k?partNumber=17&uploadId=u").part_number(), 17);
    EXPECT_EQ(routed("PUT", "/bkt/k?partNumber=-1&uploadId=u").part_number(), 0);
    EXPECT_EQ(routed("PUT", "/bkt/k?partNumber=99999999999&uploadId=u").part_number(), 0);
}

TEST(CopySource, NamesBucketAndKey) {
    HttpRequest request;
    request.headers = {{"x-amz-copy-source", "/bkt/a%2Bb/c"}};
    const auto source = read_copy_source(request);
    ASSERT_TRUE(source);
    EXPECT_EQ(source->bucket, "bkt");
    EXPECT_EQ(source->key, "a+b/c");
    for (const char* wrong : {"", "bkt", "bkt/", "/bkt/", "%", "//k"}) {
        request.headers = {{"x-amz-copy-source", wrong}};
        EXPECT_FALSE(read_copy_source(request)) << wrong;
    }
}

}  // namespace
}  // namespace ckptfs::s3sim
