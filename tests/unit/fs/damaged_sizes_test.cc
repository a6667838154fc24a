// SPDX-License-Identifier: Apache-2.0
// The size of a compressed file where the end of its object, which tells it, comes damaged.
#include <fcntl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "file_system_fixture.h"
#include "support/hooked_store.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

constexpr std::uint64_t kSize = (std::uint64_t{20} << 20) + 7;
// From the end of the object: the number of frames, the size of the last one, and what shows that it is damaged.
constexpr std::uint64_t kCount = 9;
constexpr std::uint64_t kLastSize = 9 + 8;
constexpr std::uint64_t kMagic = 1;

class DamagedSizes : public FileSystemTest {
protected:
    DamagedSizes() {
        hooked.look_at_gets([this](GetRequest& request) {
            const auto flips = flips_of.find(++gets);
            if (flips != flips_of.end()) {
                flip_a_bit(request, std::min(request.range->length, store.info(request.key).size) - flips->second);
            }
        });
        fs = FileSystem::create({hooked,
                                 *blocking,
                                 clock,
                                 timer,
                                 processes,
                                 kernel_cache,
                                 *codec,
                                 write_environment,
                                 reads_hooked,
                                 NameConfig(),
                                 "p/",
                                 "here",
                                 {}});
    }
    ~DamagedSizes() override {
        // What it is at ends before its store.
        blocking.reset();
        fs.reset();
        executor.reset();
    }
    DamagedSizes(const DamagedSizes&) = delete;
    DamagedSizes& operator=(const DamagedSizes&) = delete;

    // Its frames hold nothing.
    void put_container(const std::string& key, std::optional<std::uint64_t> described, std::uint64_t size = kSize) {
        constexpr std::uint32_t kStored = 20;
        const auto encoder = make_codec({"auto", {}}).value()->encoder("file");
        const std::vector<FrameRecord> records(size / kFrameSize + 1, FrameRecord{kStored, 0, false});
        std::string content(records.size() * kStored, '\0');
        content += encoder->tail(records, size).to_string();
        store.put_object(key, content, encoder->metadata(described));
    }

    // By the number of the GetObject, from 1: how far from the end of its answer a bit flips.
    std::map<int, std::uint64_t> flips_of;
    int gets = 0;
    HookedStore hooked{store, [](int) { return Fate::kPasses; }};
    ReadEnvironment reads_hooked{hooked, *pool, *executor, clock, *codec, cache, ReadConfig{}};
};

TEST_F(DamagedSizes, AreAskedForUntilTwoAnswersAgree) {
    const std::vector<std::pair<std::map<int, std::uint64_t>, int>> cases = {
        {{}, 2},
        {{{1, kCount}}, 3},
        {{{1, kLastSize}}, 3},
        {{{2, kLastSize}}, 3},
        {{{1, kMagic}}, 3},
        {{{1, kCount}, {2, kLastSize}}, 4},
    };
    for (const auto& [flips, requests] : cases) {
        put_container("p/parts", std::nullopt);
        clock.advance(Milliseconds(60'000));
        gets = 0;
        flips_of = flips;
        EXPECT_EQ(lookup("parts")->attributes.size, kSize);
        EXPECT_EQ(gets, requests);
    }
}

TEST_F(DamagedSizes, AreNotGuessed) {
    put_container("p/parts", std::nullopt);
    flips_of = {{1, kCount}, {2, kLastSize}, {3, kMagic}, {4, kLastSize - 1}};
    EXPECT_EQ(lookup("parts")->attributes.size, store.info("p/parts").size);
    EXPECT_EQ(gets, 4);
    clock.advance(Milliseconds(60'000));
    EXPECT_EQ(lookup("parts")->attributes.size, kSize);
}

TEST_F(DamagedSizes, AreThoseOfTheDescriptionWhereItTells) {
    put_container("p/put", kSize);
    flips_of = {{1, kLastSize}};
    const HandleId root = *answer<HandleId>([&](auto reply) { fs->open_directory(kRootNode, reply); });
    const auto entries =
        answer<std::vector<DirectoryEntry>>([&](auto reply) { fs->read_directory(root, 2, 7, true, reply); });
    fs->release_directory(root);
    EXPECT_EQ(entries->back().entry.attributes.size, kSize);
    EXPECT_EQ(gets, 1);
}

TEST_F(DamagedSizes, OfAReaderAreReadAnew) {
    put_container("p/parts", std::nullopt);
    const NodeId node = lookup("parts")->node;
    gets = 0;
    flips_of = {{1, kLastSize}};
    const Result<OpenedFile> opened = open(node, O_RDONLY);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(gets, 2);
    EXPECT_EQ(lookup("parts")->node, node);
    EXPECT_EQ(getattr(node)->size, kSize);
}

// Of tables of this size one that is in memory is used again.
TEST_F(DamagedSizes, OfAReaderAreReadAnewInALargeTable) {
    constexpr std::uint64_t kLarge = (std::uint64_t{30'000} << 20) + 7;
    put_container("p/large", std::nullopt, kLarge);
    const NodeId node = lookup("large")->node;
    gets = 0;
    // The first request brings the end of the table.
    flips_of = {{2, kLastSize}};
    const Result<OpenedFile> opened = open(node, O_RDONLY);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(gets, 4);
    EXPECT_EQ(getattr(node)->size, kLarge);
}

// It would see the end of the file there.
TEST_F(DamagedSizes, OfAReaderStayWhereAListCannotAskForThem) {
    put_container("p/parts", std::nullopt);
    const NodeId node = lookup("parts")->node;
    ASSERT_TRUE(open(node, O_RDONLY));
    // More than are remembered.
    for (int other = 0; other <= 100'000; ++other) {
        const std::string name = "z" + std::to_string(other);
        store.put_object("p/" + name, "x");
        ASSERT_TRUE(lookup(name));
    }
    store.inject({Operation::kGet, "p/parts", store_error(EACCES, "AccessDenied", 403), 0, 100, false});
    const HandleId root = *answer<HandleId>([&](auto reply) { fs->open_directory(kRootNode, reply); });
    const auto entries =
        answer<std::vector<DirectoryEntry>>([&](auto reply) { fs->read_directory(root, 2, 7, true, reply); });
    fs->release_directory(root);
    ASSERT_TRUE(entries);
    EXPECT_EQ(entries->front().entry.attributes.size, kSize);
    EXPECT_EQ(getattr(node)->size, kSize);
}

// As a copy that has lost it, and then gets it back in its place: with the same ETag.
TEST_F(DamagedSizes, NoPageIsKeptOfAFileThatWasDescribedInAnotherWay) {
    store.make_etags_of_content();
    put_container("p/put", kSize);
    const std::string content = store.content("p/put");
    store.put_object("p/put", content);
    const NodeId node = lookup("put")->node;
    const Result<OpenedFile> plain = open(node, O_RDONLY);
    ASSERT_TRUE(plain && read(plain->handle));
    ASSERT_TRUE(release(plain->handle));
    EXPECT_TRUE(open(node, O_RDONLY)->keep_cache);
    put_container("p/put", kSize);
    clock.advance(Milliseconds(60'000));
    ASSERT_EQ(lookup("put")->attributes.size, kSize);
    EXPECT_FALSE(open(lookup("put")->node, O_RDONLY)->keep_cache);
}

}  // namespace
}  // namespace ckptfs::fs
