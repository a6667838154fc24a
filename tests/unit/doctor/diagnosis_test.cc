// SPDX-License-Identifier: Apache-2.0
#include "doctor/diagnosis.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <regex>
#include <set>

#include "config/options.h"
#include "doctor/diagnosis_json.h"
#include "doctor/probing.h"
#include "doctor/rules.h"

namespace ckptfs::doctor {
namespace {

std::vector<Probe> all_probes() {
    std::vector<Probe> probes;
    for (auto each = 0; each <= static_cast<int>(kLastProbe); ++each) {
        probes.push_back(static_cast<Probe>(each));
    }
    return probes;
}

// All is well.
Findings good() {
    Findings findings;
    findings.source = "s3://bucket/run/";
    findings.facts.url = "https://store.example/bucket";
    findings.facts.region = "us-east-1";
    for (const Probe probe : all_probes()) {
        findings.add(probe, ProbeAnswer::kYes);
    }
    return findings;
}

Findings but(Probe probe, ProbeAnswer answer, int errno_value = 0, std::string s3_code = {}) {
    Findings findings = good();
    for (Finding& each : findings.list) {
        if (each.probe == probe) {
            each.answer = answer;
            each.seen = "SEEN";
            each.errno_value = errno_value;
            each.s3_code = std::move(s3_code);
            each.http_status = errno_value == ETIMEDOUT || errno_value == ECANCELED ? 0 : 400;
        }
    }
    return findings;
}

DiagnosisLine line_of(const Findings& findings, Probe probe) {
    for (const DiagnosisLine& each : diagnose(findings).lines) {
        if (each.probe == probe) {
            return each;
        }
    }
    return {};
}

std::string options_of(const DiagnosisLine& line) {
    std::string text;
    for (const SuggestedOption& each : line.options) {
        text += (text.empty() ? "" : ", ") + each.text();
    }
    return text;
}

void expect_real_options(const std::string& text) {
    static const std::regex option("--([a-z][a-z0-9-]+)");
    for (std::sregex_iterator each(text.begin(), text.end(), option), end; each != end; ++each) {
        EXPECT_NE(find_option((*each)[1].str()), nullptr) << (*each)[0] << " in: " << text;
    }
}

TEST(DoctorFindings, EveryProbeHasANameOfItsOwn) {
    std::set<std::string_view> names;
    for (const Probe probe : all_probes()) {
        EXPECT_TRUE(names.insert(name_of(probe)).second) << name_of(probe);
    }
}

TEST(DoctorDiagnosis, AllIsWell) {
    const Diagnosis diagnosis = diagnose(good());
    EXPECT_TRUE(diagnosis.usable());
    EXPECT_EQ(exit_code(diagnosis), 0);
    EXPECT_TRUE(diagnosis.options().empty());
    EXPECT_NE(describe(diagnosis).find("\nckptfs can be used here\n"), std::string::npos);
    for (const DiagnosisLine& each : diagnosis.lines) {
        EXPECT_TRUE(each.severity == Severity::kGood || each.probe >= Probe::kLatency) << name_of(each.probe);
        EXPECT_TRUE(each.options.empty()) << name_of(each.probe);
    }
}

TEST(DoctorDiagnosis, NamesOnlyOptionsThatThereAre) {
    for (const Probe probe : all_probes()) {
        for (const ProbeAnswer answer : {ProbeAnswer::kYes, ProbeAnswer::kNo, ProbeAnswer::kFailed}) {
            for (const char* code : {"", "SignatureDoesNotMatch", "ExpiredToken", "AccessDenied"}) {
                const DiagnosisLine line = line_of(but(probe, answer, EPROTO, code), probe);
                expect_real_options(line.found + line.means);
                for (const SuggestedOption& option : line.options) {
                    ASSERT_NE(find_option(option.name), nullptr) << option.name;
                    Config config;
                    EXPECT_TRUE(option.value.empty() || find_option(option.name)->apply(config, option.value))
                        << option.text();
                }
            }
        }
    }
}

TEST(DoctorDiagnosis, SaysWhatIsWrongAndWhatItMeans) {
    for (const Probe probe : all_probes()) {
        const DiagnosisLine line = line_of(but(probe, ProbeAnswer::kNo, EIO, "Code"), probe);
        if (probe != Probe::kClock && probe < Probe::kLatency) {
            EXPECT_NE(line.severity, Severity::kGood) << name_of(probe);
            EXPECT_NE(line.found.find("SEEN"), std::string::npos) << name_of(probe);
        }
        if (probe != Probe::kFuse && probe < Probe::kLatency && probe != Probe::kClock) {
            EXPECT_FALSE(line.means.empty()) << name_of(probe);
        }
    }
}

struct Case {
    Probe probe;
    ProbeAnswer answer;
    int errno_value;
    const char* s3_code;
    Severity severity;
    const char* options;
    bool usable;
};

TEST(DoctorDiagnosis, SaysHowBadItIsAndWhichOptionHelps) {
    constexpr auto kYes = ProbeAnswer::kYes;
    constexpr auto kNo = ProbeAnswer::kNo;
    constexpr auto kFailed = ProbeAnswer::kFailed;
    const Case cases[] = {
        {Probe::kFuse, kNo, ENODEV, "", Severity::kProblem, "", false},
        {Probe::kStaging, kNo, ENOTDIR, "", Severity::kProblem, "--staging-dir DIR", false},
        {Probe::kOpenFiles, kNo, 0, "", Severity::kLimit, "--max-connections N", true},
        {Probe::kKilledWriters, kNo, 0, "", Severity::kLimit, "", true},
        {Probe::kEndpoint, kNo, ECONNREFUSED, "", Severity::kProblem, "--endpoint-url URL", false},
        {Probe::kEndpoint, kNo, EPROTO, "", Severity::kProblem, "--endpoint-url URL, --ca-bundle FILE", false},
        {Probe::kCredentials, kNo, EACCES, "", Severity::kProblem,
         "--profile NAME, --credentials-file FILE, --no-sign-request", false},
        {Probe::kCredentials, kNo, EACCES, "InvalidAccessKeyId", Severity::kProblem,
         "--profile NAME, --credentials-file FILE", false},
        {Probe::kRegion, kNo, EIO, "PermanentRedirect", Severity::kProblem, "--region NAME", false},
        {Probe::kBucket, kNo, EIO, "NoSuchBucket", Severity::kProblem, "--endpoint-url URL", false},
        {Probe::kBucket, kFailed, EIO, "", Severity::kProblem, "--endpoint-url URL, --addressing-style STYLE", false},
        {Probe::kBucket, kFailed, EIO, "InternalError", Severity::kProblem, "", false},
        {Probe::kBucket, kFailed, ETIMEDOUT, "", Severity::kProblem, "", false},
        {Probe::kBucket, kFailed, ECANCELED, "", Severity::kUnknown, "", true},
        {Probe::kEndpoint, kNo, ECANCELED, "", Severity::kUnknown, "", true},
        {Probe::kRanges, kFailed, ECANCELED, "", Severity::kUnknown, "", true},
        {Probe::kRanges, kFailed, EIO, "InternalError", Severity::kProblem, "", false},
        {Probe::kCopy, kFailed, ETIMEDOUT, "", Severity::kProblem, "", false},
        {Probe::kPartCopy, kFailed, EACCES, "AccessDenied", Severity::kUnknown, "", true},
        {Probe::kSlowDown, kNo, 0, "", Severity::kNote, "--max-connections N", true},
        {Probe::kList, kNo, EACCES, "AccessDenied", Severity::kProblem, "", false},
        {Probe::kPut, kNo, EACCES, "AccessDenied", Severity::kProblem, "--read-only", false},
        {Probe::kPut, kFailed, EIO, "InternalError", Severity::kProblem, "", false},
        {Probe::kAbort, kNo, EACCES, "AccessDenied", Severity::kProblem, "", false},
        {Probe::kListUploads, kNo, EACCES, "AccessDenied", Severity::kLimit, "", true},
        {Probe::kListParts, kNo, EACCES, "AccessDenied", Severity::kLimit, "", true},
        {Probe::kChecksumHeaders, kNo, EINVAL, "InvalidRequest", Severity::kSet, "--checksum none", true},
        {Probe::kChecksumOfPut, kNo, 0, "", Severity::kNote, "", true},
        {Probe::kMetadata, kNo, 0, "", Severity::kSet, "--compress none", true},
        {Probe::kUnequalParts, kNo, EIO, "InvalidPart", Severity::kSet, "--equal-parts", true},
        {Probe::kParts, kNo, EINVAL, "EntityTooSmall", Severity::kProblem, "--part-size SIZE", false},
        {Probe::kParts, kNo, EIO, "InvalidPart", Severity::kProblem, "", false},
        {Probe::kParts, kFailed, ETIMEDOUT, "", Severity::kUnknown, "", true},
        {Probe::kUnequalParts, kFailed, ETIMEDOUT, "", Severity::kUnknown, "", true},
        {Probe::kIfNoneMatch, kNo, 0, "", Severity::kLimit, "", true},
        {Probe::kIfMatch, kFailed, EIO, "InternalError", Severity::kUnknown, "", true},
        {Probe::kPartCopy, kNo, EIO, "NotImplemented", Severity::kLimit, "", true},
        {Probe::kPartCopy, kNo, EPROTO, "", Severity::kProblem, "", false},
        {Probe::kPartAgain, kNo, EIO, "NotImplemented", Severity::kLimit, "--stage GLOB,…", true},
        {Probe::kListOrder, kNo, 0, "", Severity::kNote, "", true},
        {Probe::kListOrder, kYes, 0, "", Severity::kGood, "", true},
        {Probe::kCleanup, kNo, 0, "", Severity::kLimit, "", true},
    };
    for (const Case& each : cases) {
        const Findings findings = but(each.probe, each.answer, each.errno_value, each.s3_code);
        const DiagnosisLine line = line_of(findings, each.probe);
        EXPECT_EQ(line.severity, each.severity) << name_of(each.probe);
        EXPECT_EQ(options_of(line), each.options) << name_of(each.probe);
        EXPECT_EQ(diagnose(findings).usable(), each.usable) << name_of(each.probe);
        EXPECT_EQ(exit_code(diagnose(findings)), each.usable ? 0 : 1) << name_of(each.probe);
    }
}

TEST(DoctorDiagnosis, WhatCouldNotBeFoundOutIsNoVerdict) {
    for (const Probe probe : all_probes()) {
        const DiagnosisLine line = line_of(but(probe, ProbeAnswer::kFailed, EIO, "InternalError"), probe);
        EXPECT_TRUE(probe < Probe::kList || line.means.empty() || line.means.starts_with("without it: "))
            << name_of(probe) << ": " << line.means;
    }
}

TEST(DoctorDiagnosis, WhatIsLeftIsTrueAlsoWithVersions) {
    EXPECT_NE(line_of(good(), Probe::kCleanup).found.find("versions"), std::string::npos);
}

TEST(DoctorDiagnosis, CollectsTheOptionsThatCanBeTyped) {
    Findings findings = but(Probe::kUnequalParts, ProbeAnswer::kNo);
    for (Finding& each : findings.list) {
        if (each.probe == Probe::kChecksumHeaders || each.probe == Probe::kPartAgain) {
            each.answer = ProbeAnswer::kNo;
        }
    }
    const Diagnosis diagnosis = diagnose(findings);
    EXPECT_NE(describe(diagnosis).find("\nckptfs can be used here with --checksum none --equal-parts\n"),
              std::string::npos)
        << describe(diagnosis);
}

TEST(DoctorDiagnosis, TheRegionOfTheBucketIsTheOptionsValue) {
    Findings findings = but(Probe::kRegion, ProbeAnswer::kNo, EIO, "AuthorizationHeaderMalformed");
    findings.facts.bucket_region = "eu-west-1";
    const DiagnosisLine line = line_of(findings, Probe::kRegion);
    EXPECT_EQ(line.found, "the bucket is in eu-west-1, and requests are signed for us-east-1");
    EXPECT_EQ(options_of(line), "--region eu-west-1");
    findings = good();
    findings.facts.bucket_region = "eu-west-1";
    EXPECT_EQ(line_of(findings, Probe::kRegion).severity, Severity::kNote) << "the store takes them nevertheless";
}

TEST(DoctorDiagnosis, AHostWithTheBucketsNameThatIsNotKnown) {
    Findings findings = but(Probe::kEndpoint, ProbeAnswer::kNo, EHOSTUNREACH);
    EXPECT_EQ(options_of(line_of(findings, Probe::kEndpoint)), "--endpoint-url URL");
    findings.facts.virtual_host = true;
    EXPECT_EQ(options_of(line_of(findings, Probe::kEndpoint)),
              "--endpoint-url URL, --region NAME, --addressing-style path");
}

TEST(DoctorDiagnosis, GivesTheSkewOfTheClockInSeconds) {
    const auto clock = [](double seconds) {
        Findings findings = good();
        findings.facts.clock_skew_seconds = seconds;
        return line_of(findings, Probe::kClock);
    };
    EXPECT_EQ(clock(1.4).severity, Severity::kGood);
    EXPECT_EQ(clock(-12).severity, Severity::kNote);
    EXPECT_EQ(clock(-12).found, "the store's clock is 12 s behind this machine's");
    EXPECT_EQ(clock(120).severity, Severity::kLimit);
    EXPECT_EQ(clock(120).found, "the store's clock is 120 s ahead of this machine's");
    EXPECT_EQ(clock(120).means.find("refuse"), std::string::npos);
    EXPECT_NE(clock(3600).means.find("refuse"), std::string::npos);
}

TEST(DoctorDiagnosis, WhatWasNotAskedSaysBecauseOfWhat) {
    Findings findings;
    findings.add(Probe::kCredentials, ProbeAnswer::kNo, "no credentials");
    findings.not_asked(Probe::kCopy, Probe::kCredentials);
    findings.add(Probe::kUpload, ProbeAnswer::kNotAsked, "--probe-mib");
    EXPECT_EQ(line_of(findings, Probe::kCopy).found, "not asked: because of credentials");
    EXPECT_EQ(line_of(findings, Probe::kCopy).severity, Severity::kUnknown);
    EXPECT_EQ(line_of(findings, Probe::kUpload).found, "not asked: --probe-mib");
}

TEST(DoctorDiagnosis, WhatWasNotAskedIsOneLineForAPerson) {
    Findings findings;
    findings.source = "s3://b/p/";
    findings.origin = "as /etc/fstab has it for /mnt";
    findings.add(Probe::kEndpoint, ProbeAnswer::kYes);
    findings.add(Probe::kParts, ProbeAnswer::kNo);
    findings.not_asked(Probe::kCopy, Probe::kParts);
    findings.not_asked(Probe::kPartCopy, Probe::kParts);
    findings.add(Probe::kUpload, ProbeAnswer::kNotAsked, "--probe-mib");
    const std::string text = describe(diagnose(findings));
    EXPECT_EQ(text.find("s3://b/p/\nas /etc/fstab has it for /mnt\n"), 0U) << text;
    EXPECT_NE(text.find("\n?     not asked                 because of parts: copy, part_copy; --probe-mib: upload\n\n"),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find("not asked:"), std::string::npos) << text;
}

TEST(DoctorDiagnosis, InterruptedIsNoGoodNews) {
    Findings findings = good();
    findings.interrupted = true;
    EXPECT_EQ(exit_code(diagnose(findings)), 1);
    EXPECT_NE(describe(diagnose(findings)).find("interrupted"), std::string::npos);
}

TEST(DoctorDiagnosis, WhatCameFromTheStoreDoesNotSteerTheTerminal) {
    Findings findings = good();
    findings.facts.server = "red\x1b[31m";
    findings.facts.bucket_region = "red\x1b[31m";
    for (Finding& each : findings.list) {
        each.seen = "red\x1b[31m";
        each.answer = ProbeAnswer::kNo;
    }
    EXPECT_EQ(describe(diagnose(findings)).find('\x1b'), std::string::npos);
    EXPECT_EQ(json_of(diagnose(findings)).find('\x1b'), std::string::npos);
}

TEST(DoctorDiagnosis, JsonHasEveryFinding) {
    const std::string json = json_of(diagnose(but(Probe::kUnequalParts, ProbeAnswer::kNo)));
    EXPECT_EQ(json.find('\n'), json.size() - 1);
    for (const Probe probe : all_probes()) {
        EXPECT_NE(json.find("\"name\":\"" + std::string(name_of(probe)) + "\""), std::string::npos);
    }
    EXPECT_NE(json.find("\"options\":[\"--equal-parts\"]"), std::string::npos);
    EXPECT_NE(json.find("\"clock_skew_seconds\":null"), std::string::npos) << "not measured";
}

TEST(DoctorRates, MoreConnectionsAreAdvisedWhereTheyWouldCarryMore) {
    constexpr double kMegabyte = 1e6;
    // 64 carry 64 times what one does, and no more are allowed.
    EXPECT_EQ(advised_connections({80 * kMegabyte, 5000 * kMegabyte, 64}, 64), 128);
    // The link is full.
    EXPECT_EQ(advised_connections({80 * kMegabyte, 1000 * kMegabyte, 64}, 64), std::nullopt);
    // More are allowed already.
    EXPECT_EQ(advised_connections({80 * kMegabyte, 1280 * kMegabyte, 16}, 64), std::nullopt);
    EXPECT_EQ(advised_connections({80 * kMegabyte, 80 * kMegabyte, 1}, 64), std::nullopt);
    EXPECT_EQ(advised_connections({80 * kMegabyte, 80e3 * kMegabyte, 1000}, 1000), 1024);
    EXPECT_EQ(advised_connections({80 * kMegabyte, 80e3 * kMegabyte, 1024}, 1024), std::nullopt);

    Findings findings = good();
    findings.facts.max_connections = 64;
    findings.facts.up = {80 * kMegabyte, 5000 * kMegabyte, 64};
    const DiagnosisLine line = line_of(findings, Probe::kUpload);
    EXPECT_EQ(line.found, "80 MB/s on one connection, 5000 MB/s on 64");
    EXPECT_EQ(options_of(line), "--max-connections 128");
    EXPECT_TRUE(diagnose(findings).options().empty()) << "it works without";
}

TEST(DoctorRates, AsManyConnectionsAreMeasuredAsBytesAndTimeAllow) {
    constexpr std::uint64_t kPiece = std::uint64_t{5} << 20;
    constexpr std::uint64_t kBytes = 200 * kPiece;
    EXPECT_EQ(connections_to_measure(100e6, kBytes, kPiece, 64), 64);
    EXPECT_EQ(connections_to_measure(100e6, 10 * kPiece, kPiece, 64), 10);
    // All share what one had: 20 s.
    EXPECT_EQ(connections_to_measure(1.1e6, kBytes, kPiece, 64), 4);
    EXPECT_EQ(connections_to_measure(1e3, kBytes, kPiece, 64), 1);
    EXPECT_EQ(connections_to_measure(0, kBytes, kPiece, 64), 1);
}

}  // namespace
}  // namespace ckptfs::doctor
