// SPDX-License-Identifier: Apache-2.0
#include "config/scale.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

TEST(Scaled, GrowsWithTheProcessors) {
    EXPECT_EQ(scaled({}, 1).mount.fuse_threads, 2);
    EXPECT_EQ(scaled({}, 1).store.http_threads, 1);
    EXPECT_EQ(scaled({}, 4).mount.fuse_threads, 4);
    EXPECT_EQ(scaled({}, 4).store.http_threads, 2);
    EXPECT_EQ(scaled({}, 192).mount.fuse_threads, 8);
    EXPECT_EQ(scaled({}, 192).store.http_threads, 8);
    EXPECT_EQ(scaled({}, 2).store.max_connections, 64);
    EXPECT_EQ(scaled({}, 8).store.max_connections, 96);
    EXPECT_EQ(scaled({}, 192).store.max_connections, 192);
}

TEST(Scaled, KeepsWhatTheUserSays) {
    Config config;
    config.mount.fuse_threads = 1;
    config.store.http_threads = 20;
    EXPECT_EQ(scaled(config, 4).mount.fuse_threads, 1);
    EXPECT_EQ(scaled(config, 4).store.http_threads, 20);
}

TEST(Scaled, LeavesConnectionsToOthers) {
    Config config;
    config.store.max_connections = 64;
    EXPECT_EQ(scaled(config, 192).store.max_connections, 64);
    EXPECT_EQ(scaled(config, 2).write.max_parts_in_flight, 48);
    EXPECT_EQ(scaled(config, 2).read.max_requests_ahead, 48);
    config.store.max_connections = 1;
    EXPECT_EQ(scaled(config, 2).write.max_parts_in_flight, 1);
}

}  // namespace
}  // namespace ckptfs
