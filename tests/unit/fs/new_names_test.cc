// SPDX-License-Identifier: Apache-2.0
// What it costs to make a file, and what is known of its directory by then.
#include <fcntl.h>

#include <string>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

constexpr int kAnew = O_WRONLY | O_TRUNC;

class NewNames : public FileSystemTest {
protected:
    void SetUp() override {
        store.put_object("p/d/", "");
        store.put_object("p/d/there", "text");
        directory = lookup("d")->node;
        processes.make_anew = true;
        store.reset_calls();
    }
    void save_new(const std::string& name) {
        EXPECT_EQ(errno_of(lookup(name, directory)), ENOENT);
        const HandleId handle = create(name, kAnew, directory)->opened.handle;
        ASSERT_TRUE(write(handle, 0, name));
        ASSERT_TRUE(close(handle));
        EXPECT_EQ(store.content("p/d/" + name), name);
    }
    [[nodiscard]] int looks() const { return store.calls(Operation::kHead) + store.calls(Operation::kList); }
    void let_ttl_pass() { clock.advance(Milliseconds(1001)); }

    NodeId directory = 0;
};

TEST_F(NewNames, OneListAnswersForAllOfADirectory) {
    for (int file = 0; file < 5; ++file) {
        save_new("f" + std::to_string(file));
    }
    EXPECT_EQ(store.calls(Operation::kList), 1);
    EXPECT_EQ(store.calls(Operation::kHead), 1);
    EXPECT_EQ(store.calls(Operation::kPut), 5);
    let_ttl_pass();
    save_new("later");
    EXPECT_EQ(looks(), 4);
}

TEST_F(NewNames, WhoOnlyLooksIsToldWhatIsThereNow) {
    save_new("f");
    store.put_object("p/d/another", "of another mount");
    processes.make_anew = false;
    EXPECT_EQ(lookup("another", directory)->attributes.size, 16U);
    EXPECT_EQ(errno_of(lookup("missing", directory)), ENOENT);
}

TEST_F(NewNames, WhatAnotherMountHasSavedIsReplaced) {
    save_new("f");
    store.put_object("p/d/another", "of another mount");
    save_new("another");
}

TEST_F(NewNames, WhatThisMountHasMadeIsFoundOnceItIsForgotten) {
    save_new("f");
    fs->forget(lookup("f", directory)->node, 3);
    EXPECT_TRUE(mkdir("e", directory));
    fs->forget(lookup("e", directory)->node, 2);
    EXPECT_TRUE(rename("f", "renamed", 0, directory));
    fs->forget(lookup("renamed", directory)->node, 2);
    EXPECT_TRUE(lookup("renamed", directory));
    EXPECT_EQ(lookup("e", directory)->attributes.type, FileType::kDirectory);
}

TEST_F(NewNames, WhatIsThereIsFoundWithWhatItHolds) {
    EXPECT_EQ(lookup("there", directory)->attributes.size, 4U);
    store.put_object("p/d/e/f", "text");
    let_ttl_pass();
    EXPECT_EQ(lookup("e", directory)->attributes.type, FileType::kDirectory);
}

TEST_F(NewNames, InADirectoryOfManyNamesEachIsAskedFor) {
    for (int file = 0; file < 1001; ++file) {
        store.put_object("p/d/many" + std::to_string(file), "");
    }
    save_new("first");
    store.reset_calls();
    save_new("second");
    EXPECT_EQ(store.calls(Operation::kHead), 1);
    EXPECT_EQ(store.calls(Operation::kList), 1);
    EXPECT_EQ(errno_of(lookup("missing", directory)), ENOENT);
    EXPECT_TRUE(lookup("many7", directory));
}

TEST_F(NewNames, OfARenamedDirectoryAreAskedForAgain) {
    save_new("f");
    store.put_object("p/e/there", "text");
    ASSERT_TRUE(rename("d", "g"));
    store.reset_calls();
    EXPECT_EQ(errno_of(lookup("new", directory)), ENOENT);
    EXPECT_EQ(looks(), 2);
}

TEST_F(NewNames, AreNotBelievedWhereTheStoreDoesNotAnswer) {
    Error down;
    down.errno_value = EIO;
    store.inject({Operation::kList, "", down});
    EXPECT_EQ(errno_of(lookup("f", directory)), EIO);
    save_new("f");
}

}  // namespace
}  // namespace ckptfs::fs
