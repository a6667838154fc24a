// SPDX-License-Identifier: Apache-2.0
// How what was written to an open file becomes visible or does not: close, fsync, and the last release. What each close
// means is decided in close_rule.h, by what the processes hold and are doing.
//
// Threads: all functions may be called from any thread; nothing here blocks.
#pragma once

#include <memory>

#include "base/executors.h"
#include "base/owned_timers.h"
#include "fs/files/close_rule.h"
#include "fs/files/draining.h"
#include "fs/files/file_commits.h"
#include "fs/files/file_failures.h"
#include "fs/state/handles.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class FileCloses {
public:
    FileCloses(SharedState& state, HandleTable& handles, FileCommits& commits, FileFailures& failures,
               Draining& draining)
        : state_(state),
          handles_(handles),
          commits_(commits),
          failures_(failures),
          draining_(draining),
          waits_(state.env.timer) {}
    // `waits_` stops first, since inspections and waits start each other.
    ~FileCloses() { waits_.stop(); }
    FileCloses(const FileCloses&) = delete;
    FileCloses& operator=(const FileCloses&) = delete;

    void flush(HandleId handle, const Caller& caller, Reply<void> reply);
    // Whether a program sees what is answered to this FLUSH: to that of a process that ends, or of an exec(2), which
    // closes what the process inherited, the kernel does not listen. True if /proc does not tell. To be called while
    // the caller waits.
    [[nodiscard]] bool is_heard(HandleId handle, const Caller& caller) const;
    void fsync(HandleId handle, Reply<void> reply);
    void release(HandleId handle, Reply<void> reply);
    // Releases a handle that no process ever had.
    void disown(HandleId handle);
    // Lets go of the version of a handle that is released, or whose number leads to another version now: the last one
    // to do so saves it, or gives it up. To be called once the version's closes are decided.
    void release_writer(const HandlePtr& handle, const Reply<void>& reply);
    // The kernel will send no RELEASE any more.
    void disconnected();

private:
    static constexpr int kInspections = 4;

    struct Closing;
    struct Written {
        NodePtr node;
        std::shared_ptr<FileWriter> writer;
    };
    void complete_facts(const Closing& closing, CloseFacts& facts) const;
    void decide_later(const std::shared_ptr<Closing>& closing);
    [[nodiscard]] static bool waits_for_others(const Closing& closing, const CloseFacts& facts);
    [[nodiscard]] bool must_look_again(const std::shared_ptr<Closing>& closing, const CloseFacts& facts,
                                       const CloseDecision& decision);
    void decide_and_close(const std::shared_ptr<Closing>& closing);
    // What an fsync(2) by this handle has to commit.
    [[nodiscard]] Written written_behind(const Handle& handle) const;
    void note_let_go(const Handle& handle) const;
    void release_cut_off(const HandlePtr& handle, const Reply<void>& reply);
    void finish_release(const HandlePtr& handle, Status saved, const Reply<void>& reply);

    SharedState& state_;
    HandleTable& handles_;
    FileCommits& commits_;
    FileFailures& failures_;
    Draining& draining_;

    // Declared last: these run code that uses everything above. Waits for requests that the kernel sends a moment
    // later.
    OwnedTimers waits_;
    // Inspects in /proc what processes hold: milliseconds for one with thousands of descriptors. One task for each
    // close that the kernel waits for.
    const std::unique_ptr<Executor> inspections_ = make_blocking_executor(kInspections);
};

}  // namespace ckptfs::fs
