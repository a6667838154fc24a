// SPDX-License-Identifier: Apache-2.0
// Files that fail, and a marker that is to be published beside them.
#pragma once

#include <string>

#include "file_system_fixture.h"
#include "fs/failures/failed_siblings.h"

namespace ckptfs::fs {

using namespace testing;

inline constexpr const char* kRecord = "p/.ckptfs/failed/shard";

class FailedSiblingsTest : public FileSystemTest {
protected:
    // `path`: of its directory.
    void fail_shard(const std::string& path = "", NodeId directory = kRootNode) {
        store.inject({Operation::kPut, "p/" + path + "shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        const HandleId handle = create("shard", O_WRONLY, directory)->opened.handle;
        ASSERT_TRUE(write(handle, 0, "content"));
        EXPECT_EQ(errno_of(close(handle)), EIO);
    }
    Status commit() {
        save("m.tmp", "metadata");
        return rename("m.tmp", ".metadata");
    }
    void write_marker(NodeId directory) {
        const HandleId marker = create("m.tmp", O_WRONLY, directory)->opened.handle;
        ASSERT_TRUE(write(marker, 0, "metadata") && close(marker));
    }
    // Other mounts are not told of it before the store lets PUTs go; parts of it are there.
    HandleId fail_upload(const std::string& name, int flags) {
        store.inject({Operation::kUploadPart, "", store_error(EACCES, "AccessDenied", 403), 1, 1, false});
        store.hold(Operation::kPut);
        const HandleId handle = create(name, flags)->opened.handle;
        for (std::uint64_t block = 0; block < 40; ++block) {
            static_cast<void>(write(handle, block << 20, std::string(std::size_t{1} << 20, 'a')));
        }
        EXPECT_TRUE(store.wait_until_held(Operation::kPut, 1));
        return handle;
    }
    // It is undone after the source was hidden.
    void fail_rename(const std::string& from, const std::string& to) {
        store.inject({Operation::kPut, "p/" + from + "/", store_error(EIO, "InternalError", 500), 0, 1, true});
        EXPECT_EQ(errno_of(rename(from, to)), EIO);
        EXPECT_TRUE(store.exists("p/" + from + "/"));
        EXPECT_EQ(store.content("p/" + from + "/"), "");
    }
    void tick() { timer.run(FailedSiblings::kTick); }
};

}  // namespace ckptfs::fs
