// SPDX-License-Identifier: Apache-2.0
#include "s3sim/xml.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

TEST(XmlWriter, EscapesAndCloses) {
    XmlWriter writer;
    writer.open("A");
    writer.element("Key", "<&>\"\r");
    writer.element("Size", std::uint64_t{7});
    writer.element("More", true);
    EXPECT_EQ(writer.finish(),
              "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
              "<A><Key>&lt;&amp;&gt;&quot;&#13;</Key><Size>7</Size><More>true</More></A>");
}

TEST(ReadComplete, ReadsParts) {
    const auto parts = read_complete_multipart_upload(
        "<CompleteMultipartUpload xmlns=\"x\"><Part><PartNumber>3</PartNumber><ETag>\"abc\"</ETag>"
        "<ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></Part></CompleteMultipartUpload>");
    ASSERT_TRUE(parts);
    ASSERT_EQ(parts->size(), 1U);
    EXPECT_EQ((*parts)[0].number, 3);
    EXPECT_EQ((*parts)[0].etag, "abc");
    ASSERT_EQ((*parts)[0].checksums.size(), 1U);
    EXPECT_EQ((*parts)[0].checksums[0].first, DigestKind::kCrc32c);
}

TEST(ReadComplete, RefusesWhatIsNoList) {
    for (const char* wrong :
         {"", "<", "<CompleteMultipartUpload/>", "<Other><Part/></Other>",
          "<CompleteMultipartUpload><Part><PartNumber>x</PartNumber><ETag>a</ETag></Part></CompleteMultipartUpload>",
          "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>"}) {
        EXPECT_EQ(read_complete_multipart_upload(wrong).error().code, "MalformedXML") << wrong;
    }
}

TEST(ReadDelete, ReadsKeysAsTheyAre) {
    const auto request = read_delete(
        "<Delete><Quiet>true</Quiet><Object><Key> a&amp;b </Key></Object><Object><Key>c</Key><ETag>\"e\"</ETag>"
        "</Object></Delete>");
    ASSERT_TRUE(request);
    EXPECT_TRUE(request->quiet);
    ASSERT_EQ(request->entries.size(), 2U);
    EXPECT_EQ(request->entries[0].key, " a&b ");
    EXPECT_EQ(request->entries[1].etag, "e");
}

TEST(ReadDelete, RefusesMoreThanAThousandKeys) {
    std::string body = "<Delete>";
    for (int i = 0; i < 1001; ++i) {
        body += "<Object><Key>k</Key></Object>";
    }
    EXPECT_EQ(read_delete(body + "</Delete>").error().code, "MalformedXML");
}

}  // namespace
}  // namespace ckptfs::s3sim
