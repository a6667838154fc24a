// SPDX-License-Identifier: Apache-2.0
// A directory of a hundred files whose removals go in batches.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;

using Names = std::vector<std::string>;

class UnlinkBatchesTest : public FileSystemTest {
protected:
    explicit UnlinkBatchesTest(Milliseconds objects_ahead = Milliseconds(0)) {
        store.date_objects_ahead(objects_ahead);
        store.put_object("p/dir/", "");
        for (int i = 0; i < 100; ++i) {
            store.put_object("p/dir/" + file(i), "x");
        }
        directory = lookup("dir")->node;
        list(directory);
        find_out();
    }
    // The test ends when the store has everything.
    ~UnlinkBatchesTest() override {
        store.release(Operation::kRemoveMany);
        list(directory);
    }

    // Whether the store honours conditional deletes is asked at the first run of removals.
    void find_out() {
        for (int i = 0; i < 17; ++i) {
            store.put_object("p/first/" + file(i), "x");
        }
        const NodeId first = lookup("first")->node;
        for (int i = 0; i < 17; ++i) {
            ASSERT_TRUE(lookup(file(i), first));
            ASSERT_TRUE(unlink(file(i), first));
        }
        ASSERT_TRUE(eventually([&] {
            const std::vector<std::string> keys = store.keys();
            return store.calls(Operation::kRemoveMany) >= 1 &&
                   std::none_of(keys.begin(), keys.end(),
                                [](const auto& key) { return key.starts_with("p/.ckptfs/"); });
        }));
        // It looks at the answer.
        wait_for_threads();
        ASSERT_TRUE(rmdir("first"));
        clock.advance(Milliseconds(1001));
    }
    static std::string file(int i) { return "f" + std::to_string(1000 + i); }
    // As rm(1): each name is looked up before.
    Status remove(int i) {
        const Result<Entry> found = lookup(file(i), directory);
        if (!found) {
            return failure(found.error());
        }
        Status removed = unlink(file(i), directory);
        fs->forget(found->node, 1);
        return removed;
    }
    void remove_all(int from, int to) {
        for (int i = from; i < to; ++i) {
            ASSERT_TRUE(remove(i)) << i;
        }
    }
    // Another mount's version, by the store's time.
    void replace(int i, std::chrono::seconds ago) {
        const auto ahead = std::chrono::system_clock::now() - clock.wall_now() + ago;
        store.advance_clock(-std::chrono::duration_cast<Milliseconds>(ahead));
        store.put_object("p/dir/" + file(i), "new");
        store.advance_clock(std::chrono::duration_cast<Milliseconds>(ahead));
    }
    // Batches go by the time of the machine: while they wait, no removal that follows is told of the refusal.
    void refuse_what_is_held() {
        store.inject({Operation::kRemoveMany, "", store_error(EACCES, "AccessDenied", 403), 0, 1'000'000, false});
        store.hold(Operation::kRemoveMany);
    }
    Status sync_directory() {
        return answer<void>([&](auto reply) { fs->sync_directory(directory, reply); });
    }
    int requests(Operation operation) { return store.calls(operation); }

    NodeId directory = 0;
};

}  // namespace ckptfs::fs
