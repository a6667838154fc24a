// SPDX-License-Identifier: Apache-2.0
// What ckptfs needs of a store's multipart uploads.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/digest.h"
#include "servers/server_under_test.h"

namespace ckptfs {
namespace {

using ::testing::IsEmpty;

class Uploads : public ServerTest {
protected:
    UploadedPart must_upload(const UploadId& upload, int number, std::string content) {
        auto part = upload_part(upload, number, std::move(content));
        EXPECT_TRUE(part.has_value()) << part.error().message;
        return part.value_or(UploadedPart{});
    }

    Result<UploadedPart> copy_part(const UploadId& upload, int number, const std::string& source,
                                   std::optional<ByteRange> range = std::nullopt, const std::string& if_match = "") {
        UploadPartCopyRequest request;
        request.upload = upload;
        request.part_number = number;
        request.source_key = key(source);
        request.range = range;
        request.source_if_match = if_match;
        return store_->upload_part_copy(std::move(request));
    }

    Result<PutResponse> complete(const UploadId& upload, std::vector<UploadedPart> parts, bool if_none_match = false) {
        CompleteRequest request;
        request.upload = upload;
        request.parts = std::move(parts);
        request.if_none_match = if_none_match;
        return store_->complete_upload(std::move(request));
    }
};

TEST_F(Uploads, PartsBecomeOneObject) {
    const std::string first = sample_bytes(kMinPartSize, 1);
    const std::string last = sample_bytes(1000, 2);
    const UploadId upload = create_upload("file", {{kWriteIdMetadata, "0123"}});
    const UploadedPart one = must_upload(upload, 1, first);
    const UploadedPart second = must_upload(upload, 2, last);
    EXPECT_EQ(errno_of(store_->head(key("file"))), ENOENT);
    const auto completed = complete(upload, {one, second});
    ASSERT_TRUE(completed.has_value()) << completed.error().message;
    const auto object = store_->head(key("file"));
    ASSERT_TRUE(object.has_value()) << object.error().message;
    EXPECT_EQ(object->size, first.size() + last.size());
    EXPECT_EQ(object->metadata.at(kWriteIdMetadata), "0123");
    EXPECT_EQ(content("file"), first + last);
}

TEST_F(Uploads, ACompleteTellsTheObjectsETag) {
    const UploadId upload = create_upload("file");
    const auto completed = complete(upload, {must_upload(upload, 1, "hello")});
    ASSERT_TRUE(completed.has_value()) << completed.error().message;
    EXPECT_EQ(described("file").etag, completed->etag);
}

TEST_F(Uploads, PartsComeInAnyOrderWithGapsInTheirNumbers) {
    const std::string first = sample_bytes(kMinPartSize, 1);
    const UploadId upload = create_upload("file");
    const UploadedPart second = must_upload(upload, 7, "last");
    const UploadedPart one = must_upload(upload, 2, first);
    const auto completed = complete(upload, {second, one});
    ASSERT_TRUE(completed.has_value()) << completed.error().message;
    EXPECT_EQ(content("file"), first + "last");
}

TEST_F(Uploads, APartCanBeSentAgain) {
    const UploadId upload = create_upload("file");
    must_upload(upload, 1, "first");
    const UploadedPart again = must_upload(upload, 1, "second");
    ASSERT_TRUE(complete(upload, {again}).has_value());
    EXPECT_EQ(content("file"), "second");
}

TEST_F(Uploads, APartWithAWrongChecksumIsRefused) {
    UploadPartRequest request;
    request.upload = create_upload("file");
    request.part_number = 1;
    request.body = Payload::from_string("hello");
    request.crc32c = crc32c(request.body) ^ 1U;
    const auto part = store_->upload_part(std::move(request));
    ASSERT_FALSE(part.has_value());
    EXPECT_EQ(part.error().errno_value, EIO);
}

TEST_F(Uploads, ACompleteWithAWrongChecksumIsRefused) {
    const UploadId upload = create_upload("file");
    UploadedPart part = must_upload(upload, 1, "hello");
    part.checksum_crc32c = crc32c_base64(1);
    EXPECT_FALSE(complete(upload, {part}).has_value());
    EXPECT_EQ(errno_of(store_->head(key("file"))), ENOENT);
}

TEST_F(Uploads, ACompleteOfAPartThatHoldsOtherBytesIsRefused) {
    const UploadId upload = create_upload("file");
    const UploadedPart part = must_upload(upload, 1, "hello");
    must_upload(upload, 1, "world");
    const auto completed = complete(upload, {part});
    ASSERT_FALSE(completed.has_value());
    EXPECT_EQ(completed.error().s3_code, "InvalidPart");
    EXPECT_THAT(completed.error().message, ::testing::HasSubstr("write the file again"));
    EXPECT_EQ(errno_of(store_->head(key("file"))), ENOENT);
}

// As when the first attempt was given up and arrives late.
TEST_F(Uploads, APartThatArrivesTwiceIsTaken) {
    const UploadId upload = create_upload("file");
    const std::string first = sample_bytes(kMinPartSize, 1);
    const std::vector<UploadedPart> parts{must_upload(upload, 1, first), must_upload(upload, 2, "last")};
    must_upload(upload, 1, first);
    const auto completed = complete(upload, parts);
    ASSERT_TRUE(completed.has_value()) << completed.error().message;
    EXPECT_EQ(content("file"), first + "last");
}

TEST_F(Uploads, AShortPartInTheMiddleIsRefused) {
    const UploadId upload = create_upload("file");
    const UploadedPart one = must_upload(upload, 1, "short");
    const UploadedPart two = must_upload(upload, 2, "last");
    const auto completed = complete(upload, {one, two});
    ASSERT_FALSE(completed.has_value());
    EXPECT_EQ(completed.error().s3_code, "EntityTooSmall");
}

TEST_F(Uploads, TheOldObjectStaysUntilTheCommit) {
    ASSERT_TRUE(put("file", "old").has_value());
    const UploadId upload = create_upload("file");
    const UploadedPart part = must_upload(upload, 1, "new");
    EXPECT_EQ(content("file"), "old");
    ASSERT_TRUE(complete(upload, {part}).has_value());
    EXPECT_EQ(content("file"), "new");
}

TEST_F(Uploads, CompleteIfNoneMatchRefusesToReplace) {
    const UploadId upload = create_upload("file");
    const UploadedPart part = must_upload(upload, 1, "new");
    ASSERT_TRUE(put("file", "old").has_value());
    const auto completed = complete(upload, {part}, true);
    ASSERT_FALSE(completed.has_value());
    EXPECT_EQ(completed.error().errno_value, EEXIST);
    EXPECT_EQ(content("file"), "old");
}

TEST_F(Uploads, AnAbortedUploadIsGone) {
    const UploadId upload = create_upload("file");
    const UploadedPart part = must_upload(upload, 1, "hello");
    EXPECT_TRUE(store_->abort_upload(upload).has_value());
    EXPECT_TRUE(store_->abort_upload(upload).has_value());
    const auto completed = complete(upload, {part});
    ASSERT_FALSE(completed.has_value());
    EXPECT_EQ(completed.error().s3_code, "NoSuchUpload");
    EXPECT_EQ(errno_of(store_->head(key("file"))), ENOENT);
}

TEST_F(Uploads, OpenUploadsAreListed) {
    const UploadId one = create_upload("dir/a b");
    const UploadId two = create_upload("dir/a b");
    create_upload("elsewhere");
    auto open = store_->list_uploads(key("dir/"));
    ASSERT_TRUE(open.has_value()) << open.error().message;
    ASSERT_EQ(open->size(), 2U);
    for (const OpenUpload& upload : *open) {
        EXPECT_EQ(upload.upload.key, key("dir/a b"));
        EXPECT_TRUE(upload.upload.id == one.id || upload.upload.id == two.id);
    }
    ASSERT_TRUE(store_->abort_upload(one).has_value());
    ASSERT_TRUE(store_->abort_upload(two).has_value());
    open = store_->list_uploads(key("dir/"));
    ASSERT_TRUE(open.has_value()) << open.error().message;
    EXPECT_THAT(*open, IsEmpty());
}

TEST_F(Uploads, AnOpenUploadTellsItsAge) {
    create_upload("file");
    const auto open = store_->list_uploads(prefix_);
    ASSERT_TRUE(open.has_value()) << open.error().message;
    ASSERT_EQ(open->size(), 1U);
    EXPECT_LT(std::chrono::abs((*open)[0].initiated - clock_.wall_now()), std::chrono::minutes(5));
}

TEST_F(Uploads, MoreOpenUploadsThanAPageAreListed) {
    const auto uploads = static_cast<std::size_t>(more_than_a_page());
    std::vector<UploadId> created;
    while (created.size() < uploads && !HasFailure()) {
        created.push_back(create_upload("file " + std::to_string(created.size() / 2)));
    }
    const auto open = store_->list_uploads(prefix_);
    for (const UploadId& upload : created) {
        static_cast<void>(store_->abort_upload(upload));
    }
    ASSERT_TRUE(open.has_value()) << open.error().message;
    EXPECT_EQ(open->size(), uploads);
}

TEST_F(Uploads, MorePartsThanAPageAreListed) {
    const int count = more_than_a_page();
    const UploadId upload = create_upload("file");
    for (int number = 1; number <= count && !HasFailure(); ++number) {
        must_upload(upload, number, "x");
    }
    const auto parts = store_->list_parts(upload);
    ASSERT_TRUE(parts.has_value()) << parts.error().message;
    ASSERT_EQ(parts->size(), static_cast<std::size_t>(count));
    EXPECT_EQ(parts->back().part_number, count);
}

TEST_F(Uploads, PartsAreListed) {
    const UploadId upload = create_upload("file");
    const UploadedPart one = must_upload(upload, 1, "hello");
    const UploadedPart three = must_upload(upload, 3, "world!");
    const auto parts = store_->list_parts(upload);
    ASSERT_TRUE(parts.has_value()) << parts.error().message;
    ASSERT_EQ(parts->size(), 2U);
    EXPECT_EQ((*parts)[0].part_number, 1);
    EXPECT_EQ((*parts)[0].etag, one.etag);
    EXPECT_EQ((*parts)[1].part_number, 3);
    EXPECT_EQ((*parts)[1].size, 6U);
    EXPECT_EQ((*parts)[1].etag, three.etag);
}

TEST_F(Uploads, PartsAreListedWithTheirChecksums) {
    const UploadId upload = create_upload("file");
    const UploadedPart part = must_upload(upload, 1, "hello");
    const auto parts = store_->list_parts(upload);
    ASSERT_TRUE(parts.has_value()) << parts.error().message;
    ASSERT_EQ(parts->size(), 1U);
    EXPECT_FALSE(part.checksum_crc32c.empty());
    EXPECT_EQ((*parts)[0].checksum_crc32c, part.checksum_crc32c);
}

TEST_F(Uploads, PartsAreCopiedFromObjects) {
    const std::string source = sample_bytes(2 * kMinPartSize, 3);
    const auto written = put("source", source);
    ASSERT_TRUE(written.has_value()) << written.error().message;
    const UploadId upload = create_upload("file");
    const auto one = copy_part(upload, 1, "source", ByteRange{1000, kMinPartSize, false}, written->etag);
    ASSERT_TRUE(one.has_value()) << one.error().message;
    const UploadedPart two = must_upload(upload, 2, "tail");
    const auto completed = complete(upload, {*one, two});
    ASSERT_TRUE(completed.has_value()) << completed.error().message;
    EXPECT_EQ(content("file"), source.substr(1000, kMinPartSize) + "tail");
}

TEST_F(Uploads, ACopiedPartIsAnsweredWithItsChecksum) {
    const std::string source = sample_bytes(kMinPartSize, 3);
    ASSERT_TRUE(put("source", source).has_value());
    const auto part = copy_part(create_upload("file"), 1, "source");
    ASSERT_TRUE(part.has_value()) << part.error().message;
    EXPECT_EQ(part->checksum_crc32c, crc32c_base64(crc32c(as_bytes(source))));
}

TEST_F(Uploads, ACopiedPartIsPinnedToItsSource) {
    const auto written = put("source", sample_bytes(2 * kMinPartSize, 3));
    ASSERT_TRUE(written.has_value());
    ASSERT_TRUE(put("source", sample_bytes(2 * kMinPartSize, 4)).has_value());
    const UploadId upload = create_upload("file");
    const auto part = copy_part(upload, 1, "source", ByteRange{0, kMinPartSize, false}, written->etag);
    ASSERT_FALSE(part.has_value());
    EXPECT_EQ(part.error().errno_value, ESTALE);
}

TEST_F(Uploads, ARangeOfASmallSourceIsNotCopied) {
    ASSERT_TRUE(put("source", "small").has_value());
    const UploadId upload = create_upload("file");
    EXPECT_FALSE(copy_part(upload, 1, "source", ByteRange{0, 3, false}).has_value());
}

}  // namespace
}  // namespace ckptfs
