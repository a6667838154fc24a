// SPDX-License-Identifier: Apache-2.0
// The seek tables of compressed files that nobody has open any more.
#include <fcntl.h>

#include <cerrno>
#include <string>

#include "file_system_fixture.h"
#include "support/large_table.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class ClosedTables : public FileSystemTest {
protected:
    ClosedTables() : FileSystemTest(kMemoryForTwoTables) {
        const LargeTable table = large_table();
        for (const char* name : {"one", "two", "three"}) {
            store.put_object(std::string("p/") + name, table.content, table.metadata);
        }
        one = lookup("one")->node;
        two = lookup("two")->node;
        three = lookup("three")->node;
    }
    int open_and_close(NodeId node) {
        const Result<OpenedFile> opened = open(node, O_RDONLY);
        return opened ? errno_of(close(opened->handle)) : opened.error().errno_value;
    }

    NodeId one = 0;
    NodeId two = 0;
    NodeId three = 0;
};

TEST_F(ClosedTables, AreKeptWhileThereIsRoomAndMakeRoomForOthers) {
    EXPECT_EQ(open_and_close(one), 0);
    EXPECT_EQ(open_and_close(two), 0);
    const int requests = store.calls(Operation::kGet);
    EXPECT_EQ(open_and_close(one), 0);
    EXPECT_EQ(store.calls(Operation::kGet), requests);
    for (const NodeId node : {three, one, two, three}) {
        EXPECT_EQ(open_and_close(node), 0);
    }
}

TEST_F(ClosedTables, AreNotThoseOfFilesThatAreOpen) {
    const HandleId first = open(one, O_RDONLY)->handle;
    const HandleId second = open(two, O_RDONLY)->handle;
    EXPECT_EQ(open_and_close(three), ENOMEM);
    EXPECT_EQ(open_and_close(one), 0);
    EXPECT_TRUE(close(first));
    EXPECT_EQ(open_and_close(three), 0);
    EXPECT_TRUE(close(second));
}

}  // namespace
}  // namespace ckptfs::fs
