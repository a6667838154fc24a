// SPDX-License-Identifier: Apache-2.0
#include "s3/xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aws/times.h"

namespace ckptfs::s3 {
namespace {

using ::testing::ElementsAre;

TEST(ErrorBody, IsReadWhereThereIsOne) {
    const auto body = parse_error_body(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>PermanentRedirect</Code><Message>use "
        "&lt;x&gt;</Message>"
        "<Region>eu-west-1</Region><RequestId>R1</RequestId></Error>");
    ASSERT_TRUE(body.has_value());
    EXPECT_EQ(body->code, "PermanentRedirect");
    EXPECT_EQ(body->message, "use <x>");
    EXPECT_EQ(body->region, "eu-west-1");
    EXPECT_EQ(body->request_id, "R1");
    EXPECT_FALSE(parse_error_body("").has_value());
    EXPECT_FALSE(parse_error_body("<html><body>Bad gateway</body></html>").has_value());
    EXPECT_FALSE(parse_error_body("<Error><Code>Cut").has_value());
}

TEST(ListResult, KeysAreDecodedWhereTheAnswerSaysSo) {
    const auto list = parse_list_result(
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><EncodingType>url</EncodingType>"
        "<IsTruncated>true</IsTruncated><NextContinuationToken>t/=</NextContinuationToken>"
        "<Contents><Key>a%20b%0A</Key><Size>5497558138880</Size><ETag>&quot;e&quot;</ETag>"
        "<LastModified>2009-10-12T17:50:30.000Z</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
        "<CommonPrefixes><Prefix>dir%2F</Prefix></CommonPrefixes></ListBucketResult>");
    ASSERT_TRUE(list.has_value()) << list.error().message;
    ASSERT_EQ(list->objects.size(), 1U);
    EXPECT_EQ(list->objects[0].key, "a b\n");
    EXPECT_EQ(list->objects[0].size, 5497558138880U);
    EXPECT_EQ(list->objects[0].etag, "\"e\"");
    EXPECT_EQ(list->objects[0].last_modified, parse_iso8601("2009-10-12T17:50:30Z"));
    EXPECT_THAT(list->common_prefixes, ElementsAre("dir/"));
    EXPECT_EQ(list->next_continuation_token, "t/=");
}

TEST(ListResult, KeysAreTakenAsTheyAreOtherwise) {
    const auto list = parse_list_result(
        "<ListBucketResult><Contents><Key> a%20b&#13;</Key><Size>0</Size></Contents>"
        "<Contents><Key> </Key><Size>1</Size></Contents></ListBucketResult>");
    ASSERT_TRUE(list.has_value()) << list.error().message;
    ASSERT_EQ(list->objects.size(), 2U);
    EXPECT_EQ(list->objects[0].key, " a%20b\r");
    EXPECT_EQ(list->objects[1].key, " ");
    EXPECT_EQ(list->next_continuation_token, "");
}

// Two nodes of 64 bytes each for five bytes, or one of 40.
TEST(ListResult, AnswersThatWouldTakeMuchMemoryAreErrors) {
    const auto answer = [](std::size_t times, const std::string& what) {
        std::string body = "<ListBucketResult>";
        for (std::size_t i = 0; i < times; ++i) {
            body += what;
        }
        return parse_list_result(body + "</ListBucketResult>").has_value();
    };
    for (const char* tags : {"<a/>x", "<a b= '' c=\"\">x</a>"}) {
        EXPECT_TRUE(answer(1000, tags));
        EXPECT_FALSE(answer(300'000, tags));
    }
    // Names are no marks.
    EXPECT_TRUE(answer(1000, "<Contents><Key>" + std::string(1024, '=') + "</Key><Size>1</Size></Contents>"));
    // A page as large as any.
    std::string page = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>";
    for (int upload = 0; upload < 10'000; ++upload) {
        page +=
            "<Upload><Key>k</Key><UploadId>1</UploadId><Initiator><ID>a</ID><DisplayName>b</DisplayName></Initiator>"
            "<Owner><ID>a</ID><DisplayName>b</DisplayName></Owner><StorageClass>STANDARD</StorageClass>"
            "<Initiated>2009-10-12T17:50:30.000Z</Initiated></Upload>";
    }
    EXPECT_TRUE(parse_upload_page(page + "</ListMultipartUploadsResult>"));
}

TEST(ListResult, HostileAnswersAreErrors) {
    for (const char* body :
         {"", "<", "<Error/>", "<ListBucketResult>", "<ListBucketResult><Contents/></ListBucketResult>",
          "<ListBucketResult><Contents><Key>k</Key><Size>-1</Size></Contents></ListBucketResult>",
          "<ListBucketResult><Contents><Key>k</Key><Size>18446744073709551615</Size></Contents></ListBucketResult>",
          "<ListBucketResult><Contents><Key>k</Key><Size>1x</Size></Contents></ListBucketResult>",
          "<ListBucketResult><Contents><Key></Key><Size>1</Size></Contents></ListBucketResult>",
          "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%</Key><Size>1</Size></Contents>"
          "</ListBucketResult>",
          "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"}) {
        const auto list = parse_list_result(body);
        ASSERT_FALSE(list.has_value()) << body;
        EXPECT_EQ(list.error().errno_value, EPROTO);
    }
}

TEST(ListResult, DeepNestingIsHarmless) {
    std::string body;
    for (int depth = 0; depth < 200'000; ++depth) {
        body += "<a>";
    }
    EXPECT_FALSE(parse_list_result(body).has_value());
}

TEST(WriteResults, CarryETagTimeAndChecksum) {
    const auto complete = parse_complete_result(
        "   \n <?xml version=\"1.0\" encoding=\"UTF-8\"?>\n  <CompleteMultipartUploadResult><ETag>\"x-2\"</ETag>"
        "</CompleteMultipartUploadResult>");
    ASSERT_TRUE(complete.has_value()) << complete.error().message;
    EXPECT_EQ(complete->etag, "\"x-2\"");
    const auto part = parse_copy_result(
        "<CopyPartResult><LastModified>2009-10-12T17:50:30Z</LastModified><ETag>e</ETag>"
        "<ChecksumCRC32C>yZRlqg==</ChecksumCRC32C></CopyPartResult>");
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(part->checksum_crc32c, "yZRlqg==");
    EXPECT_EQ(part->last_modified, parse_iso8601("2009-10-12T17:50:30Z"));
    EXPECT_TRUE(parse_copy_result("<CopyObjectResult><ETag>e</ETag></CopyObjectResult>").has_value());
    EXPECT_FALSE(parse_copy_result("<CopyObjectResult></CopyObjectResult>").has_value());
    EXPECT_TRUE(parse_complete_result("").error().outcome_unknown);
}

TEST(WriteResults, OtherServersSpellingsAreRead) {
    EXPECT_EQ(
        parse_created_upload("<InitiateMultipartUpload><UploadId>u</UploadId></InitiateMultipartUpload>")->upload_id,
        "u");
    EXPECT_EQ(parse_created_upload("<InitiateMultipartUploadResult><UploadId>u</UploadId>"
                                   "</InitiateMultipartUploadResult>")
                  ->upload_id,
              "u");
    EXPECT_FALSE(parse_created_upload("<Other><UploadId>u</UploadId></Other>").has_value());
    EXPECT_TRUE(parse_part_page("<ListPartsResponse></ListPartsResponse>").has_value());
    EXPECT_EQ(parse_copy_result("<CopyObjectResult><ETag>e</ETag></CopyObjectResult>")->etag, "\"e\"");
}

TEST(UploadPage, IsRead) {
    const auto page = parse_upload_page(
        "<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
        "<NextKeyMarker>a%2Fb</NextKeyMarker><NextUploadIdMarker>u1</NextUploadIdMarker>"
        "<Upload><Key>a%2Fb</Key><UploadId>u1</UploadId><Initiated>2009-10-12T17:50:30.000Z</Initiated></Upload>"
        "</ListMultipartUploadsResult>");
    ASSERT_TRUE(page.has_value()) << page.error().message;
    ASSERT_EQ(page->uploads.size(), 1U);
    EXPECT_EQ(page->uploads[0].upload.key, "a/b");
    EXPECT_EQ(page->next_key_marker, "a/b");
    EXPECT_FALSE(parse_upload_page("<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
                                   "</ListMultipartUploadsResult>")
                     .has_value());
}

TEST(UploadPage, TellsWhetherItsKeysAreKnown) {
    const auto known = [](const std::string& encoding, const std::string& key) {
        return parse_upload_page("<ListMultipartUploadsResult>" + encoding + "<Upload><Key>" + key +
                                 "</Key><UploadId>u</UploadId></Upload></ListMultipartUploadsResult>")
            ->are_keys_known;
    };
    EXPECT_TRUE(known("<EncodingType>url</EncodingType>", "a%20b"));
    EXPECT_TRUE(known("", "a b"));
    EXPECT_FALSE(known("", "a%20b"));
}

TEST(PartPage, IsRead) {
    const auto page = parse_part_page(
        "<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>2</NextPartNumberMarker>"
        "<Part><PartNumber>2</PartNumber><Size>5242880</Size><ETag>e</ETag><ChecksumCRC32C>c</ChecksumCRC32C></Part>"
        "</ListPartsResult>");
    ASSERT_TRUE(page.has_value()) << page.error().message;
    EXPECT_TRUE(page->truncated);
    EXPECT_EQ(page->next_part_number_marker, 2);
    ASSERT_EQ(page->parts.size(), 1U);
    EXPECT_EQ(page->parts[0].size, 5242880U);
    EXPECT_FALSE(parse_part_page("<ListPartsResult><Part><PartNumber>0</PartNumber><Size>1</Size></Part>"
                                 "</ListPartsResult>")
                     .has_value());
}

TEST(DeleteResult, NamesTheKeysThatStayed) {
    const auto failures = parse_delete_result(
        "<DeleteResult><Deleted><Key>a</Key></Deleted><Error><Key>b</Key><Code>AccessDenied</Code>"
        "<Message>no</Message></Error></DeleteResult>");
    ASSERT_TRUE(failures.has_value());
    ASSERT_EQ(failures->size(), 1U);
    EXPECT_EQ((*failures)[0].key, "b");
    EXPECT_EQ((*failures)[0].error.code, "AccessDenied");
    EXPECT_TRUE(parse_delete_result("<DeleteResult/>")->empty());
}

TEST(CompleteBody, NamesEveryPartWithItsChecksum) {
    EXPECT_EQ(complete_upload_body({{1, "\"a\"", "AAAAAA==", 5}, {2, "\"b\"", "", 6}}),
              "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
              "<Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag><ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></Part>"
              "<Part><PartNumber>2</PartNumber><ETag>\"b\"</ETag></Part></CompleteMultipartUpload>");
}

TEST(DeleteBody, EscapesKeys) {
    EXPECT_EQ(delete_objects_body({"a<b>&c", " "}),
              "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>"
              "<Object><Key>a&lt;b&gt;&amp;c</Key></Object><Object><Key> </Key></Object></Delete>");
}

TEST(DeleteBody, NamesTheVersionWhereOneIsAskedFor) {
    EXPECT_EQ(delete_objects_body({{"a", "\"x\""}}),
              "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>"
              "<Object><Key>a</Key><ETag>\"x\"</ETag></Object></Delete>");
}

TEST(PlainInXml, IsWhatNoReaderChanges) {
    for (const char* text :
         {"a", "a b", "a<&>'\"b", "\u00fcn\u00ef/\u65e5\u672c", "a\u00a0b", "\u2027\u2029", "\uffbd", "\U0001F600"}) {
        EXPECT_TRUE(is_plain_in_xml(text)) << text;
    }
    for (const char* text : {"", " a", "a ", "Icon\r", "a\nb", "a\tb", "\x01", "a\x7f", "a\u0085b", "\u009f", "a\u2028",
                             "a\uffff", "\ufffe", "\xff", "a\xc2"}) {
        EXPECT_FALSE(is_plain_in_xml(text)) << text;
    }
}

}  // namespace
}  // namespace ckptfs::s3
