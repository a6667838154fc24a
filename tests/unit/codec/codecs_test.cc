// SPDX-License-Identifier: Apache-2.0
#include "codec/codecs.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/container.h"

namespace ckptfs {
namespace {

std::unique_ptr<Codec> codec(const std::string& compress, std::vector<std::string> exclude = {}) {
    return std::move(make_codec({compress, std::move(exclude)}).value());
}

// A container of one file, as it lies in the bucket.
struct Stored {
    ObjectInfo object;
    std::string bytes;

    [[nodiscard]] Payload tail() const { return Payload::from_string(bytes); }
};

Stored stored(const std::string& content) {
    const auto encoder = codec("zstd")->encoder("run/model.pt");
    Stored stored;
    std::vector<FrameRecord> records;
    for (std::size_t begin = 0; begin < content.size(); begin += kFrameSize) {
        std::vector<std::byte> output(kMaxStoredFrame);
        const Payload raw = Payload::from_string(content.substr(begin, kFrameSize));
        const EncodedFrame frame = encoder->encode(raw, output, EncodeEffort::kNormal).value();
        records.push_back(frame.record);
        stored.bytes += frame.stored ? frame.stored->to_string()
                                     : std::string(as_text(ByteSpan(output).first(frame.record.stored_size)));
    }
    stored.bytes += encoder->tail(records, content.size()).to_string();
    stored.object.key = "run/model.pt";
    stored.object.size = stored.bytes.size();
    stored.object.metadata = encoder->metadata(std::nullopt);
    stored.object.content_encoding = encoder->content_encoding();
    return stored;
}

// The end of a file of 1 TB: its table takes 12 MB, and there is room for 32 MiB.
Stored large_table() {
    const auto encoder = codec("auto")->encoder("run/model.pt");
    const std::vector<FrameRecord> records(1'000'000, FrameRecord{20, 0, false});
    Stored large;
    large.bytes = encoder->tail(records, records.size() * kFrameSize).to_string();
    large.object.key = "run/model.pt";
    large.object.size = records.size() * 20 + large.bytes.size();
    large.object.metadata = encoder->metadata(std::nullopt);
    return large;
}

TEST(Codecs, KnowTheirNames) {
    for (const char* name : {"auto", "none", "zstd", "zstd:1", "zstd:19"}) {
        EXPECT_TRUE(make_codec({name, {}})) << name;
    }
    for (const char* name : {"", "zip\n", "zstd:", "zstd:0", "zstd:20", "zstd:-1", "zstd:3x", "ZSTD"}) {
        const auto unknown = make_codec({name, {}});
        ASSERT_FALSE(unknown) << name;
        EXPECT_EQ(unknown.error().errno_value, EINVAL);
        EXPECT_EQ(unknown.error().message.find('\n'), std::string::npos);
    }
}

TEST(Codecs, LeaveExcludedNamesPlain) {
    const auto some = codec("zstd", {"*.json", "latest"});
    EXPECT_TRUE(some->encoder("run/config.json")->identity());
    EXPECT_TRUE(some->encoder("latest")->identity());
    EXPECT_FALSE(some->encoder("run/latest.pt")->identity());
    EXPECT_TRUE(codec("none")->encoder("run/model.pt")->identity());
}

TEST(Codecs, ReadWhatTheyWroteWhateverTheyWrite) {
    const std::string content = std::string(kFrameSize, 'a') + std::string(5000, 'b');
    const Stored one = stored(content);
    for (const char* name : {"none", "auto", "zstd:9"}) {
        const auto reader = codec(name);
        EXPECT_TRUE(reader->may_be_encoded(one.object.size));
        const auto layout = reader->layout(one.object, one.tail());
        ASSERT_TRUE(layout) << layout.error().message;
        EXPECT_EQ((*layout)->size(), content.size());
        EXPECT_FALSE((*layout)->identity());
        const Frame frame = (*layout)->frame_at(kFrameSize + 7);
        std::string raw(frame.size, '\0');
        ASSERT_TRUE((*layout)->decode(frame, one.tail().subrange(frame.stored_offset, frame.stored_size), {},
                                      std::as_writable_bytes(std::span(raw))));
        EXPECT_EQ(raw, std::string(5000, 'b'));
        // What is kept of it goes on as a container, also where new files are plain.
        EXPECT_FALSE(reader->encoder_like(one.object)->identity());
    }
}

TEST(Codecs, TellTheSizeOfAFileFromFewBytes) {
    const auto reader = codec("none");
    Stored one = stored(std::string(3 * kFrameSize + 1, 'x'));
    EXPECT_FALSE(reader->described_size(one.object));
    const Payload end = one.tail().subrange(one.bytes.size() - kSizeTail, kSizeTail);
    EXPECT_EQ(reader->size_from_tail(one.object, end).value(), 3 * kFrameSize + 1);
    EXPECT_GT(reader->tail_needed(one.object, end).value(), 4 * 12U);

    one.object.metadata = codec("zstd")->encoder("k")->metadata(3 * kFrameSize + 1);
    EXPECT_EQ(reader->described_size(one.object).value(), 3 * kFrameSize + 1);

    ObjectInfo plain;
    plain.size = 12;
    EXPECT_EQ(reader->described_size(plain).value(), 12U);
    EXPECT_EQ(reader->tail_needed(plain, {}).value(), 0U);
    EXPECT_TRUE(reader->encoder_like(plain)->identity());
}

TEST(Codecs, RefuseWhatADescriptionClaims) {
    const auto reader = codec("none");
    const Stored good = stored(std::string(kFrameSize + 1, 'x'));
    Stored bad = good;
    bad.object.metadata["ckptfs-size"] = "99";
    EXPECT_FALSE(reader->layout(bad.object, bad.tail())) << "another size than its frames have";
    bad = good;
    bad.object.metadata["ckptfs-size"] = "many\n";
    EXPECT_FALSE(reader->described_size(bad.object));
    bad = good;
    for (const auto& [name, may_be_damage] : {std::pair("planes-2", false), {"planes-3", true}, {"planes-10", false}}) {
        bad.object.metadata["ckptfs-format"] = name;
        const auto newer = reader->layout(bad.object, bad.tail());
        ASSERT_FALSE(newer) << name;
        EXPECT_NE(newer.error().message.find("newer ckptfs"), std::string::npos);
        EXPECT_EQ(newer.error().damaged, may_be_damage) << name << ": one bit more or less makes planes-1 of it";
    }
    bad = good;
    bad.bytes.pop_back();
    --bad.object.size;
    const auto cut = reader->layout(bad.object, bad.tail());
    ASSERT_FALSE(cut) << "cut short by somebody, and taken for a plain file";
    EXPECT_EQ(cut.error().errno_value, EIO);
    EXPECT_FALSE(reader->size_from_tail(bad.object, bad.tail()));
    EXPECT_FALSE(reader->tail_needed(bad.object, bad.tail()));
}

TEST(Codecs, RefuseATableThatTakesMoreThanAnEighthOfTheBudget) {
    const Stored file = stored(std::string(3 * kFrameSize, 'x'));
    constexpr std::uint64_t kTable = 8 + 3 * 12 + 9;
    const auto narrow = std::move(make_codec({"auto", {}}, 8 * kTable - 1).value());
    const auto refused = narrow->layout(file.object, file.tail());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().errno_value, EFBIG);
    EXPECT_NE(refused.error().message.find("--max-memory"), std::string::npos);
    EXPECT_EQ(narrow->tail_needed(file.object, file.tail()).error().errno_value, EFBIG);
    EXPECT_EQ(narrow->size_from_tail(file.object, file.tail()).value(), 3 * kFrameSize);
    const auto wide = std::move(make_codec({"auto", {}}, 8 * kTable).value());
    EXPECT_TRUE(wide->layout(file.object, file.tail()));
}

TEST(Codecs, RefuseTablesThatTogetherTakeMoreThanTheirShare) {
    const Stored file = large_table();
    const auto reader = std::move(make_codec({"auto", {}}, 8 * file.bytes.size()).value());
    auto first = reader->layout(file.object, file.tail());
    ASSERT_TRUE(first) << first.error().message;
    const auto second = reader->layout(file.object, file.tail());
    ASSERT_TRUE(second);
    const auto third = reader->layout(file.object, file.tail());
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().errno_value, ENOMEM);
    EXPECT_NE(third.error().message.find("--max-memory"), std::string::npos);
    // That of a file that is closed makes room.
    first = failure(ENOENT, "closed");
    EXPECT_TRUE(reader->layout(file.object, file.tail()));
}

