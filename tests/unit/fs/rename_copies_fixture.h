// SPDX-License-Identifier: Apache-2.0
// A rename of a directory that is undone, after its process was killed, and what is left of its copies.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "directory_rename_fixture.h"
#include "fs/moves/rename_recovery.h"
#include "fs/objects/marker_objects.h"

namespace ckptfs::fs {

class RenameCopies : public DirectoryRenameTest {
protected:
    RenameCopies() {
        // As ckptfs saves them; a copy has the ETag of its source, as another's file of the same bytes has.
        store.make_etags_of_content();
        for (const char* name : {"a", "b", "deep/", "deep/c"}) {
            save_as(std::string("p/old/") + name, name);
        }
    }

    void save_as(const std::string& key, const std::string& content) {
        // Ages are known to the second.
        store.advance_clock(Milliseconds(1000));
        store.put_object(key, content, {{kWriteIdMetadata, "write " + std::to_string(++saves_)}});
    }
    std::vector<MovedName> written_names() {
        const Result<StoredMarker> record = read_marker(store, clock, only_record());
        const auto names = record ? read_names(store, names_key(*record->marker)) : std::nullopt;
        return names ? names->value_or(std::vector<MovedName>()) : std::vector<MovedName>();
    }

    void rename_and_be_killed_when_copied() {
        HookedStore mortal(store, [&](int) { return store.exists("p/new/deep/c") ? Fate::kFails : Fate::kPasses; });
        EXPECT_FALSE(rename_with(mortal));
    }
    void remove_source() {
        for (const std::string& key : store.keys()) {
            if (key.starts_with("p/old/")) {
                ASSERT_TRUE(SyncStore(store).remove(key));
            }
        }
    }
    // By name, of all directories beside the destination.
    std::map<std::string, std::string> set_aside() {
        std::map<std::string, std::string> files;
        for (const std::string& key : store.keys()) {
            if (key.starts_with("p/.undone-")) {
                files.emplace(key.substr(key.find('/', 2) + 1), store.content(key));
            }
        }
        return files;
    }

private:
    int saves_ = 0;
};

using Files = std::map<std::string, std::string>;
inline const Files kAll{{"a", "a"}, {"b", "b"}, {"deep/", "deep/"}, {"deep/c", "deep/c"}};

}  // namespace ckptfs::fs
