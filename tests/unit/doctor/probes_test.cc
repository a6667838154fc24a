// SPDX-License-Identifier: Apache-2.0
#include "doctor/probes.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/system_clock.h"
#include "doctor/diagnosis.h"
#include "doctor/endpoint_probe.h"
#include "doctor/rules.h"
#include "support/fake_store.h"

namespace ckptfs::doctor {
namespace {

using testing::FakeStore;
using testing::Fault;
using testing::Operation;

constexpr const char* kPlace = "run/.ckptfs/tmp/doctor-1/";

class DoctorProbes : public ::testing::Test {
protected:
    void SetUp() override {
        request_.prefix = "run/";
        request_.place = kPlace;
        request_.max_connections = 4;
        request_.credentials = "a test";
    }
    void refuse(Operation operation, const char* code = "AccessDenied", int errno_value = EACCES) {
        Fault fault;
        fault.operation = operation;
        fault.error = testing::store_error(errno_value, code, errno_value == EACCES ? 403 : 501);
        fault.times = 1000;
        store_.inject(fault);
    }
    void break_down(Operation operation, Error error, const std::string& key = "", int times = 1000) {
        Fault fault;
        fault.operation = operation;
        fault.key = key;
        fault.error = std::move(error);
        fault.times = times;
        store_.inject(fault);
    }
    Findings probe() {
        Findings findings;
        PatientStore asked(store_, patience_, litter_);
        probe_store(asked, nullptr, request_, findings);
        return findings;
    }
    ProbeAnswer answer(const Findings& findings, Probe probe) {
        const Finding* found = findings.find(probe);
        EXPECT_NE(found, nullptr) << name_of(probe);
        return found == nullptr ? ProbeAnswer::kFailed : found->answer;
    }
    Findings clean() {
        Findings findings;
        PatientStore cleaning(store_, patience_, litter_);
        clean_up(cleaning, litter_, kPlace, findings);
        return findings;
    }

