// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codec/codecs.h"
#include "support/fake_store.h"
#include "support/hooked_store.h"
#include "tools/cat_object.h"
#include "tools/inspect_object.h"
#include "tools/json_reports.h"
#include "tools/object_frames.h"
#include "tools/verify_objects.h"

namespace ckptfs {
namespace {

using testing::FakeStore;
using testing::Fate;
using testing::Fault;
using testing::HookedStore;
using testing::Operation;

// Text and random bytes in turn, half a MiB of each.
std::string mixed(std::size_t size) {
    std::mt19937_64 random(1);
    std::string bytes;
    while (bytes.size() < size) {
        bytes += std::string(kFrameSize / 2, static_cast<char>('a' + bytes.size() / kFrameSize));
        for (std::size_t i = 0; i < kFrameSize / 2; ++i) {
            bytes += static_cast<char>(random());
        }
    }
    bytes.resize(size);
    return bytes;
}

std::unique_ptr<Codec> codec_of(const std::string& compress) {
    CodecConfig config;
    config.compress = compress;
    return make_codec(config).value();
}

class Tools : public ::testing::Test {
protected:
    Tools() {
        hooked_.look_at_gets([this](GetRequest& request) {
            if (flip_next_ != 0 && request.range->suffix) {
                const std::uint64_t end = std::min(request.range->length, store_.info(request.key).size);
                testing::flip_a_bit(request, end - std::exchange(flip_next_, 0));
            }
        });
    }
    // Puts `content` as a mount with this codec would; tells where each frame begins.
    std::vector<std::size_t> put(const std::string& key, const std::string& content, const Codec& codec) {
        const auto encoder = codec.encoder(key);
        std::vector<std::byte> output(kMaxStoredFrame);
        std::vector<FrameRecord> records;
        std::vector<std::size_t> begins;
        std::string object;
        for (std::size_t offset = 0; offset < content.size(); offset += kFrameSize) {
            const EncodedFrame frame =
                encoder->encode(Payload::from_string(content.substr(offset, kFrameSize)), output, EncodeEffort::kNormal)
                    .value();
            begins.push_back(object.size());
            object += frame.stored ? frame.stored->to_string()
                                   : std::string(as_text(ByteSpan(output).first(frame.record.stored_size)));
            records.push_back(frame.record);
        }
        object += encoder->tail(records, content.size()).to_string();
        store_.put_object(key, object, encoder->metadata(content.size()));
        return begins;
    }

    void flip(const std::string& key, std::size_t place) {
        std::string content = store_.content(key);
        content[place] = static_cast<char>(content[place] ^ 1);
        store_.put_object(key, content, store_.info(key).metadata);
    }

    std::string cat(const std::string& key, Status& result) {
        std::string text;
        result = cat_object(*seen_, *codec_, key, [&](ByteSpan bytes) -> Status {
            text += as_text(bytes);
            return {};
        });
        return text;
    }

    VerifyTotals verify(const std::string& key) {
        problems_.clear();
        const auto totals = verify_objects(
            *seen_, *codec_, key,
            {[&](const ObjectProblem& problem) { problems_[problem.key] = problem; }, [](const VerifyTotals&) {}});
        EXPECT_TRUE(totals) << totals.error().message;
        return totals.value_or(VerifyTotals{});
    }

    // As the tools see it: of the next end of an object that is fetched, a bit is flipped so far before its last byte.
    void flip_in_transit(std::size_t before_end) { flip_next_ = before_end; }

    FakeStore store_;
    HookedStore hooked_{store_, [](int) { return Fate::kPasses; }};
    ObjectStore* seen_ = &store_;
    std::size_t flip_next_ = 0;
    std::map<std::string, ObjectProblem> problems_;
    const std::unique_ptr<Codec> codec_ = codec_of("auto");
};

TEST_F(Tools, CatGivesTheFileWhateverItsFormat) {
    store_.answer_from_threads(4);
    for (const char* compress : {"none", "zstd", "auto"}) {
        for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kFrameSize, 17 * kFrameSize + 5}) {
            const std::string content = mixed(size);
            put("file", content, size == 0 ? *codec_of("none") : *codec_of(compress));
            Status result;
            EXPECT_TRUE(cat("file", result) == content) << compress << size;
            EXPECT_TRUE(result);
        }
    }
}

TEST_F(Tools, CatGivesNothingBehindADamagedFrame) {
    const std::string content = mixed(20 * kFrameSize);
    const auto begins = put("file", content, *codec_);
    flip("file", begins[13] + 300);
    flip("file", begins[17] + 300);
    Status result;
    EXPECT_TRUE(cat("file", result) == content.substr(0, 13 * kFrameSize));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().errno_value, kDamaged);
    EXPECT_NE(result.error().message.find("frame 13"), std::string::npos) << result.error().message;
}

