// SPDX-License-Identifier: Apache-2.0
#include "servers/server_under_test.h"

#include <cstdlib>
#include <future>
#include <random>
#include <stdexcept>
#include <utility>

#include "base/digest.h"
#include "base/uuid.h"
#include "credentials/provider.h"
#include "http/curl_transport.h"

namespace ckptfs {
namespace {

std::string required_variable(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr) {
        throw std::runtime_error(std::string(name) + " is not set; run tests/servers/test_conformance.py");
    }
    return value;
}

int number_in(const char* name, int otherwise) {
    const char* value = std::getenv(name);
    return value == nullptr ? otherwise : std::atoi(value);
}

template <class T>
T required(Result<T> result) {
    if (!result) {
        throw std::runtime_error(result.error().message);
    }
    return std::move(*result);
}

std::function<double()> random_source() {
    return [engine = std::mt19937(std::random_device{}())]() mutable {
        return std::uniform_real_distribution<>(0, 1)(engine);
    };
}

}  // namespace

std::string sample_bytes(std::size_t size, unsigned seed) {
    std::mt19937 engine(seed);
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; i += 4) {
        const std::uint32_t word = static_cast<std::uint32_t>(engine());
        for (std::size_t j = i; j < std::min(size, i + 4); ++j) {
            bytes[j] = static_cast<char>(word >> (8 * (j - i)));
        }
    }
    return bytes;
}

ServerTest::ServerTest()
    : prefix_("conformance-" + random_uuid() + "/"),
      timer_(std::make_unique<TimerThread>(clock_)),
      executor_(make_executor()),
      transport_(required(make_curl_transport({}))),
      credentials_(required(
          make_credentials_provider(default_config(), process_environment(), {*transport_, clock_, random_source()}))) {
    reopen(default_config());
}

ServerTest::~ServerTest() {
    if (std::getenv("CKPTFS_TEST_FAULTS") != nullptr) {
        clear_faults();
    }
}

StoreConfig ServerTest::default_config() {
    StoreConfig config;
    config.bucket = required_variable("CKPTFS_TEST_BUCKET");
    config.endpoint_url = required_variable("CKPTFS_TEST_ENDPOINT");
    if (const char* checksum = std::getenv("CKPTFS_TEST_CHECKSUM"); checksum != nullptr) {
        config.checksum = checksum;
    }
    config.retry_for = std::chrono::seconds(number_in("CKPTFS_TEST_PATIENCE", 5));
    config.stall_timeout = config.retry_for - std::chrono::seconds(1);
    return config;
}

int ServerTest::more_than_a_page() {
    return number_in("CKPTFS_TEST_PAGE", 1000) + 10;
}

void ServerTest::reopen(const StoreConfig& config) {
    store_.reset();
    s3_ = required(s3::make_s3_store(config, process_environment(),
                                     {*transport_, *timer_, clock_, *executor_, *credentials_, random_source()}));
    store_ = std::make_unique<SyncStore>(*s3_);
}

void ServerTest::replace_variable(const std::string& name, const std::string& value) {
    const Environment changed = [name, value, actual = process_environment()](const char* asked) {
        return asked == name ? std::optional<std::string>(value) : actual(asked);
    };
    store_.reset();
    s3_.reset();
    credentials_ =
        required(make_credentials_provider(default_config(), changed, {*transport_, clock_, random_source()}));
    reopen(default_config());
}

Result<PutResponse> ServerTest::put(const std::string& name, std::string content, Metadata metadata) {
    PutRequest request;
    request.key = key(name);
    request.body = Payload::from_string(std::move(content));
    request.metadata = std::move(metadata);
    return store_->put(std::move(request));
}

std::string ServerTest::content(const std::string& name) {
    GetRequest request;
    request.key = key(name);
    const Result<std::string> bytes = read(std::move(request));
    return bytes ? *bytes : bytes.error().message;
}

Result<std::string> ServerTest::read(GetRequest request, GetResponse* response) {
    auto bytes = std::make_shared<std::string>();
    request.on_body = [bytes](ByteSpan piece) {
        bytes->append(as_text(piece));
        return true;
    };
    Result<GetResponse> got = store_->get(std::move(request));
    if (!got) {
        return failure(std::move(got.error()));
    }
    EXPECT_EQ(got->length, bytes->size());
    if (response != nullptr) {
        *response = std::move(*got);
    }
    return std::move(*bytes);
}

std::vector<ObjectInfo> ServerTest::listed() {
    ListRequest request;
    request.prefix = prefix_;
    return store_->list(std::move(request)).value_or(ListResponse{}).objects;
}

UploadId ServerTest::create_upload(const std::string& name, Metadata metadata) {
    CreateUploadRequest request;
    request.key = key(name);
    request.metadata = std::move(metadata);
    Result<UploadId> upload = store_->create_upload(std::move(request));
    EXPECT_TRUE(upload.has_value()) << upload.error().message;
    return upload.value_or(UploadId{});
}

Result<UploadedPart> ServerTest::upload_part(const UploadId& upload, int number, std::string content) {
    UploadPartRequest request;
    request.upload = upload;
    request.part_number = number;
    request.body = Payload::from_string(std::move(content));
    request.crc32c = crc32c(request.body);
    return store_->upload_part(std::move(request));
}

void ServerTest::inject(const std::string& rules) {
    administer("POST", "faults", rules);
}

void ServerTest::clear_faults() {
    administer("DELETE", "faults", "");
}

void ServerTest::administer(const std::string& method, const std::string& path, const std::string& body) {
    HttpRequest request;
    request.method = method;
    request.url = required_variable("CKPTFS_TEST_ENDPOINT") + "/_s3sim/" + path;
    request.body = Payload::from_string(body);
    std::promise<Result<HttpResponse>> promise;
    auto answer = promise.get_future();
    transport_->send(std::move(request), [&promise](Result<HttpResponse> result) { promise.set_value(result); });
    const Result<HttpResponse> result = answer.get();
    ASSERT_TRUE(result.has_value()) << result.error().message;
    ASSERT_EQ(result->status, 200) << result->body;
}

}  // namespace ckptfs