    FakeStore store_;
    SystemClock clock_;
    bool interrupted_ = false;
    Patience patience_{clock_, [this] { return interrupted_; }, Milliseconds(2000)};
    Litter litter_;
    ProbeRequest request_;
};

// But for what the store in memory does not do.
TEST_F(DoctorProbes, FindAllThatS3Has) {
    const Findings findings = probe();
    for (auto each = static_cast<int>(Probe::kCredentials); each < static_cast<int>(Probe::kSlowDown); ++each) {
        const auto probe = static_cast<Probe>(each);
        const bool asked = probe != Probe::kChecksumHeaders && probe != Probe::kChecksumOfPut &&
                           probe != Probe::kChecksumOfPart && probe != Probe::kUpload && probe != Probe::kDownload;
        const Finding* found = findings.find(probe);
        ASSERT_NE(found, nullptr) << name_of(probe);
        EXPECT_EQ(found->answer, asked ? ProbeAnswer::kYes : ProbeAnswer::kNotAsked)
            << name_of(probe) << ": " << found->seen;
    }
}

TEST_F(DoctorProbes, WriteBelowOneNameAndLeaveNothing) {
    store_.put_object("run/model.pt", "weights");
    static_cast<void>(probe());
    for (const std::string& key : store_.keys()) {
        EXPECT_TRUE(key == "run/model.pt" || key.starts_with(kPlace)) << key;
    }
    EXPECT_TRUE(clean().is(Probe::kCleanup, ProbeAnswer::kYes));
    EXPECT_EQ(store_.keys(), std::vector<std::string>{"run/model.pt"});
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(DoctorProbes, MeasureRates) {
    request_.most_bytes = std::uint64_t{64} << 20;
    const Findings findings = probe();
    EXPECT_EQ(answer(findings, Probe::kUpload), ProbeAnswer::kYes);
    EXPECT_EQ(answer(findings, Probe::kDownload), ProbeAnswer::kYes);
    EXPECT_GT(findings.facts.up.one_connection, 0);
    EXPECT_GT(findings.facts.down.one_connection, 0);
    static_cast<void>(clean());
    EXPECT_TRUE(store_.keys().empty());
}

TEST_F(DoctorProbes, AMountThatOnlyReadsIsAskedWithoutWriting) {
    request_.read_only = true;
    store_.put_object("run/model.pt", "weights");
    const Findings findings = probe();
    EXPECT_EQ(answer(findings, Probe::kGet), ProbeAnswer::kYes);
    EXPECT_EQ(answer(findings, Probe::kPut), ProbeAnswer::kNotAsked);
    EXPECT_EQ(store_.calls(Operation::kPut) + store_.calls(Operation::kCreateUpload), 0);
    EXPECT_TRUE(diagnose(findings).usable());
}

TEST_F(DoctorProbes, WithoutTheRightToWriteTheRestIsStillAsked) {
    refuse(Operation::kPut);
    store_.put_object("run/model.pt", "weights");
    const Findings findings = probe();
    EXPECT_EQ(answer(findings, Probe::kPut), ProbeAnswer::kNo);
    EXPECT_EQ(answer(findings, Probe::kGet), ProbeAnswer::kYes);
    EXPECT_EQ(answer(findings, Probe::kLatency), ProbeAnswer::kYes);
    EXPECT_EQ(answer(findings, Probe::kCopy), ProbeAnswer::kNotAsked);
    EXPECT_EQ(findings.find(Probe::kCopy)->because, Probe::kPut);
}

TEST_F(DoctorProbes, WithoutTheRightToDeleteLittleIsWritten) {
    refuse(Operation::kRemove);
    const Findings findings = probe();
    EXPECT_EQ(answer(findings, Probe::kDelete), ProbeAnswer::kNo);
    EXPECT_EQ(answer(findings, Probe::kMultipart), ProbeAnswer::kNotAsked);
    EXPECT_LE(store_.keys().size(), 2U);
    const Findings cleaned = clean();
    EXPECT_TRUE(cleaned.is(Probe::kCleanup, ProbeAnswer::kNo));
    EXPECT_NE(cleaned.find(Probe::kCleanup)->seen.find(kPlace), std::string::npos) << "names what is left";
}

TEST_F(DoctorProbes, WhatWasRefusedIsNotLeft) {
    refuse(Operation::kPut);
    refuse(Operation::kRemove);
    static_cast<void>(probe());
    EXPECT_TRUE(litter_.keys().empty());
    EXPECT_TRUE(clean().is(Probe::kCleanup, ProbeAnswer::kYes));
}

TEST_F(DoctorProbes, WhatWasRefusedOnceMayHaveBeenMadeBefore) {
    PatientStore asked(store_, patience_, litter_);
    PutRequest put;
    put.key = std::string(kPlace) + "twice";
    ASSERT_TRUE(asked.put(put));
    put.if_none_match = true;
    EXPECT_FALSE(asked.put(put));
    EXPECT_EQ(litter_.keys(), std::vector<std::string>{put.key});
}

TEST_F(DoctorProbes, WhatIsNotKnownToHaveBeenMadeIsRemoved) {
    Fault fault;
    fault.operation = Operation::kCopy;
    fault.error = testing::store_error(EIO, "InternalError", 500);
    fault.times = 1000;
    fault.after_effect = true;
    store_.inject(fault);
    static_cast<void>(probe());
    EXPECT_TRUE(store_.exists(std::string(kPlace) + "copy"));
    EXPECT_TRUE(clean().is(Probe::kCleanup, ProbeAnswer::kYes));
    EXPECT_TRUE(store_.keys().empty());
}

TEST_F(DoctorProbes, EachRightIsToldFromTheOthers) {
    const struct {
        Operation operation;
        Probe probe;
    } cases[] = {{Operation::kList, Probe::kList},
                 {Operation::kHead, Probe::kHead},
                 {Operation::kGet, Probe::kGet},
                 {Operation::kRemove, Probe::kDelete},
                 {Operation::kCreateUpload, Probe::kMultipart},
                 {Operation::kAbortUpload, Probe::kAbort},
                 {Operation::kListUploads, Probe::kListUploads},
                 {Operation::kListParts, Probe::kListParts}};
    for (const auto& each : cases) {
        store_.clear_faults();
        refuse(each.operation);
        const Findings findings = probe();
        EXPECT_EQ(answer(findings, each.probe), ProbeAnswer::kNo) << name_of(each.probe);
        EXPECT_EQ(answer(findings, Probe::kPut), ProbeAnswer::kYes) << name_of(each.probe);
    }
}

// What needs the right is not asked for; of all else nothing is known but good.
TEST_F(DoctorProbes, AMissingRightIsNotTheStoresNature) {
    const struct {
        std::vector<Operation> operations;
        std::set<Probe> missing;
    } cases[] = {{{Operation::kGet, Operation::kHead}, {Probe::kGet, Probe::kHead}},
                 {{Operation::kGet}, {Probe::kGet}},
                 {{Operation::kHead}, {Probe::kHead}},
                 {{Operation::kList}, {Probe::kList}},
                 {{Operation::kListUploads}, {Probe::kListUploads}},
                 {{Operation::kListParts}, {Probe::kListParts}},
                 {{Operation::kCreateUpload}, {Probe::kMultipart}}};
    for (const auto& each : cases) {
        store_.clear_faults();
        for (const Operation operation : each.operations) {
            refuse(operation);
        }
        for (const Finding& found : probe().list) {
            EXPECT_EQ(found.answer == ProbeAnswer::kNo, each.missing.contains(found.probe))
                << name_of(found.probe) << ": " << found.seen;
            EXPECT_TRUE(found.answer != ProbeAnswer::kFailed) << name_of(found.probe) << ": " << found.seen;
        }
    }
}

// Denied, not answered, broken off, overloaded.
std::vector<Error> errors_that_tell_nothing() {
    return {testing::store_error(EACCES, "AccessDenied", 403),
            testing::store_error(ETIMEDOUT, "", 0),
            testing::store_error(ECANCELED, "", 0),
            testing::store_error(ECONNRESET, "", 0),
            testing::store_error(EIO, "ServiceUnavailable", 503),
            testing::store_error(EIO, "InternalError", 500)};
}

TEST_F(DoctorProbes, WhatFailsForOtherReasonsIsNotKnown) {
    const struct {
        Operation operation;
        // Of the place, the first that pass; the probe that is told nothing.
        const char* key;
        int skip;
        Probe probe;
    } cases[] = {{Operation::kGet, "object", 13, Probe::kRanges},
                 {Operation::kGet, "object", 17, Probe::kIfMatch},
                 {Operation::kPut, "condition", 1, Probe::kIfNoneMatch},
                 {Operation::kCopy, "copy", 0, Probe::kCopy},
                 {Operation::kCopy, "copy", 1, Probe::kCopyConditions},
                 {Operation::kHead, "copy", 0, Probe::kCopy},
                 {Operation::kPut, "names/a!b", 0, Probe::kKeyNames},
                 {Operation::kRemoveMany, "", 0, Probe::kDeleteBatch},
                 {Operation::kUploadPart, "parts", 0, Probe::kParts},
                 {Operation::kUploadPartCopy, "part-copy", 0, Probe::kPartCopy},
                 {Operation::kCreateUpload, "part-copy", 0, Probe::kPartCopy}};
    for (const auto& each : cases) {
        for (const Error& error : errors_that_tell_nothing()) {
            store_.clear_faults();
            Fault fault;
            fault.operation = each.operation;
            fault.key = each.key[0] == '\0' ? "" : std::string(kPlace) + each.key;
            fault.error = error;
            fault.skip = each.skip;
            fault.times = 1000;
            store_.inject(fault);
            const Findings findings = probe();
            EXPECT_EQ(answer(findings, each.probe), ProbeAnswer::kFailed)
                << name_of(each.probe) << " after " << error.message << error.s3_code << error.errno_value;
            for (const Finding& found : findings.list) {
                EXPECT_NE(found.answer, ProbeAnswer::kNo) << name_of(found.probe) << ": " << found.seen;
            }
        }
    }
}

TEST_F(DoctorProbes, OneWriteThatIsLostIsNotALateListing) {
    for (const Error& error : errors_that_tell_nothing()) {
        store_.clear_faults();
        break_down(Operation::kPut, error, std::string(kPlace) + "names/apple");
        EXPECT_EQ(answer(probe(), Probe::kListAfterWrite), ProbeAnswer::kYes) << error.s3_code << error.errno_value;
    }
    store_.clear_faults();
    break_down(Operation::kPut, testing::store_error(EINVAL, "InvalidArgument", 400),
               std::string(kPlace) + "names/a!b");
    EXPECT_EQ(answer(probe(), Probe::kKeyNames), ProbeAnswer::kNo) << "the store refuses the name";
}

TEST_F(DoctorProbes, AnAnswerThatIsNotThatOfS3IsANo) {
    break_down(Operation::kUploadPartCopy, testing::store_error(EPROTO, "", 200));
    EXPECT_EQ(answer(probe(), Probe::kPartCopy), ProbeAnswer::kNo);
}

// With checksums: a store that takes none back is asked as one that does.
TEST_F(DoctorProbes, AChecksumIsRefusedOnlyByARefusal) {
    FakeStore plain_store;
    PatientStore plain(plain_store, patience_, litter_);
    const auto asked = [&](const Error& error) {
        store_.clear_faults();
        break_down(Operation::kPut, error, std::string(kPlace) + "wrong-checksum");
        break_down(Operation::kUploadPart, error, std::string(kPlace) + "ended");
        Findings findings;
        PatientStore store(store_, patience_, litter_);
        probe_store(store, &plain, request_, findings);
        return findings;
    };
    for (const Probe probe : {Probe::kChecksumOfPut, Probe::kChecksumOfPart}) {
        for (const Error& error : errors_that_tell_nothing()) {
            EXPECT_EQ(answer(asked(error), probe), ProbeAnswer::kFailed) << error.s3_code << error.errno_value;
        }
        EXPECT_EQ(answer(asked(testing::store_error(EIO, "BadDigest", 400)), probe), ProbeAnswer::kYes);
    }
}

// An upload whose id never came is found by listing only.
TEST_F(DoctorProbes, AnUploadThatMayBeOpenIsNamed) {
    Error lost = testing::store_error(EIO, "InternalError", 500);
    lost.outcome_unknown = true;
    for (const Error& error : {testing::store_error(ETIMEDOUT, "", 0), testing::store_error(ECANCELED, "", 0), lost}) {
        for (const bool listed : {true, false}) {
            store_.clear_faults();
            Fault fault;
            fault.operation = Operation::kCreateUpload;
            fault.error = error;
            fault.after_effect = true;
            store_.inject(fault);
            static_cast<void>(probe());
            EXPECT_EQ(store_.open_uploads(), 1);
            if (!listed) {
                refuse(Operation::kListUploads);
            }
            const Findings cleaned = clean();
            EXPECT_EQ(answer(cleaned, Probe::kCleanup), listed ? ProbeAnswer::kYes : ProbeAnswer::kNo);
            EXPECT_EQ(store_.open_uploads(), listed ? 0 : 1);
            if (!listed) {
                const std::string& seen = cleaned.find(Probe::kCleanup)->seen;
                EXPECT_NE(seen.find(std::string(kPlace) + "ended"), std::string::npos) << seen;
                EXPECT_NE(seen.find("lifecycle"), std::string::npos) << "what to do: " << seen;
                store_.clear_faults();
                static_cast<void>(clean());
            }
        }
    }
}

TEST_F(DoctorProbes, AnUploadThatWasRefusedIsNotOpen) {
    refuse(Operation::kCreateUpload);
    refuse(Operation::kListUploads);
    static_cast<void>(probe());
    EXPECT_TRUE(clean().is(Probe::kCleanup, ProbeAnswer::kYes));
}

// Whether an open one is listed was asked, and it was not.
TEST_F(DoctorProbes, AListOfUploadsThatLacksOneProvesNothing) {
    litter_.unanswered(std::string(kPlace) + "ended");
    Findings findings;
    findings.add(Probe::kListUploads, ProbeAnswer::kNo, "one that is open is not listed");
    PatientStore cleaning(store_, patience_, litter_);
    clean_up(cleaning, litter_, kPlace, findings);
    EXPECT_EQ(answer(findings, Probe::kCleanup), ProbeAnswer::kNo);
}

TEST_F(DoctorProbes, EqualPartsAreFoundOut) {
    store_.require_equal_parts();
    const Findings findings = probe();
    EXPECT_EQ(answer(findings, Probe::kUnequalParts), ProbeAnswer::kNo);
    EXPECT_EQ(answer(findings, Probe::kPartOrder), ProbeAnswer::kYes);
    EXPECT_EQ(answer(findings, Probe::kPartCopy), ProbeAnswer::kYes);
}

TEST_F(DoctorProbes, WhatIsNotImplementedIsANo) {
    const struct {
        Operation operation;
        Probe probe;
    } cases[] = {{Operation::kCopy, Probe::kCopy},
                 {Operation::kUploadPartCopy, Probe::kPartCopy},
                 {Operation::kRemoveMany, Probe::kDeleteBatch}};
    for (const auto& each : cases) {
        store_.clear_faults();
        refuse(each.operation, "NotImplemented", EOPNOTSUPP);
        EXPECT_EQ(answer(probe(), each.probe), ProbeAnswer::kNo) << name_of(each.probe);
    }
}

TEST_F(DoctorProbes, TheFirstRequestTellsWhatIsInTheWay) {
    const struct {
        const char* code;
        Probe probe;
    } cases[] = {{"InvalidAccessKeyId", Probe::kCredentials},
                 {"SignatureDoesNotMatch", Probe::kCredentials},
                 {"ExpiredToken", Probe::kCredentials},
                 {"PermanentRedirect", Probe::kRegion},
                 {"NoSuchBucket", Probe::kBucket},
                 {"AuthorizationHeaderMalformed", Probe::kRegion}};
    for (const auto& each : cases) {
        store_.clear_faults();
        refuse(Operation::kList, each.code, EIO);
        const Findings findings = probe();
        EXPECT_EQ(answer(findings, each.probe), ProbeAnswer::kNo) << each.code;
        EXPECT_EQ(answer(findings, Probe::kPut), ProbeAnswer::kNotAsked) << each.code;
        EXPECT_EQ(findings.find(Probe::kPut)->because, each.probe) << each.code;
        EXPECT_EQ(store_.calls(Operation::kPut), 0) << each.code;
    }
}

TEST_F(DoctorProbes, AClockThatIsRefusedIsNoMissingRight) {
    break_down(Operation::kList, testing::store_error(EACCES, "RequestTimeTooSkewed", 403));
    const Findings findings = probe();
    EXPECT_EQ(answer(findings, Probe::kCredentials), ProbeAnswer::kFailed);
    EXPECT_EQ(answer(findings, Probe::kList), ProbeAnswer::kNotAsked);
    EXPECT_EQ(findings.find(Probe::kList)->because, Probe::kCredentials);
}

TEST_F(DoctorProbes, AStoreThatDoesNotAnswerIsNotWaitedForForever) {
    patience_.longest = Milliseconds(100);
    store_.hold(Operation::kCopy);
    const Findings findings = probe();
    EXPECT_EQ(answer(findings, Probe::kCopy), ProbeAnswer::kFailed);
    EXPECT_EQ(answer(findings, Probe::kMultipart), ProbeAnswer::kYes) << "the others are asked";
    store_.release(Operation::kCopy);
    static_cast<void>(clean());
    EXPECT_TRUE(store_.keys().empty());
}

TEST_F(DoctorProbes, AnInterruptEndsThemAndNothingIsLeft) {
    store_.hold(Operation::kCopy);
    patience_.interrupted = [this] { return store_.calls(Operation::kCopy) > 0; };
    const Findings findings = probe();
    EXPECT_EQ(answer(findings, Probe::kPut), ProbeAnswer::kYes);
    EXPECT_EQ(answer(findings, Probe::kMultipart), ProbeAnswer::kNotAsked);
    EXPECT_EQ(findings.find(Probe::kMultipart)->seen, "interrupted");
    store_.release(Operation::kCopy);
    patience_.interrupted = [] { return false; };
    EXPECT_TRUE(clean().is(Probe::kCleanup, ProbeAnswer::kYes));
    EXPECT_TRUE(store_.keys().empty());
}

}  // namespace
}  // namespace ckptfs::doctor