TEST_F(Tools, CatStopsWhereTheOutputDoes) {
    put("file", mixed(60 * kFrameSize), *codec_);
    int writes = 0;
    const Status result = cat_object(store_, *codec_, "file", [&](ByteSpan) -> Status {
        ++writes;
        return failure(ENOSPC, "full");
    });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().errno_value, ENOSPC);
    EXPECT_EQ(writes, 1);
}

TEST_F(Tools, AStoreThatFailsIsNotDamage) {
    put("file", mixed(8 * kFrameSize), *codec_);
    Fault fault;
    fault.operation = Operation::kGet;
    fault.error = testing::store_error(EACCES, "AccessDenied", 403);
    fault.skip = 1;
    store_.inject(fault);
    Status result;
    cat("file", result);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().errno_value, EACCES);
}

TEST_F(Tools, InspectAddsUpWhatThereIs) {
    const std::string content = mixed(20 * kFrameSize + 100);
    put("file", content, *codec_of("zstd"));
    const ObjectReport report = inspect_object(store_, *codec_, "file").value();
    EXPECT_EQ(report.format, "zstd-1");
    EXPECT_EQ(report.size, content.size());
    EXPECT_EQ(report.object.size, store_.content("file").size());
    EXPECT_EQ(report.frames(), 21U);
    EXPECT_NEAR(report.percent_saved(), 50, 1);
    EXPECT_NE(describe(report).find("zstd-1"), std::string::npos);
    EXPECT_NE(json_of(report).find("\"frames\":21"), std::string::npos);
}

TEST_F(Tools, VerifyNamesTheFirstDamagedFrameOfEveryObject) {
    store_.answer_from_threads(4);
    const auto begins = put("run/large", mixed(60 * kFrameSize), *codec_);
    for (int i = 0; i < 40; ++i) {
        put("run/" + std::to_string(i), mixed(kFrameSize + 1), i % 2 == 0 ? *codec_ : *codec_of("none"));
    }
    put("run2", mixed(1), *codec_of("none"));
    store_.put_object("run/dir/", "");
    store_.put_object("run/renamed/", "01234567-89ab-cdef-0123-456789abcdef");
    EXPECT_EQ(verify("run").objects, 41U);
    EXPECT_TRUE(problems_.empty());
    for (const std::size_t frame : {std::size_t{51}, std::size_t{9}, std::size_t{10}}) {
        flip("run/large", begins[frame] + 300);
    }
    flip("run/8", 300);
    const VerifyTotals totals = verify("run/");
    EXPECT_EQ(totals.damaged, 2U);
    EXPECT_EQ(totals.not_checked, 0U);
    EXPECT_EQ(totals.size, 60 * kFrameSize + 40 * (kFrameSize + 1));
    EXPECT_EQ(exit_code(totals), 1);
    ASSERT_EQ(problems_.size(), 2U);
    EXPECT_EQ(problems_["run/large"].frame, 9U);
    EXPECT_EQ(problems_["run/large"].damaged_frames, 3U);
    EXPECT_EQ(problems_["run/8"].frame, 0U);
}

TEST_F(Tools, VerifyTellsDamageFromAStoreThatFails) {
    put("file", mixed(60 * kFrameSize), *codec_);
    Fault fault;
    fault.operation = Operation::kGet;
    fault.error = testing::store_error(EACCES, "AccessDenied", 403);
    fault.skip = 3;
    fault.times = 1000;
    store_.inject(fault);
    VerifyTotals totals = verify("file");
    EXPECT_EQ(totals.damaged, 0U);
    EXPECT_EQ(totals.not_checked, 1U);
    EXPECT_EQ(exit_code(totals), 2);
    fault.operation = Operation::kList;
    fault.skip = 0;
    store_.inject(fault);
    const auto listed = verify_objects(store_, *codec_, "", {[](const auto&) {}, [](const auto&) {}});
    ASSERT_FALSE(listed);
    EXPECT_EQ(listed.error().errno_value, EACCES);
}

TEST_F(Tools, VerifyTellsOfDamageAlsoWhereTheListEndsEarly) {
    put("run/0", mixed(2 * kFrameSize), *codec_);
    flip("run/0", 300);
    for (int i = 1; i <= 1000; ++i) {
        store_.put_object("run/" + std::to_string(i), "x");
    }
    Fault fault;
    fault.operation = Operation::kList;
    fault.error = testing::store_error(EACCES, "AccessDenied", 403);
    fault.skip = 1;
    store_.inject(fault);
    const VerifyTotals totals = verify("run/");
    EXPECT_EQ(totals.objects, 1000U);
    EXPECT_EQ(totals.damaged, 1U);
    EXPECT_EQ(totals.not_checked, 1U);
    EXPECT_EQ(exit_code(totals), 1);
    EXPECT_TRUE(problems_["run/0"].damaged);
    EXPECT_EQ(problems_["run/"].why, "the store answered AccessDenied");
}

