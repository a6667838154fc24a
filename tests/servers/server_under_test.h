// SPDX-License-Identifier: Apache-2.0
// The server that the environment names, seen through the real client.
//
//   CKPTFS_TEST_ENDPOINT  http://127.0.0.1:PORT
//   CKPTFS_TEST_BUCKET    a bucket that exists
//   CKPTFS_TEST_CHECKSUM  as --checksum; this and the next two may be unset
//   CKPTFS_TEST_PATIENCE  as --retry-for, in seconds
//   CKPTFS_TEST_PAGE      how many entries its lists hold at most, where not a thousand
//   CKPTFS_TEST_FAULTS    set where the server is s3sim, whose fault interface is then used
//   and the AWS variables for the credentials
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/executors.h"
#include "base/system_clock.h"
#include "base/timer_thread.h"
#include "ckptfs/config.h"
#include "ckptfs/http.h"
#include "s3/s3_store.h"
#include "support/sync_store.h"

namespace ckptfs {

// A store of its own for each test, and keys that no other test uses.
class ServerTest : public ::testing::Test {
protected:
    ServerTest();
    ~ServerTest() override;

    // The store anew with other settings.
    void reopen(const StoreConfig& config);
    // The store anew with this variable instead of the process's.
    void replace_variable(const std::string& name, const std::string& value);
    [[nodiscard]] static StoreConfig default_config();
    [[nodiscard]] static int more_than_a_page();
    [[nodiscard]] std::string key(std::string_view name) const { return prefix_ + std::string(name); }

    Result<PutResponse> put(const std::string& name, std::string content, Metadata metadata = {});
    // The object's bytes, or the error's message.
    std::string content(const std::string& name);
    Result<std::string> read(GetRequest request, GetResponse* response = nullptr);
    Result<UploadedPart> upload_part(const UploadId& upload, int number, std::string content);
    UploadId create_upload(const std::string& name, Metadata metadata = {});
    // What HeadObject and ListObjectsV2 say; nothing where they fail.
    ObjectInfo described(const std::string& name) { return store_->head(key(name)).value_or(ObjectInfo{}); }
    std::vector<ObjectInfo> listed();
    // Faults of s3sim; see its /_s3sim/faults.
    void inject(const std::string& rules);
    void clear_faults();
    // Changes s3sim's model of a store; see its /_s3sim/model.
    void administer_model(const std::string& model) { administer("POST", "model", model); }

    std::string prefix_;
    SystemClock clock_;
    std::unique_ptr<TimerThread> timer_;
    std::unique_ptr<Executor> executor_;
    std::unique_ptr<HttpTransport> transport_;
    std::unique_ptr<CredentialsProvider> credentials_;
    std::unique_ptr<s3::S3Store> s3_;
    std::unique_ptr<SyncStore> store_;

private:
    void administer(const std::string& method, const std::string& path, const std::string& body);
};

// 0 where the result is one.
template <class T>
[[nodiscard]] int errno_of(const Result<T>& result) {
    return result ? 0 : result.error().errno_value;
}

// Deterministic bytes that do not repeat within a part.
[[nodiscard]] std::string sample_bytes(std::size_t size, unsigned seed = 1);

inline constexpr std::size_t kMinPartSize = std::size_t{5} << 20;

}  // namespace ckptfs
