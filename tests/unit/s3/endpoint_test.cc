// SPDX-License-Identifier: Apache-2.0
#include "s3/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ckptfs::s3 {
namespace {

Environment environment(std::map<std::string, std::string> variables = {}) {
    return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
}

StoreConfig config(const std::string& endpoint_url, const std::string& bucket = "my-bucket") {
    StoreConfig store;
    store.bucket = bucket;
    store.endpoint_url = endpoint_url;
    return store;
}

std::string url_of(const StoreConfig& store, const Environment& variables = environment()) {
    const Result<Endpoint> endpoint = resolve_endpoint(store, variables, {});
    return endpoint ? endpoint->url("a b/c", {}) : endpoint.error().message;
}

TEST(Endpoint, AmazonIsAskedByVirtualHost) {
    EXPECT_EQ(url_of(config("")), "https://my-bucket.s3.us-east-1.amazonaws.com/a%20b/c");
    StoreConfig elsewhere = config("");
    elsewhere.region = "eu-central-1";
    EXPECT_EQ(url_of(elsewhere), "https://my-bucket.s3.eu-central-1.amazonaws.com/a%20b/c");
    elsewhere.region = "cn-north-1";
    EXPECT_EQ(url_of(elsewhere), "https://my-bucket.s3.cn-north-1.amazonaws.com.cn/a%20b/c");
}

TEST(Endpoint, AccessPointsAreAskedInTheirRegion) {
    const std::string arn = "arn:aws:s3:eu-west-1:123456789012:accesspoint/train";
    EXPECT_EQ(url_of(config("", arn)), "https://train-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/a%20b/c");
    EXPECT_EQ(url_of(config("", "arn:aws-cn:s3:cn-north-1:123456789012:accesspoint:train")),
              "https://train-123456789012.s3-accesspoint.cn-north-1.amazonaws.com.cn/a%20b/c");
    EXPECT_EQ(url_of(config("https://s3.example.com", arn)), "https://train-123456789012.s3.example.com/a%20b/c");
    StoreConfig elsewhere = config("", arn);
    elsewhere.region = "us-west-2";
    EXPECT_EQ(resolve_endpoint(elsewhere, environment(), {})->region, "eu-west-1");
    for (const char* other :
         {"arn:aws:s3:::bucket", "arn:aws:s3:eu-west-1:123456789012:accesspoint/", "arn:aws:s3:x/y:1:accesspoint/a",
          "arn:aws:sqs:eu-west-1:123456789012:accesspoint/train", "arn:aws:s3:eu-west-1:1:accesspoint/a/b"}) {
        EXPECT_EQ(parse_access_point(other), std::nullopt) << other;
    }
}

TEST(Endpoint, NamesThatAreNoHostNamesGoIntoThePath) {
    EXPECT_EQ(url_of(config("", "my.bucket")), "https://s3.us-east-1.amazonaws.com/my.bucket/a%20b/c");
    EXPECT_EQ(url_of(config("", "My_Bucket")), "https://s3.us-east-1.amazonaws.com/My_Bucket/a%20b/c");
}

TEST(Endpoint, OtherStoresAreAskedByPath) {
    EXPECT_EQ(url_of(config("http://127.0.0.1:9000")), "http://127.0.0.1:9000/my-bucket/a%20b/c");
    EXPECT_EQ(url_of(config("http://localhost:9000/")), "http://localhost:9000/my-bucket/a%20b/c");
    EXPECT_EQ(url_of(config("https://Minio.Example.com")), "https://minio.example.com/my-bucket/a%20b/c");
    EXPECT_EQ(url_of(config("https://example.com/s3/")), "https://example.com/s3/my-bucket/a%20b/c");
    EXPECT_EQ(url_of(config("http://[::1]:9000")), "http://[::1]:9000/my-bucket/a%20b/c");
}

TEST(Endpoint, TheStyleCanBeChosen) {
    StoreConfig store = config("https://example.com:8443");
    store.addressing = AddressingStyle::kVirtualHost;
    EXPECT_EQ(url_of(store), "https://my-bucket.example.com:8443/a%20b/c");
    store = config("");
    store.addressing = AddressingStyle::kPath;
    EXPECT_EQ(url_of(store), "https://s3.us-east-1.amazonaws.com/my-bucket/a%20b/c");
}

TEST(Endpoint, ThePortOfTheSchemeIsNotNamed) {
    EXPECT_EQ(url_of(config("https://example.com:443")), "https://example.com/my-bucket/a%20b/c");
    EXPECT_EQ(url_of(config("http://example.com:80")), "http://example.com/my-bucket/a%20b/c");
}

TEST(Endpoint, AStoreIsTheSameHoweverItsBucketIsNamed) {
    const auto server = [](StoreConfig store) { return resolve_endpoint(store, environment(), {})->server; };
    StoreConfig elsewhere = config("", "my.bucket");
    elsewhere.region = "eu-central-1";
    EXPECT_EQ(server(config("")), "amazonaws.com");
    EXPECT_EQ(server(elsewhere), "amazonaws.com");
    EXPECT_EQ(server(config("", "arn:aws:s3:eu-west-1:123456789012:accesspoint/train")), "amazonaws.com");
    elsewhere.region = "cn-north-1";
    EXPECT_EQ(server(elsewhere), "amazonaws.com.cn");
    EXPECT_EQ(server(config("http://notamazonaws.com")), "notamazonaws.com");
    StoreConfig other = config("https://Example.com:8443/s3/");
    EXPECT_EQ(server(other), "example.com:8443/s3");
    other.addressing = AddressingStyle::kVirtualHost;
    EXPECT_EQ(server(other), "example.com:8443/s3");
    EXPECT_EQ(server(config("http://minio")), server(config("https://minio")));
}

TEST(Endpoint, TheBucketItself) {
    const Query query = {{"list-type", "2"}};
    EXPECT_EQ(resolve_endpoint(config(""), environment(), {})->url("", query),
              "https://my-bucket.s3.us-east-1.amazonaws.com/?list-type=2");
    EXPECT_EQ(resolve_endpoint(config("http://localhost:1"), environment(), {})->url("", query),
              "http://localhost:1/my-bucket?list-type=2");
}

TEST(Endpoint, SourcesInTheirOrder) {
    const Environment both =
        environment({{"AWS_ENDPOINT_URL", "http://general:1"}, {"AWS_ENDPOINT_URL_S3", "http://s3:1"}});
    EXPECT_THAT(url_of(config(""), both), ::testing::StartsWith("http://s3:1/"));
    EXPECT_THAT(url_of(config("http://flag:1"), both), ::testing::StartsWith("http://flag:1/"));
    const Profile profile = {{"region", "eu-west-1"}, {"endpoint_url", "http://profile:1"}};
    Result<Endpoint> endpoint =
        resolve_endpoint(config(""), environment({{"AWS_DEFAULT_REGION", "eu-west-2"}}), profile);
    EXPECT_EQ(endpoint->region, "eu-west-2");
    EXPECT_EQ(endpoint->authority, "profile:1");
    endpoint = resolve_endpoint(config(""), environment(), profile);
    EXPECT_EQ(endpoint->region, "eu-west-1");
    endpoint = resolve_endpoint(
        config(""), environment({{"AWS_REGION", "eu-west-3"}, {"AWS_DEFAULT_REGION", "eu-west-2"}}), profile);
    EXPECT_EQ(endpoint->region, "eu-west-3");
}

TEST(Endpoint, NonsenseIsRefused) {
    for (const char* url : {"example.com", "ftp://example.com", "http://", "http://:9000", "http://host:port",
                            "http://user@host", "http://host?x", "http://host:123456"}) {
        EXPECT_FALSE(resolve_endpoint(config(url), environment(), {}).has_value()) << url;
    }
    EXPECT_FALSE(resolve_endpoint(config("", ""), environment(), {}).has_value());
    StoreConfig store = config("");
    store.region = "evil.example/";
    EXPECT_FALSE(resolve_endpoint(store, environment(), {}).has_value());
}

}  // namespace
}  // namespace ckptfs::s3
