// SPDX-License-Identifier: Apache-2.0
#include "config/options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace ckptfs {
namespace {

TEST(OptionTable, HasEveryNameOnceAndSaysWhatItDoes) {
    std::set<std::string_view> names;
    for (const OptionSpec& option : option_table()) {
        EXPECT_TRUE(names.insert(option.name).second) << option.name;
        EXPECT_FALSE(option.help.empty()) << option.name;
        EXPECT_FALSE(option.help.ends_with('.')) << option.name;
    }
}

TEST(OptionTable, DefaultsAreThoseOfTheConfiguration) {
    const Config config;
    for (const char* name :
         {"drain-timeout", "retry-for", "stall-timeout", "file-mode", "dir-mode", "metadata-ttl", "rename-repair-after",
          "staging-dir", "commit-marker", "failed-sibling-ttl", "publish-interval", "checksum", "log-level", "compress",
          "direct-io", "addressing-style", "ack"}) {
        Config changed = config;
        const OptionSpec* option = find_option(name);
        ASSERT_NE(option, nullptr) << name;
        ASSERT_TRUE(option->apply(changed, option->default_text)) << name;
        EXPECT_EQ(changed.mount.drain_timeout, config.mount.drain_timeout) << name;
        EXPECT_EQ(changed.store.retry_for, config.store.retry_for) << name;
        EXPECT_EQ(changed.store.stall_timeout, config.store.stall_timeout) << name;
        EXPECT_EQ(changed.store.max_connections, config.store.max_connections) << name;
        EXPECT_EQ(changed.names.file_mode, config.names.file_mode) << name;
        EXPECT_EQ(changed.names.dir_mode, config.names.dir_mode) << name;
        EXPECT_EQ(changed.names.metadata_ttl, config.names.metadata_ttl) << name;
        EXPECT_EQ(changed.names.rename_repair_after, config.names.rename_repair_after) << name;
        EXPECT_EQ(changed.write.staging_dir, config.write.staging_dir) << name;
        EXPECT_EQ(changed.write.commit_markers, config.write.commit_markers) << name;
        EXPECT_EQ(changed.write.publish_interval, config.write.publish_interval) << name;
        EXPECT_EQ(changed.write.failed_sibling_ttl, config.write.failed_sibling_ttl) << name;
        EXPECT_EQ(changed.store.checksum, config.store.checksum) << name;
        EXPECT_EQ(changed.mount.log_level, config.mount.log_level) << name;
        EXPECT_EQ(changed.codec.compress, config.codec.compress) << name;
        EXPECT_EQ(changed.read.direct_io, config.read.direct_io) << name;
        EXPECT_EQ(changed.disk.acknowledges, config.disk.acknowledges) << name;
        EXPECT_EQ(changed.store.addressing, config.store.addressing) << name;
    }
}

// `build/release/ckptfs_manual_options` prints what the section must be.
TEST(OptionTable, IsTheManualsOptionsSection) {
    std::ifstream file(CKPTFS_SOURCE_DIR "/man/ckptfs.1.scd");
    std::stringstream text;
    text << file.rdbuf();
    const std::string manual = text.str();
    const std::string begin = "# OPTIONS\n\n";
    const std::size_t start = manual.find(begin);
    ASSERT_NE(start, std::string::npos);
    const std::size_t from = manual.find("## ", start);
    const std::size_t to = manual.find("\n# ", start);
    ASSERT_NE(to, std::string::npos);
    EXPECT_EQ(manual.substr(from, to + 1 - from), manual_options());
}

TEST(OptionTable, AVariableThatIsNearlyOneIsNamed) {
    const auto lines =
        misspelt_variables({"CKPTFS_MAX_MEMROY", "CKPTFS_MAX_MEMORY", "CKPTFS_BUILD", "HOME", "MAX_MEMROY"});
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0], "CKPTFS_MAX_MEMROY is set, but there is no such option; did you mean CKPTFS_MAX_MEMORY?");
}

}  // namespace
}  // namespace ckptfs
