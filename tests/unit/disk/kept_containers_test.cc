// SPDX-License-Identifier: Apache-2.0
// Files whose frames have to be decoded, opened without their table as all of them is kept on a disk, which has lost
// some since.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "disk/disk_cache.h"
#include "read/inverted_codec.h"
#include "support/hand_timer.h"
#include "support/temporary_directory.h"

namespace ckptfs::testing {
namespace {

class KeptContainers : public ::testing::Test {
protected:
    KeptContainers() {
        put("k");
        reader = open();
        // All of it.
        EXPECT_EQ(Reading::read(*reader, reader->open_stream(), 0, content.size()).value(), content);
        reader = nullptr;
        EXPECT_TRUE(reading->comes_to_rest());
        // What is written there is the reader's memory until then.
        EXPECT_TRUE(files->stop());
        reading = nullptr;
        // Another mount, which finds it whole; a frame of it is damaged then.
        files = make_cache();
        reading = std::make_unique<Reading>(*files);
        environment = make_environment();
        put("k");
        reader = open();
        EXPECT_TRUE(reading->store.ranges().empty());
        for (const auto& entry : std::filesystem::directory_iterator(temporary.path() / "cache")) {
            if (entry.path().extension() == ".data") {
                std::filesystem::resize_file(entry.path(), 2 * kMiB);
            }
        }
    }
    ~KeptContainers() override {
        reader = nullptr;
        EXPECT_TRUE(reading->comes_to_rest());
        EXPECT_TRUE(files->stop());
        reading = nullptr;
    }

    std::unique_ptr<DiskCache> make_cache() {
        return DiskCache::create({(temporary.path() / "cache").string(), 1 << 30, "s"}, clock, timer).value();
    }
    std::unique_ptr<ReadEnvironment> make_environment() {
        ReadEnvironment made{
            reading->store, reading->pool, reading->executor, reading->clock, codec, reading->cache, {}};
        made.files = files.get();
        return std::make_unique<ReadEnvironment>(made);
    }
    void put(const std::string& key) {
        reading->store.make_etags_of_content();
        reading->store.put_object(key, encoded(content), {{kWriteIdMetadata, "id"}});
    }
    std::shared_ptr<FileReader> open() {
        Awaited<ObjectInfo> object;
        reading->store.head("k", object.callback());
        Awaited<std::shared_ptr<FileReader>> opened;
        FileReader::open_latest(*environment, "k", object.get().value().etag, opened.callback());
        return opened.get().value();
    }
    Result<std::string> read() { return Reading::read(*reader, reader->open_stream(), 3 * kMiB, kMiB); }
    void expect_good() {
        const Result<std::string> bytes = read();
        ASSERT_TRUE(bytes) << bytes.error().message;
        EXPECT_TRUE(*bytes == content.substr(3 * kMiB, kMiB));
        EXPECT_TRUE(reading->comes_to_rest());
    }

    TemporaryDirectory temporary;
    ManualClock clock;
    HandTimer timer;
    InvertedCodec codec;
    const std::string content = content_of(5 * kMiB + 17);
    std::unique_ptr<DiskCache> files = make_cache();
    std::unique_ptr<Reading> reading = std::make_unique<Reading>(*files);
    std::unique_ptr<ReadEnvironment> environment = make_environment();
    std::shared_ptr<FileReader> reader;
};

TEST_F(KeptContainers, WhatIsMissingIsFetched) {
    expect_good();
}

TEST_F(KeptContainers, AFrameThatIsDamagedOnItsWayIsFetchedAgain) {
    // The table comes first.
    reading->store.answers_to_spare = 1;
    reading->store.answers_to_spoil = 1;
    expect_good();
}

TEST_F(KeptContainers, ATableThatIsDamagedOnItsWayIsReadAgain) {
    codec.tables_to_damage = 1;
    expect_good();
}

TEST_F(KeptContainers, WhatIsDamagedForGoodIsEIOAndSoIsNothingElse) {
    codec.tables_to_damage = 2;
    EXPECT_EQ(read().error().errno_value, EIO);
    EXPECT_TRUE(reading->comes_to_rest());
    expect_good();
}

TEST_F(KeptContainers, AVersionThatIsGoneIsESTALE) {
    for (const bool is_replaced : {true, false}) {
        if (is_replaced) {
            reading->store.put_object("k", encoded(content_of(5 * kMiB, 2)), {{kWriteIdMetadata, "other"}});
        } else {
            Awaited<void> removed;
            reading->store.remove("k", removed.callback());
            ASSERT_TRUE(removed.get());
        }
        EXPECT_EQ(read().error().errno_value, ESTALE) << is_replaced;
    }
}

TEST_F(KeptContainers, AStoreThatDoesNotAnswerIsNoDamage) {
    reading->store.inject({Operation::kGet, "k", store_error(EIO, "InternalError", 500), 0, 1, false});
    const Result<std::string> bytes = read();
    ASSERT_FALSE(bytes);
    EXPECT_EQ(bytes.error().s3_code, "InternalError");
    EXPECT_TRUE(reading->comes_to_rest());
    expect_good();
}

}  // namespace
}  // namespace ckptfs::testing
