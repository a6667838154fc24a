// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/directory_marker.h"

#include <gtest/gtest.h>

#include <random>

namespace ckptfs::fs {
namespace {

DirectoryMarker marker(MarkerState state = MarkerState::kPending) {
    DirectoryMarker marker;
    marker.state = state;
    marker.replaces_empty_directory = true;
    marker.source_was_implied = true;
    marker.prefix = "jobs/";
    marker.source = "jobs/step.tmp/";
    marker.destination = "jobs/deep/step/";
    marker.rename_id = "0123abcd-0000-4000-8000-0123456789ab";
    marker.writer_id = "9999abcd-0000-4000-8000-0123456789ab";
    marker.written = WallTime(Milliseconds(1'700'000'000'123));
    return marker;
}

bool equal(const DirectoryMarker& one, const DirectoryMarker& other) {
    return one.state == other.state && one.replaces_empty_directory == other.replaces_empty_directory &&
           one.source_was_implied == other.source_was_implied && one.prefix == other.prefix &&
           one.source == other.source && one.destination == other.destination && one.rename_id == other.rename_id &&
           one.writer_id == other.writer_id && one.written == other.written;
}

TEST(DirectoryMarkerTest, IsReadAsItWasWritten) {
    for (const MarkerState state : {MarkerState::kPending, MarkerState::kMoved, MarkerState::kCopying,
                                    MarkerState::kCommitted, MarkerState::kRollingBack}) {
        const std::string bytes = encode_marker(marker(state));
        EXPECT_TRUE(may_hide_directory(bytes.size()));
        const auto read = parse_marker(bytes);
        ASSERT_TRUE(read);
        EXPECT_TRUE(equal(*read, marker(state)));
    }
    DirectoryMarker longest = marker();
    longest.prefix = "";
    longest.source = std::string(1023, 'a') + "/";
    longest.destination = std::string(1023, 'b') + "/";
    ASSERT_TRUE(parse_marker(encode_marker(longest)));
    EXPECT_TRUE(equal(*parse_marker(encode_marker(longest)), longest));
}

// As ckptfs-format(5) gives them.
TEST(DirectoryMarkerTest, HasTheBytesOfTheManual) {
    const std::string bytes = encode_marker(marker(MarkerState::kMoved));
    EXPECT_EQ(bytes.size(), 3211U);
    EXPECT_EQ(bytes.substr(0, 16), std::string("CKPTREN1\2\3\5\0\16\0\17\0", 16));
    EXPECT_EQ(bytes.substr(16, 8), std::string("\x7b\x68\xe5\xcf\x8b\x01\0\0", 8));
    EXPECT_EQ(bytes.substr(24, 36), marker().rename_id);
    EXPECT_EQ(bytes.substr(60, 36), marker().writer_id);
    EXPECT_EQ(bytes.substr(96, 29), "jobs/step.tmp/jobs/deep/step/");
    EXPECT_EQ(bytes.find_first_not_of('\0', 125), std::string::npos);
}

TEST(DirectoryMarkerTest, TellsWhenItsDirectoryWasMade) {
    const WallTime made(Milliseconds(1'700'000'000'123));
    ObjectInfo object;
    object.last_modified = made + std::chrono::hours(1);
    EXPECT_EQ(directory_made(object), object.last_modified);
    object.metadata[kMadeMetadata] = made_text(made);
    EXPECT_EQ(object.metadata[kMadeMetadata], "1700000000123");
    EXPECT_EQ(directory_made(object), made);
    object.metadata[kMadeMetadata] = made_text(WallTime{});
    EXPECT_EQ(directory_made(object), WallTime{});
    for (const char* text : {"", "-1", "1700000000123 ", "99999999999999", "999999999999999999999999", "never"}) {
        object.metadata[kMadeMetadata] = text;
        EXPECT_EQ(directory_made(object), object.last_modified) << text;
    }
}

TEST(DirectoryMarkerTest, BelongsAtOneKey) {
    EXPECT_TRUE(marks(marker(MarkerState::kPending), "jobs/deep/step/"));
    EXPECT_TRUE(marks(marker(MarkerState::kMoved), "jobs/step.tmp/"));
    EXPECT_FALSE(marks(marker(MarkerState::kPending), "jobs/step.tmp/"));
    EXPECT_FALSE(marks(marker(MarkerState::kMoved), "jobs/deep/step/"));
    EXPECT_FALSE(marks(marker(MarkerState::kCommitted), "jobs/step.tmp/"));
}

TEST(DirectoryMarkerTest, KeysThatNoRenameHasAreRefused) {
    const auto refused = [](auto change) {
        DirectoryMarker changed = marker();
        change(changed);
        return !parse_marker(encode_marker(changed));
    };
    EXPECT_TRUE(refused([](auto& m) { m.source = "jobs/step.tmp"; }));
    EXPECT_TRUE(refused([](auto& m) { m.source = "other/step/"; })) << "outside the prefix";
    EXPECT_TRUE(refused([](auto& m) { m.destination = "jobs/"; })) << "the top of the mount";
    EXPECT_TRUE(refused([](auto& m) { m.destination = "jobs/.ckptfs/x/"; }));
    EXPECT_TRUE(refused([](auto& m) { m.destination = "jobs//"; }));
    EXPECT_TRUE(refused([](auto& m) { m.destination = m.source; }));
    EXPECT_TRUE(refused([](auto& m) { m.destination = m.source + "below/"; }));
    EXPECT_TRUE(refused([](auto& m) { m.prefix = "jobs"; }));
    EXPECT_TRUE(refused([](auto& m) { m.rename_id = "../../../../../../../../../../../etc/p"; }));
    EXPECT_TRUE(refused([](auto& m) { m.state = static_cast<MarkerState>(6); }));
    EXPECT_TRUE(refused([](auto& m) { m.state = static_cast<MarkerState>(0); }));
}

// Whatever is parsed is what a rename could have written.
TEST(DirectoryMarkerTest, AnyBytesAreReadOrRefused) {
    std::mt19937 random(1);
    const std::string good = encode_marker(marker());
    int accepted = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string bytes = good;
        for (unsigned changes = random() % 4; changes > 0; --changes) {
            bytes[random() % 130] = static_cast<char>(random());
        }
        if (random() % 8 == 0) {
            bytes.resize(random() % (2 * bytes.size()));
        }
        if (const auto read = parse_marker(bytes)) {
            ++accepted;
            EXPECT_TRUE(read->source.starts_with(read->prefix));
            EXPECT_TRUE(read->destination.starts_with(read->prefix));
            EXPECT_TRUE(equal(*parse_marker(encode_marker(*read)), *read));
            EXPECT_TRUE(recorded_paths(read->prefix, record_key(*read)));
        }
    }
    EXPECT_GT(accepted, 1000);
}

TEST(DirectoryMarkerTest, RecordsTellTheirPaths) {
    const std::string key = record_key(marker());
    EXPECT_EQ(key.substr(0, 21), "jobs/.ckptfs/renames/");
    const auto paths = recorded_paths("jobs/", key);
    ASSERT_TRUE(paths);
    EXPECT_EQ(paths->source, path_hash("jobs/step.tmp/"));
    EXPECT_EQ(paths->destination, path_hash("jobs/deep/step/"));
    EXPECT_FALSE(recorded_paths("jobs/", key + "0"));
    EXPECT_FALSE(recorded_paths("jobs/", key.substr(0, key.size() - 1) + "g"));
    EXPECT_FALSE(recorded_paths("jobs/", "jobs/.ckptfs/renames/short"));
    EXPECT_FALSE(recorded_paths("", key));
}

TEST(DirectoryMarkerTest, NamesAreReadAsTheyWereWritten) {
    const std::vector<MovedName> names{{"a", "\"1\""}, {"deep/b\n", ""}, {std::string(1000, 'x'), "\"2-3\""}};
    EXPECT_EQ(parse_names(encode_names(names)), names);
    EXPECT_EQ(parse_names(encode_names({})), std::vector<MovedName>{});
    const std::string bytes = encode_names(names);
    EXPECT_EQ(bytes.substr(0, 11), std::string("CKPTNAM2\1\0a", 11));
    std::mt19937 random(2);
    for (int round = 0; round < 20'000; ++round) {
        std::string changed = bytes;
        changed[random() % 24] = static_cast<char>(random());
        changed.resize(random() % (bytes.size() + 1));
        if (const auto read = parse_names(changed)) {
            EXPECT_EQ(encode_names(*read), changed);
        }
    }
}

}  // namespace
}  // namespace ckptfs::fs
