// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class LinksTest : public FileSystemTest {
protected:
    Result<Entry> link(NodeId node, const std::string& name, NodeId parent = kRootNode) {
        return answer<Entry>([&](auto reply) { fs->link(node, parent, name, {kProcess}, reply); });
    }
    void SetUp() override {
        FileSystemTest::SetUp();
        temporary = save("zarr.json.partial", "{}");
    }

    NodeId temporary = 0;
};

TEST_F(LinksTest, GiveACompleteTemporaryFileItsLastName) {
    const Result<Entry> linked = link(temporary, "zarr.json");
    ASSERT_TRUE(linked);
    EXPECT_EQ(linked->attributes.size, 2U);
    EXPECT_NE(linked->node, temporary);
    EXPECT_EQ(store.content("p/zarr.json"), "{}");
    EXPECT_TRUE(unlink("zarr.json.partial"));
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/zarr.json"});
    EXPECT_EQ(lookup("zarr.json")->node, linked->node);
}

TEST_F(LinksTest, NeverReplace) {
    save("here", "x");
    EXPECT_EQ(errno_of(link(temporary, "here")), EEXIST);
    store.put_object("p/of-another-mount", "y");
    EXPECT_EQ(errno_of(link(temporary, "of-another-mount")), EEXIST);
    EXPECT_EQ(store.content("p/of-another-mount"), "y");
}

TEST_F(LinksTest, ThatAreMeantToLastAreRefused) {
    EXPECT_EQ(errno_of(link(save("model.bin", "x"), "hard")), EPERM);
    EXPECT_EQ(errno_of(link(mkdir("d.partial")->node, "hard")), EPERM);
    const Result<CreatedFile> open = create("open.partial");
    ASSERT_TRUE(write(open->opened.handle, 0, "half"));
    EXPECT_EQ(errno_of(link(open->entry.node, "hard")), EPERM);
    EXPECT_TRUE(close(open->opened.handle));
    EXPECT_EQ(store.keys(),
              (std::vector<std::string>{"p/d.partial/", "p/model.bin", "p/open.partial", "p/zarr.json.partial"}));
}

TEST_F(LinksTest, OfAFileThatIsGoneFail) {
    ASSERT_TRUE(unlink("zarr.json.partial"));
    EXPECT_EQ(errno_of(link(temporary, "zarr.json")), ENOENT);
    EXPECT_TRUE(store.keys().empty());
}

}  // namespace
}  // namespace ckptfs::fs
