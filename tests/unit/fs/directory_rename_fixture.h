// SPDX-License-Identifier: Apache-2.0
// A directory that is renamed, by a mount or by a process that a test stops or kills, and what mounts see of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "file_system_fixture.h"
#include "fs/moves/directory_rename.h"
#include "support/hooked_store.h"
#include "support/sync_store.h"

namespace ckptfs::fs {

using namespace testing;

using Names = std::vector<std::string>;
using Tree = std::optional<std::set<std::string>>;

inline const std::set<std::string> kWhole{"a", "b", "deep", "deep/c"};
inline constexpr Milliseconds kRepairAfter{600'000};

class DirectoryRenameTest : public FileSystemTest {
protected:
    DirectoryRenameTest() { make_source(); }

    void make_source() {
        for (const char* name : {"", "a", "b", "deep/", "deep/c"}) {
            store.put_object(std::string("p/old/") + name, name);
        }
    }

    // Without cached answers; empty where the name leads nowhere.
    Tree tree(const std::string& name) {
        clock.advance(Milliseconds(1001));
        const Result<Entry> found = lookup(name);
        const Names listed = list();
        EXPECT_EQ(found.has_value(), std::find(listed.begin(), listed.end(), name) != listed.end()) << name;
        if (!found) {
            EXPECT_EQ(found.error().errno_value, ENOENT);
            return std::nullopt;
        }
        std::set<std::string> names;
        add(names, "", found->node);
        return names;
    }
    void add(std::set<std::string>& names, const std::string& path, NodeId directory) {
        for (const std::string& name : list(directory)) {
            if (name == "." || name == "..") {
                continue;
            }
            names.insert(path + name);
            if (const Result<Entry> entry = lookup(name, directory);
                entry && entry->attributes.type == FileType::kDirectory) {
                add(names, path + name + "/", entry->node);
            }
        }
    }

    // Meets what is unfinished until it is repaired.
    bool repaired(const std::string& records = "/.ckptfs/") {
        store.advance_clock(kRepairAfter + Milliseconds(1000));
        clock.advance(kRepairAfter);
        return eventually([&] {
            // In small steps: who sees half of that time pass during a repair lets go of it, for another to go on.
            store.advance_clock(kRepairAfter / 100);
            clock.advance(kRepairAfter / 100);
            static_cast<void>(lookup("old"));
            static_cast<void>(lookup("new"));
            static_cast<void>(list());
            const Names keys = store.keys();
            return std::none_of(keys.begin(), keys.end(),
                                [&](const std::string& key) { return key.find(records) != std::string::npos; });
        });
    }

    bool is_decided() {
        const Names keys = store.keys();
        return std::any_of(keys.begin(), keys.end(), [this](const std::string& key) {
            const std::string record = recorded_paths("p/", key) ? store.content(key) : "";
            const auto read = parse_marker(record);
            return read && read->state == MarkerState::kCommitted;
        });
    }

    // Of a file that another mount could not write.
    void add_failure() {
        store.put_object("p/.ckptfs/failed/old/shard", "host: node7\nreason: no room\netag-before: \n");
    }
    // This mount could not write it; then another one removed the directory and made it anew.
    void fail_and_make_good() {
        store.inject({Operation::kPut, "p/old/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        const HandleId handle = create("shard", O_WRONLY, lookup("old")->node)->opened.handle;
        ASSERT_TRUE(write(handle, 0, "content"));
        EXPECT_EQ(errno_of(close(handle)), EIO);
        EXPECT_TRUE(store.exists("p/.ckptfs/failed/old/shard"));
        store.advance_clock(Milliseconds(2000));
        store.put_object("p/old/", "");
    }
    int commit_marker_in(const std::string& name) {
        clock.advance(Milliseconds(1001));
        const NodeId directory = lookup(name)->node;
        const HandleId marker = create("m.tmp", O_WRONLY, directory)->opened.handle;
        EXPECT_TRUE(write(marker, 0, "metadata") && close(marker));
        return errno_of(rename("m.tmp", ".metadata", 0, directory));
    }

    // By another process, whose clock stands still.
    Status rename_with(ObjectStore& seen, const std::string& source = "p/old/",
                       const std::string& destination = "p/new/") {
        DirectoryRename rename(seen, its_clock, kRepairAfter, {"p/", source, destination, ""});
        return rename.run({[&] {
                               its_clock.advance(kRecordLead);
                               return Status{};
                           },
                           [](const std::vector<ObjectInfo>&) { return Status{}; }, [](const Copies&) {},
                           [] { return DeletePins::kHonoured; }});
    }

    // Its copies are there, some at least, and its record says so.
    void rename_and_be_killed_while_copying() {
        HookedStore mortal(store, [&](int) { return store.exists("p/new/a") ? Fate::kFails : Fate::kPasses; });
        EXPECT_FALSE(rename_with(mortal));
    }
    std::string only_record() {
        const Names keys = store.keys();
        const auto record = std::find_if(keys.begin(), keys.end(),
                                         [](const std::string& key) { return recorded_paths("p/", key).has_value(); });
        return record == keys.end() ? "" : *record;
    }

    // What was renamed is there under one of its names, and nothing else.
    void start_again() {
        for (const std::string& key : store.keys()) {
            ASSERT_TRUE(SyncStore(store).remove(key));
        }
        make_source();
    }

    // Of the process that rename_with() plays.
    StandingClock its_clock;
};

}  // namespace ckptfs::fs