TEST(Codecs, GiveRoomForATableBeforeItIsFetched) {
    const Stored file = large_table();
    const auto reader = std::move(make_codec({"auto", {}}, 8 * file.bytes.size()).value());
    const std::uint64_t needed = reader->tail_needed(file.object, file.tail()).value();
    std::vector<std::shared_ptr<TableRoom>> rooms;
    int refused = 0;
    const auto take = [&] {
        reader->take_room(file.object, needed, [&](Result<std::shared_ptr<TableRoom>> room) {
            if (room) {
                rooms.push_back(std::move(*room));
            } else {
                EXPECT_EQ(room.error().errno_value, ENOMEM);
                ++refused;
            }
        });
    };
    const auto end_first = [&] {
        auto room = std::move(rooms.front());
        rooms.erase(rooms.begin());
        room = nullptr;
    };
    take();
    take();
    take();
    EXPECT_EQ(rooms.size(), 2U) << "the third waits for them";
    const auto first = reader->layout_in(rooms.front(), file.object, file.tail());
    ASSERT_TRUE(first) << first.error().message;
    end_first();
    EXPECT_EQ(rooms.size(), 1U) << "what the first has is kept";
    end_first();
    ASSERT_EQ(rooms.size(), 1U) << "what the second had is free again";
    const auto third = reader->layout_in(rooms.front(), file.object, file.tail());
    ASSERT_TRUE(third) << third.error().message;
    take();
    EXPECT_EQ(refused, 0) << "the third may still give it back";
    end_first();
    EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace ckptfs
