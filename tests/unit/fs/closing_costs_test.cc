// SPDX-License-Identifier: Apache-2.0
// What closes and releases cost the calls beside them: the look at what processes hold may take milliseconds, and a
// mount may know many names.
#include <fcntl.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "file_system_fixture.h"
#include "fs/files/open_files.h"
#include "fs/gate/commit_gate.h"
#include "fs/moves/rename_repairs.h"
#include "fs/names/lookups.h"
#include "fs/names/unlink_batches.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

constexpr std::chrono::seconds kLong{20};

// More than there are threads for it, or for what waits for the store.
TEST_F(FileSystemTest, ALookAtWhatProcessesHoldKeepsNoOtherCallWaiting) {
    constexpr std::size_t kCloses = 8;
    const NodeId beside = save("beside", "text");
    std::vector<HandleId> handles;
    for (std::size_t file = 0; file < kCloses; ++file) {
        handles.push_back(create("f" + std::to_string(file))->opened.handle);
        ASSERT_TRUE(write(handles.back(), 0, "text"));
    }
    std::promise<void> look_ends;
    processes.while_counting = [ends = look_ends.get_future().share()] { ends.wait(); };
    std::array<std::promise<Status>, kCloses> closed;
    auto asked = std::async(std::launch::async, [&] {
        for (std::size_t file = 0; file < kCloses; ++file) {
            fs->flush(handles[file], Caller{kProcess, 0, 0},
                      [&closed, file](Status status) { closed[file].set_value(std::move(status)); });
        }
    });
    EXPECT_EQ(asked.wait_for(kLong), std::future_status::ready);
    auto others = std::async(std::launch::async, [&] {
        EXPECT_TRUE(getattr(beside));
        EXPECT_TRUE(lookup("beside"));
        EXPECT_EQ(errno_of(lookup("missing")), ENOENT);
        const Result<OpenedFile> opened = open(beside, O_RDONLY);
        EXPECT_TRUE(opened && *read(opened->handle) == "text" && release(opened->handle));
        EXPECT_TRUE(write(handles.front(), 4, " and more"));
        EXPECT_TRUE(rename("beside", "renamed"));
    });
    EXPECT_EQ(others.wait_for(kLong), std::future_status::ready);
    std::array<std::future<Status>, kCloses> answers;
    for (std::size_t file = 0; file < kCloses; ++file) {
        answers[file] = closed[file].get_future();
        EXPECT_EQ(answers[file].wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    }
    look_ends.set_value();
    for (std::size_t file = 0; file < kCloses; ++file) {
        EXPECT_TRUE(answers[file].get());
        EXPECT_TRUE(release(handles[file]));
    }
    EXPECT_EQ(store.content("p/f0"), "text and more");
}

TEST_F(FileSystemTest, WhatProcessesHoldIsNotLookedAtWhereNothingIsUnsaved) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "text"));
    std::atomic<int> looks = 0;
    processes.while_counting = [&looks] { ++looks; };
    processes.while_looking = [&looks] { ++looks; };
    EXPECT_TRUE(flush(handle));
    EXPECT_GT(looks.exchange(0), 0);
    EXPECT_TRUE(flush(handle));
    EXPECT_EQ(looks, 0);
    EXPECT_TRUE(release(handle));
}

// Of a filesystem, those of which a release is made.
struct Parts {
    explicit Parts(FileSystemEnvironment environment) : state(std::move(environment)) {}

    SharedState state;
    CommitGate gate{state};
    RenameRepairs repairs{state, gate};
    UnlinkBatches batches{state};
    Lookups lookups{state, repairs, batches};
    HandleTable handles;
    FileCounters counters;
    Draining draining{state};
    KernelPages pages{state};
    FileFailures failures{state, counters, pages, draining};
    FileCommits commits{state, lookups, gate, handles, counters, pages, draining};
    FileCloses closes{state, handles, commits, failures, draining};
    OpenFiles files{state, lookups, handles, counters, pages, failures, commits, closes};
};

// Who looks through the table for writers locks it for as long as that takes.
TEST_F(FileSystemTest, AReleaseLooksForNoWritersWhereNoUnmountWaits) {
    store.put_object("p/f", "text");
    Parts parts(environment("here", store));
    const auto entry = answer<Entry>([&](auto reply) { parts.lookups.lookup(kRootNode, "f", 0, reply); });
    const auto opened = answer<OpenedFile>([&](auto reply) {
        parts.files.open(entry->node, O_RDONLY, Caller{kProcess, 0, 0}, reply);
    });
    std::promise<void> answered;
    std::promise<void> table_is_locked;
    auto released = std::async(std::launch::async, [&] {
        parts.closes.release(opened->handle, [&](const Status&) {
            answered.set_value();
            table_is_locked.get_future().wait();
        });
    });
    answered.get_future().wait();
    {
        const NodeTable::Lock lock = parts.state.nodes.lock();
        table_is_locked.set_value();
        EXPECT_EQ(released.wait_for(kLong), std::future_status::ready);
    }
    released.get();
}

}  // namespace
}  // namespace ckptfs::fs
