// SPDX-License-Identifier: Apache-2.0
#include "s3sim/faults.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "s3sim/admin.h"
#include "s3sim/s3_request.h"

namespace ckptfs::s3sim {
namespace {

std::string struck(FaultTable& table, int requests, std::string_view operation = "UploadPart",
                   std::string_view key = "a/b", int part = 1) {
    std::string pattern;
    for (int i = 0; i < requests; ++i) {
        pattern.push_back(table.strike(operation, key, part) ? 'X' : '.');
    }
    return pattern;
}

std::string struck_by(std::string_view rules, int requests) {
    FaultTable table;
    auto read = read_fault_rules(rules);
    EXPECT_TRUE(read) << read.error().message;
    table.add(std::move(*read));
    return struck(table, requests);
}

TEST(Faults, StrikeAsTheRuleSays) {
    EXPECT_EQ(struck_by(R"([{"action":"500"}])", 4), "XXXX");
    EXPECT_EQ(struck_by(R"([{"action":"500","nth":3}])", 5), "..X..");
    EXPECT_EQ(struck_by(R"([{"action":"500","every":2}])", 5), ".X.X.");
    EXPECT_EQ(struck_by(R"([{"action":"500","times":2}])", 4), "XX..");
    EXPECT_EQ(struck_by(R"([{"action":"500","after":1,"times":1}])", 4), ".X..");
}

TEST(Faults, StrikeOnlyWhatMatches) {
    FaultTable table;
    table.add(*read_fault_rules(R"({"op":"Upload*","key":"a/*","part":2,"action":"reset"})"));
    EXPECT_EQ(struck(table, 1, "UploadPartCopy", "a/x", 2), "X");
    EXPECT_EQ(struck(table, 1, "GetObject", "a/x", 2), ".");
    EXPECT_EQ(struck(table, 1, "UploadPart", "b/x", 2), ".");
    EXPECT_EQ(struck(table, 1, "UploadPart", "a/x", 3), ".");
    table.clear();
    EXPECT_EQ(struck(table, 1, "UploadPart", "a/x", 2), ".");
}

TEST(Faults, TheFirstRuleThatStrikesDecides) {
    FaultTable table;
    table.add(*read_fault_rules(R"([{"action":"500","nth":1},{"action":"reset"}])"));
    EXPECT_EQ(table.strike("GetObject", "k", 0)->name, "500");
    EXPECT_EQ(table.strike("GetObject", "k", 0)->name, "reset");
}

TEST(Faults, DetailsAreRead) {
    const auto rules =
        read_fault_rules(R"([{"action":"error","code":"Odd","status":418,"message":"m","bytes":7,"ms":5,"mbps":2}])");
    ASSERT_TRUE(rules);
    const Fault& fault = rules->front().fault;
    EXPECT_EQ(fault.error.code, "Odd");
    EXPECT_EQ(fault.error.status, 418);
    EXPECT_EQ(fault.error.message, "m");
    EXPECT_EQ(fault.bytes, 7U);
    EXPECT_EQ(fault.time, std::chrono::milliseconds(5));
    EXPECT_EQ(fault.bytes_per_second, 2e6);
}

TEST(Faults, MistakesInRulesAreErrors) {
    for (const char* wrong : {"nonsense", R"([{"action":"explode"}])", R"([{"op":"GetObject"}])",
                              R"([{"action":"500","nht":1}])", R"([{"action":500}])", "[1]"}) {
        EXPECT_FALSE(read_fault_rules(wrong)) << wrong;
    }
}

TEST(Glob, StarsAndQuestionMarks) {
    EXPECT_TRUE(glob_matches("*", ""));
    EXPECT_TRUE(glob_matches("a*c", "abbc"));
    EXPECT_TRUE(glob_matches("a*b*c", "axbxbc"));
    EXPECT_TRUE(glob_matches("a?c", "abc"));
    EXPECT_FALSE(glob_matches("a?c", "ac"));
    EXPECT_FALSE(glob_matches("a*c", "abcd"));
    EXPECT_FALSE(glob_matches("", "a"));
}

TEST(Faults, AreAllInTheReadme) {
    std::ifstream file(CKPTFS_SOURCE_DIR "/tests/s3sim/README.md");
    const std::string readme{std::istreambuf_iterator<char>(file), {}};
    for (const std::string_view name : fault_names()) {
        EXPECT_NE(readme.find("`" + std::string(name) + "`"), std::string::npos) << name;
    }
    for (auto each = 0; each <= static_cast<int>(Operation::kNotImplemented); ++each) {
        const std::string_view name = operation_name(static_cast<Operation>(each));
        EXPECT_NE(readme.find(name), std::string::npos) << name;
    }
    // Every member that is documented is taken.
    EXPECT_TRUE(read_fault_rules(
        R"({"op":"*","key":"*","part":1,"after":1,"every":2,"times":3,"action":"slow","ms":1,"mbps":1})"));
    EXPECT_TRUE(read_fault_rules(R"({"nth":1,"action":"error","code":"X","status":418,"message":"m","bytes":1})"));
}

}  // namespace
}  // namespace ckptfs::s3sim
