// SPDX-License-Identifier: Apache-2.0
// Directories that only their names imply, while these are removed in batches.
#include <future>

#include "unlink_batches_fixture.h"

namespace ckptfs::fs {
namespace {

using EmptiedDirectories = UnlinkBatchesTest;

TEST_F(EmptiedDirectories, AnImpliedDirectoryOutlivesItsLastName) {
    for (int i = 0; i < 30; ++i) {
        store.put_object("p/implied/" + file(i), "x");
    }
    const NodeId implied = lookup("implied")->node;
    for (int i = 0; i < 30; ++i) {
        ASSERT_TRUE(lookup(file(i), implied));
        ASSERT_TRUE(unlink(file(i), implied));
    }
    EXPECT_EQ(list(implied), (Names{".", ".."}));
    EXPECT_TRUE(store.exists("p/implied/"));
}

// In a run of removals of directories, the first names of one go in a batch: its marker is written once they are gone.
TEST_F(EmptiedDirectories, AnImpliedDirectoryIsFoundWhileItsLastNamesAreRemoved) {
    for (int i = 0; i < 20; ++i) {
        store.put_object("p/top/one/" + file(i), "x");
        store.put_object("p/top/two/" + file(i), "x");
    }
    const NodeId top = lookup("top")->node;
    for (const char* name : {"one", "two"}) {
        const NodeId implied = lookup(name, top)->node;
        list(implied);
        for (int i = 0; i < 20; ++i) {
            ASSERT_TRUE(lookup(file(i), implied));
            if (i == 19 && name == std::string("two")) {
                store.hold(Operation::kPut);
            }
            ASSERT_TRUE(unlink(file(i), implied));
        }
        if (name == std::string("one")) {
            ASSERT_TRUE(rmdir("one", top));
        }
    }
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    clock.advance(Milliseconds(60'000));
    std::promise<Result<Entry>> found;
    fs->lookup(top, "two", {}, [&found](Result<Entry> entry) { found.set_value(std::move(entry)); });
    store.release(Operation::kPut);
    EXPECT_TRUE(found.get_future().get());
    EXPECT_TRUE(store.exists("p/top/two/"));
}

}  // namespace
}  // namespace ckptfs::fs
