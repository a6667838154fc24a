// SPDX-License-Identifier: Apache-2.0
#include "credentials/program_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "credentials/simple_sources.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr seconds kLong{60};

TEST(SplitWords, AsAShellDoes) {
    EXPECT_THAT(*split_words("program --flag  value\n"), ElementsAre("program", "--flag", "value"));
    EXPECT_THAT(*split_words(R"("/opt/my tools/get" 'a "b"' c\ d "e\"f\\" '' x"y"z)"),
                ElementsAre("/opt/my tools/get", "a \"b\"", "c d", "e\"f\\", "", "xyz"));
}

TEST(SplitWords, NothingIsExpanded) {
    EXPECT_THAT(*split_words("run $HOME ~ `id` *;ls \"$(id)\" \"\\n\""),
                ElementsAre("run", "$HOME", "~", "`id`", "*;ls", "$(id)", "\\n"));
}

TEST(SplitWords, WhatIsNoCommand) {
    EXPECT_FALSE(split_words("").has_value());
    EXPECT_FALSE(split_words("  ").has_value());
    EXPECT_FALSE(split_words("program 'unended").has_value());
}

TEST(ProgramOutput, TakesWhatItPrints) {
    const auto output = program_output({"sh", "-c", "cat; printf 'a\\nb'; echo noise >&2"}, kLong, {});
    ASSERT_TRUE(output.has_value()) << output.error().message;
    EXPECT_EQ(*output, "a\nb");
}

TEST(ProgramOutput, OfAProgramWhoseEndIsNotKept) {
    const auto before = std::signal(SIGCHLD, SIG_IGN);
    const auto began = std::chrono::steady_clock::now();
    const auto output = program_output({"sh", "-c", "echo keys"}, kLong, {});
    const auto took = std::chrono::steady_clock::now() - began;
    std::signal(SIGCHLD, before);
    ASSERT_TRUE(output.has_value()) << output.error().message;
    EXPECT_EQ(*output, "keys\n");
    EXPECT_LT(took, seconds(30));
}

TEST(ProgramOutput, ManyBytes) {
    const auto output = program_output({"head", "-c", "500000", "/dev/zero"}, kLong, {});
    ASSERT_TRUE(output.has_value()) << output.error().message;
    EXPECT_EQ(output->size(), 500'000U);
    EXPECT_FALSE(program_output({"cat", "/dev/zero"}, kLong, {}).has_value());
}

TEST(ProgramOutput, AFailureHoldsWhatItSaid) {
    const auto output = program_output({"sh", "-c", "echo log in first >&2; exit 3"}, kLong, {});
    ASSERT_FALSE(output.has_value());
    EXPECT_EQ(output.error().message, "sh exited with 3: log in first");
    EXPECT_THAT(program_output({"sh", "-c", "kill -9 $$"}, kLong, {}).error().message, HasSubstr("signal 9"));
    EXPECT_THAT(program_output({"/no/such/program"}, kLong, {}).error().message, HasSubstr("cannot be started"));
}

TEST(ProgramOutput, EndsWithItsChildrenAtTheLimit) {
    const auto began = std::chrono::steady_clock::now();
    const auto output = program_output({"sh", "-c", "echo waiting >&2; sleep 100 & sleep 100"}, seconds(3), {});
    ASSERT_FALSE(output.has_value());
    EXPECT_THAT(output.error().message, HasSubstr("took too long: waiting"));
    EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(30));
}

TEST(ProgramOutput, AChildThatLivesOnIsNotWaitedFor) {
    const auto began = std::chrono::steady_clock::now();
    const auto output = program_output({"sh", "-c", "sleep 1000 & echo done"}, kLong, {});
    ASSERT_TRUE(output.has_value()) << output.error().message;
    EXPECT_EQ(*output, "done\n");
    EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(30));
}

TEST(ProgramOutput, EndsSoonAfterAStop) {
    std::stop_source stop;
    stop.request_stop();
    EXPECT_THAT(program_output({"sleep", "100"}, kLong, stop.get_token()).error().message, HasSubstr("was stopped"));
}

TEST(ProgramOutput, InheritsNoDescriptors) {
    const int leak = dup(STDERR_FILENO);
    const auto output = program_output({"ls", "/proc/self/fd"}, kLong, {});
    close(leak);
    ASSERT_TRUE(output.has_value()) << output.error().message;
    // 3 is that of the listing itself.
    EXPECT_EQ(*output, "0\n1\n2\n3\n");
}

TEST(ProcessSource, TakesWhatTheProgramPrints) {
    ProcessSource source(
        R"(printf '{"Version": 1, "AccessKeyId": "%s", "SecretAccessKey": "secret"}' "from the program")");
    const auto found = source.fetch({});
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ((*found)->access_key_id, "from the program");
}

TEST(ProcessSource, FailuresSayWhose) {
    EXPECT_THAT(ProcessSource("sh -c 'echo no token >&2; exit 1'").fetch({}).error().message,
                HasSubstr("credential_process: sh exited with 1: no token"));
    EXPECT_THAT(ProcessSource("echo hidden").fetch({}).error().message, HasSubstr("not a JSON object"));
    EXPECT_THAT(ProcessSource("'").fetch({}).error().message, HasSubstr("quote"));
    EXPECT_THAT(ProcessSource("sleep 100", milliseconds(100)).fetch({}).error().message, HasSubstr("took too long"));
}

}  // namespace
}  // namespace ckptfs
