// SPDX-License-Identifier: Apache-2.0
// A bucket, what is recorded of it through one client, and what is shown of that without the bucket.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "disk/object_recorder.h"
#include "disk/recorded_store.h"
#include "disk/recording_store.h"
#include "support/eventually.h"
#include "support/fake_store.h"
#include "support/hand_timer.h"
#include "support/manual_clock.h"
#include "support/sync_store.h"
#include "support/temporary_directory.h"

namespace ckptfs {

using namespace testing;

inline constexpr const char* kBucket = "endpoint/bucket";
inline constexpr std::uint64_t kPartSize = 8;

class RecordedObjects : public ::testing::Test {
protected:
    RecordedObjects() { begin(); }

    void begin(std::uint64_t limit = 1 << 30, const char* bucket = kBucket) {
        end();
        recorder = std::make_unique<ObjectRecorder>(ObjectRecorder::Config{directory(), bucket, limit}, clock, timer);
        recording = std::make_unique<RecordingStore>(bucket_, *recorder, ".ckptfs/");
        online.emplace(*recording);
    }
    // What waits is written.
    void end() {
        online.reset();
        recording.reset();
        if (recorder != nullptr) {
            EXPECT_TRUE(recorder->stop(std::chrono::seconds(30)));
        }
        recorder.reset();
    }
    // Asks what is recorded, once the recorder has ended.
    void offline(const std::function<void(SyncStore&)>& ask) {
        end();
        auto store = RecordedStore::open(directory(), kBucket, timer);
        ASSERT_TRUE(store) << store.error().message;
        SyncStore recorded(**store);
        ask(recorded);
        EXPECT_TRUE((*store)->stop());
        begin();
    }

    void flip_bits(std::mt19937& dice, int count) const {
        std::fstream file(ObjectRecord::path_in(directory()), std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(0, std::ios::end);
        const auto size = static_cast<std::uint64_t>(file.tellg());
        for (int flips = 0; flips < count; ++flips) {
            const auto at = static_cast<std::streamoff>(dice() % size);
            file.seekg(at);
            const int byte = file.get();
            file.seekp(at);
            file.put(static_cast<char>(byte ^ (1 << dice() % 8)));
        }
    }
    [[nodiscard]] bool find_damage() const {
        const auto record = ObjectRecord::open_to_read(directory(), kBucket);
        const Result<std::string> damage = record ? (*record)->find_damage() : failure(record.error());
        return !damage || !damage->empty();
    }
    [[nodiscard]] std::string directory() const { return temporary.path().string(); }
    static PutRequest put(std::string key, std::string content, Metadata metadata = {}) {
        PutRequest request;
        request.key = std::move(key);
        request.body = Payload::from_string(std::move(content));
        request.metadata = std::move(metadata);
        return request;
    }
    static GetRequest opening(std::string key) {
        GetRequest request;
        request.key = std::move(key);
        request.range = ByteRange{0, kLargestRecorded, true};
        request.for_open = true;
        request.on_body = [](ByteSpan) { return true; };
        return request;
    }
    // Its bytes.
    static Result<std::string> read(SyncStore& store, GetRequest request) {
        std::string bytes;
        request.on_body = [&](ByteSpan span) {
            bytes += as_text(span);
            return true;
        };
        const Result<GetResponse> response = store.get(std::move(request));
        return response ? Result<std::string>(bytes) : failure(response.error());
    }
    static Result<std::string> read(SyncStore& store, const std::string& key) { return read(store, opening(key)); }
    static ListRequest below(std::string prefix, std::string delimiter = "", int max_keys = 1000) {
        ListRequest request;
        request.prefix = std::move(prefix);
        request.delimiter = std::move(delimiter);
        request.max_keys = max_keys;
        return request;
    }
    // All pages, in the order of their names.
    static std::vector<std::string> names(SyncStore& store, ListRequest request) {
        std::vector<std::string> all;
        do {
            const Result<ListResponse> page = store.list(request);
            EXPECT_TRUE(page);
            if (!page) {
                break;
            }
            for (const ObjectInfo& object : page->objects) {
                all.push_back(object.key);
            }
            all.insert(all.end(), page->common_prefixes.begin(), page->common_prefixes.end());
            request.continuation_token = page->next_continuation_token;
        } while (!request.continuation_token.empty());
        std::sort(all.begin(), all.end());
        return all;
    }
    void upload(const std::string& key, const std::string& content, Metadata metadata) {
        CreateUploadRequest create;
        create.key = key;
        create.metadata = std::move(metadata);
        const UploadId id = online->create_upload(create).value();
        CompleteRequest complete;
        complete.upload = id;
        for (std::size_t at = 0; at < content.size(); at += kPartSize) {
            UploadPartRequest part;
            part.upload = id;
            part.part_number = static_cast<int>(at / kPartSize) + 1;
            part.body = Payload::from_string(content.substr(at, kPartSize));
            complete.parts.push_back(online->upload_part(std::move(part)).value());
        }
        complete.size = content.size();
        ASSERT_TRUE(online->complete_upload(complete));
    }

    TemporaryDirectory temporary;
    FakeStore bucket_{kPartSize};
    ManualClock clock;
    HandTimer timer;
    std::unique_ptr<ObjectRecorder> recorder;
    std::unique_ptr<RecordingStore> recording;
    std::optional<SyncStore> online;
};

}  // namespace ckptfs