TEST_F(Tools, VerifyPassesOverWhatIsRemovedMeanwhile) {
    seen_ = &hooked_;
    // The S3 client says ESTALE of the version that was opened, whether it was removed or replaced.
    struct Case {
        int answered;
        bool replaced;
    };
    for (const auto& [answered, replaced] : {Case{ENOENT, false}, Case{ESTALE, false}, Case{ESTALE, true}}) {
        put("run/file", mixed(2 * kFrameSize), *codec_);
        store_.put_object("run/sound", "x");
        hooked_.look_at_gets([&, answered = answered, replaced = replaced](const GetRequest& request) {
            if (request.key != "run/file" || request.range->suffix) {
                return;
            }
            if (replaced) {
                store_.put_object("run/file", "y");
            } else {
                store_.remove({"run/file", ""}, [](const Status&) {});
            }
            store_.inject({Operation::kGet, "run/file", testing::store_error(answered, "", 404), 0, 1, false});
        });
        const VerifyTotals totals = verify("run/");
        EXPECT_EQ(totals.objects, replaced ? 2U : 1U) << answered;
        EXPECT_EQ(totals.not_checked, replaced ? 1U : 0U) << answered;
        EXPECT_EQ(exit_code(totals), replaced ? 2 : 0) << answered;
    }
}

// Its data is lost, its description is not.
TEST_F(Tools, VerifyTellsOfWhatTheStoreDescribesAndDoesNotReturn) {
    put("run/file", mixed(2 * kFrameSize), *codec_);
    for (const int reads : {0, 1}) {
        store_.inject({Operation::kGet, "run/file", testing::store_error(ENOENT, "NoSuchKey", 404), reads, 100, false});
        const VerifyTotals totals = verify("run/");
        EXPECT_EQ(totals.not_checked, 1U) << reads;
        EXPECT_EQ(exit_code(totals), 2) << reads;
        store_.clear_faults();
    }
}

// Some stores give no ETags: size and time are compared.
TEST_F(Tools, EachFetchNamesTheVersionThatWasOpened) {
    seen_ = &hooked_;
    put("file", mixed(40 * kFrameSize), *codec_of("none"));
    std::atomic<int> fetches = 0;
    std::atomic<int> named = 0;
    hooked_.look_at_gets([&, seen = store_.info("file")](const GetRequest& request) {
        if (!request.range->suffix) {
            ++fetches;
            named += request.if_size == seen.size && request.if_modified == seen.last_modified ? 1 : 0;
        }
    });
    Status result;
    cat("file", result);
    EXPECT_TRUE(result);
    EXPECT_GT(fetches, 1);
    EXPECT_EQ(named, fetches);
}

TEST_F(Tools, ReportsHoldNoControlCharacters) {
    ObjectReport report;
    report.object.key = "red\x1b[31m\xff";
    report.format = "plain";
    EXPECT_NE(describe(report).find("red\\x1b[31m\\xff"), std::string::npos);
    const std::string json = json_of(report);
    EXPECT_NE(json.find("red\\u001b[31m\xef\xbf\xbd"), std::string::npos) << json;
    EXPECT_EQ(json.find('\x1b'), std::string::npos);
}

TEST_F(Tools, ATableThatCannotBeIsDamage) {
    put("file", mixed(2 * kFrameSize), *codec_);
    // The number of frames: nine bytes before the end.
    flip("file", store_.content("file").size() - 9);
    const auto opened = open_object(store_, *codec_, "file");
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().errno_value, kDamaged);
}

TEST_F(Tools, WhatWasOnlyDamagedInTransitIsReadOnceMore) {
    seen_ = &hooked_;
    const std::string content = mixed(6 * kFrameSize);
    for (const char* compress : {"zstd", "auto"}) {
        put("file", content, *codec_of(compress));
        // From the end: the magic number, the number of frames, the checksum of the last frame and the stored size of
        // the second.
        for (const std::size_t before_end : {1U, 9U, 13U, 9U + 5U * 12U}) {
            flip_in_transit(before_end);
            Status result;
            EXPECT_TRUE(cat("file", result) == content) << before_end;
            EXPECT_TRUE(result) << result.error().message;
            flip_in_transit(before_end);
            const VerifyTotals totals = verify("file");
            EXPECT_EQ(exit_code(totals), 0) << compress << before_end;
            EXPECT_EQ(totals.size, content.size());
            EXPECT_TRUE(problems_.empty()) << problems_["file"].why;
        }
    }
}

// It cannot be told which of both readings is right.
TEST_F(Tools, ATableThatCannotBeReadOnceMoreIsNoDamage) {
    put("file", mixed(2 * kFrameSize), *codec_);
    flip("file", store_.content("file").size() - 13);
    Fault fault;
    fault.operation = Operation::kGet;
    fault.error = testing::store_error(EACCES, "AccessDenied", 403);
    // The end, the frames, and the second one again.
    fault.skip = 3;
    store_.inject(fault);
    EXPECT_EQ(exit_code(verify("file")), 2);
    EXPECT_EQ(exit_code(verify("file")), 1);
}

}  // namespace
}  // namespace ckptfs
