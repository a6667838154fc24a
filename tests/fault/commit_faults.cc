// SPDX-License-Identifier: Apache-2.0
// Every S3 operation of a commit against every fault, through the real client and a real connection: the file is
// committed whole, or it has failed and the earlier version stays; nothing is left of the upload, and no buffer is
// lost.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "base/timer_thread.h"
#include "credentials/provider.h"
#include "http/curl_transport.h"
#include "s3/s3_store.h"
#include "s3sim/server.h"
#include "s3sim/simulator.h"
#include "unit/write/writer_fixture.h"

namespace ckptfs::testing {
namespace {

constexpr const char* kBucket = "bucket";
constexpr const char* kKey = "dir/file";
// Long enough for a passing fault on a busy machine, short enough to wait for a lasting one.
constexpr Milliseconds kRetryPassing{std::chrono::seconds(30)};
constexpr Milliseconds kRetryLasting{std::chrono::milliseconds(800)};
constexpr Milliseconds kStallTimeout{std::chrono::milliseconds(300)};

// What is written, and so which requests the commit makes.
enum class Scenario : std::uint8_t {
    kSmallFile,      // PutObject
    kLargeFile,      // CreateMultipartUpload, UploadPart, CompleteMultipartUpload
    kAppendToSmall,  // GetObject, PutObject
    kAppendToLarge,  // CreateMultipartUpload, UploadPartCopy, UploadPart, CompleteMultipartUpload
};

struct Target {
    const char* operation;
    Scenario scenario;
    // So many of them go well first.
    std::uint64_t skip = 0;
};

// Of UploadPartCopy, in this order: whether the store has it, whether it heeds its condition, and the copy.
constexpr Target kWhetherItCopies{"UploadPartCopy", Scenario::kAppendToLarge, 0};
constexpr Target kWhetherItHeeds{"UploadPartCopy", Scenario::kAppendToLarge, 1};
constexpr Target kPartCopy{"UploadPartCopy", Scenario::kAppendToLarge, 2};

std::string earlier_version(Scenario scenario) {
    return pattern(scenario == Scenario::kAppendToLarge ? 6 * kMiB : 50'000, 17);
}

class RealStore {
public:
    explicit RealStore(Milliseconds retry_for) {
        EXPECT_TRUE(simulator_.table().create_bucket(kBucket, "us-east-1"));
        simulator_.on_release([this] { server_.release_hung(); });
        server_.start();
        config_.bucket = kBucket;
        config_.endpoint_url = "http://127.0.0.1:" + std::to_string(server_.port());
        config_.region = "us-east-1";
        config_.addressing = AddressingStyle::kPath;
        config_.no_sign_request = true;
        config_.stall_timeout = kStallTimeout;
        config_.retry_for = retry_for;
        const Environment nothing = [](const char*) { return std::nullopt; };
        transport_ = std::move(make_curl_transport({}).value());
        credentials_ =
            std::move(make_credentials_provider(config_, nothing, {*transport_, clock_, [] { return 0.5; }}).value());
        store_ =
            std::move(s3::make_s3_store(config_, nothing,
                                        {*transport_, timer_, clock_, executor_, *credentials_, [] { return 0.5; }})
                          .value());
    }

    ObjectStore& store() { return *store_; }
    void stop() { store_->stop(); }

    void inject(const std::string& operation, const std::string& action, bool lasting, std::uint64_t skip = 0) {
        s3sim::FaultRule rule;
        rule.name = action;
        rule.operation = operation;
        rule.skip = skip;
        rule.fault = s3sim::fault_of_name(action).value();
        if (!lasting) {
            rule.times = 1;
        }
        simulator_.faults().add({rule});
    }
    void clear_faults() { simulator_.clear_faults(); }
    [[nodiscard]] std::uint64_t strikes() const {
        std::uint64_t strikes = 0;
        for (const s3sim::FaultRule& rule : simulator_.faults().rules()) {
            strikes += rule.hits;
        }
        return strikes;
    }

    ObjectInfo put(const std::string& content) {
        PutRequest request;
        request.key = kKey;
        request.body = Payload::from_string(content);
        Answer<Result<PutResponse>> answer;
        store_->put(std::move(request), answer.callback());
        ObjectInfo info;
        info.etag = answer.get().value().etag;
        info.size = content.size();
        return info;
    }
    // And the bytes of it.
    ObjectInfo object(std::string& content) {
        const auto bytes = std::make_shared<std::string>();
        GetRequest request;
        request.key = kKey;
        request.on_body = [bytes](ByteSpan more) {
            bytes->append(as_text(more));
            return true;
        };
        Answer<Result<GetResponse>> answer;
        store_->get(std::move(request), answer.callback());
        const auto response = answer.get();
        content = response ? *bytes : response.error().message;
        return response ? response->object : ObjectInfo();
    }
    std::vector<OpenUpload> open_uploads() {
        Answer<Result<std::vector<OpenUpload>>> answer;
        store_->list_uploads("", answer.callback());
        return answer.get().value();
    }
    std::size_t parts_of(const UploadId& upload) {
        Answer<Result<std::vector<UploadedPart>>> answer;
        store_->list_parts(upload, answer.callback());
        return answer.get().value().size();
    }

private:
    static s3sim::SimulatorOptions anonymous() {
        s3sim::SimulatorOptions options;
        options.keys.allow_anonymous = true;
        return options;
    }

    s3sim::ChunkPool chunks_{std::size_t{1} << 30};
    s3sim::TrafficShaper shaper_;
    mutable s3sim::Simulator simulator_{anonymous(), chunks_, shaper_};
    s3sim::Server server_{s3sim::ServerOptions{}, simulator_, chunks_, shaper_};
    StoreConfig config_;
    SystemClock clock_;
    TimerThread timer_{clock_};
    ThreadPool executor_{"s3", 2};
    std::unique_ptr<HttpTransport> transport_;
    std::unique_ptr<CredentialsProvider> credentials_;
    std::unique_ptr<s3::S3Store> store_;
};

class CommitFaults : public ::testing::TestWithParam<std::tuple<Target, const char*, bool, const char*>> {
public:
    ~CommitFaults() override { real_.stop(); }

protected:
    CommitFaults()
        : target_(std::get<0>(GetParam())),
          action_(std::get<1>(GetParam())),
          lasting_(std::get<2>(GetParam())),
          real_(lasting_ ? kRetryLasting : kRetryPassing) {}

    [[nodiscard]] bool performs() const { return action_.starts_with("performed"); }
    [[nodiscard]] bool publishes() const {
        const std::string operation = target_.operation;
        return operation == "PutObject" || operation == "CompleteMultipartUpload";
    }
    // A refusal is final, but for that of the requests that only ask how the store copies parts. A commit that was
    // performed is found by its write id, however often its reply is lost.
    [[nodiscard]] bool succeeds() const {
        if (action_ == "403") {
            return !lasting_ && std::string(target_.operation) == "UploadPartCopy" && target_.skip < kPartCopy.skip;
        }
        return !lasting_ || (publishes() && performs());
    }
    // An upload that was created while nobody heard of it: nobody can end it, and it holds no part.
    [[nodiscard]] bool may_leave_an_empty_upload() const {
        return std::string(target_.operation) == "CreateMultipartUpload" && performs();
    }

    std::string content() {
        std::string stored;
        const ObjectInfo object = real_.object(stored);
        return fixture_.file(object, stored);
    }

    // Where there are other faults, those of `first` come before the target's.
    Result<CommittedObject> write_and_commit(const std::string& earlier, std::string& expected,
                                             const char* first = nullptr, const char* first_action = nullptr) {
        const ObjectInfo before = real_.put(earlier);
        if (first != nullptr) {
            real_.inject(first, first_action, true);
        }
        real_.inject(target_.operation, action_, lasting_, target_.skip);
        std::optional<CommittedObject> base;
        // Long enough to be compressed, where it may be.
        std::string more = noise(kMiB + 100'000, 3);
        if (target_.scenario == Scenario::kLargeFile) {
            more = noise(12 * kMiB, 3);
        }
        expected = more;
        if (target_.scenario == Scenario::kAppendToSmall || target_.scenario == Scenario::kAppendToLarge) {
            base = CommittedObject{before.etag, before.size, before.size, {}};
            expected = earlier + more;
        }
        const auto writer = FileWriter::create(environment_, kKey, base);
        // An early failure is the commit's as well.
        static_cast<void>(fixture_.write(*writer, base ? base->size : 0, more));
        auto committed = WriterFixture::commit(*writer);
        EXPECT_EQ(writer->failed().has_value(), !committed.has_value());
        return committed;
    }

    void expect_nothing_left() {
        EXPECT_TRUE(eventually([this] {
            for (const OpenUpload& upload : real_.open_uploads()) {
                if (!may_leave_an_empty_upload() || real_.parts_of(upload.upload) > 0) {
                    return false;
                }
            }
            return true;
        }));
        EXPECT_TRUE(fixture_.all_buffers_returned());
    }

    const Target target_;
    const std::string action_;
    const bool lasting_;
    RealStore real_;
    WriterFixture fixture_{64 * kMiB, {}, std::get<3>(GetParam())};
    WriteEnvironment environment_{real_.store(),  *fixture_.pool,  fixture_.executor, fixture_.staging,
                                  fixture_.clock, *fixture_.codec, WriteConfig{}};
};

TEST_P(CommitFaults, CommitWholeOrNotAtAll) {
    const std::string earlier = earlier_version(target_.scenario);
    std::string expected;
    const auto committed = write_and_commit(earlier, expected);
    EXPECT_GT(real_.strikes(), 0U);
    EXPECT_EQ(committed.has_value(), succeeds()) << (committed ? "committed" : committed.error().message);
    // Hung requests are let go, and what has to be ended can be.
    real_.clear_faults();
    EXPECT_TRUE(content() == (committed ? expected : earlier));
    expect_nothing_left();
}

std::string name_of(const ::testing::TestParamInfo<CommitFaults::ParamType>& parameter) {
    const auto& [target, action, lasting, compress] = parameter.param;
    std::string name = std::string(target.operation) + (target.skip == 0 ? "" : std::to_string(target.skip + 1)) + '_' +
                       action + (lasting ? "_lasting_" : "_passing_") + compress;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

const auto kCompress = ::testing::Values("none", "auto");

INSTANTIATE_TEST_SUITE_P(Matrix, CommitFaults,
                         ::testing::Combine(::testing::Values(Target{"PutObject", Scenario::kSmallFile},
                                                              Target{"CreateMultipartUpload", Scenario::kLargeFile},
                                                              Target{"UploadPart", Scenario::kLargeFile},
                                                              Target{"CompleteMultipartUpload", Scenario::kLargeFile},
                                                              kWhetherItCopies, kWhetherItHeeds, kPartCopy,
                                                              Target{"GetObject", Scenario::kAppendToSmall}),
                                            ::testing::Values("500", "slowdown", "reset", "performed-but-reply-lost",
                                                              "performed-but-500", "hang", "403"),
                                            ::testing::Bool(), kCompress),
                         name_of);

// Both of these answer 200 before they know.
INSTANTIATE_TEST_SUITE_P(ErrorsInside200, CommitFaults,
                         ::testing::Combine(::testing::Values(Target{"CompleteMultipartUpload", Scenario::kLargeFile},
                                                              kWhetherItCopies, kWhetherItHeeds, kPartCopy),
                                            ::testing::Values("200-error", "blanks"), ::testing::Values(false),
                                            kCompress),
                         name_of);

// What follows a first fault may meet one, too.
class FollowingFaults : public CommitFaults {};

TEST_P(FollowingFaults, AnUploadThatFailedIsEndedAllTheSame) {
    const std::string earlier = earlier_version(target_.scenario);
    std::string expected;
    EXPECT_FALSE(write_and_commit(earlier, expected, "UploadPart", "403"));
    expect_nothing_left();
    real_.clear_faults();
    EXPECT_TRUE(content() == earlier);
}

INSTANTIATE_TEST_SUITE_P(Abort, FollowingFaults,
                         ::testing::Combine(::testing::Values(Target{"AbortMultipartUpload", Scenario::kLargeFile}),
                                            ::testing::Values("500", "slowdown", "reset", "performed-but-reply-lost",
                                                              "hang"),
                                            ::testing::Values(false), kCompress),
                         name_of);

class LookingFaults : public CommitFaults {};

TEST_P(LookingFaults, ACommitWhoseReplyWasLostIsFound) {
    const char* const commit = target_.scenario == Scenario::kSmallFile ? "PutObject" : "CompleteMultipartUpload";
    std::string expected;
    const auto committed =
        write_and_commit(earlier_version(target_.scenario), expected, commit, "performed-but-reply-lost");
    EXPECT_TRUE(committed) << committed.error().message;
    EXPECT_GT(real_.strikes(), 1U);
    real_.clear_faults();
    EXPECT_TRUE(content() == expected);
    expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(Look, LookingFaults,
                         ::testing::Combine(::testing::Values(Target{"HeadObject", Scenario::kSmallFile},
                                                              Target{"HeadObject", Scenario::kLargeFile}),
                                            ::testing::Values("500", "slowdown", "reset", "hang"),
                                            ::testing::Values(false), kCompress),
                         [](const auto& parameter) {
                             return name_of(parameter) + '_' +
                                    std::to_string(static_cast<int>(std::get<0>(parameter.param).scenario));
                         });

}  // namespace
}  // namespace ckptfs::testing
