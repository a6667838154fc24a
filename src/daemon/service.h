// SPDX-License-Identifier: Apache-2.0
// A mount's life after it answers: serves until it is to end, then waits for files that are being saved.
//
// It ends by SIGTERM or SIGINT, by SIGHUP where that says that its terminal is gone, by `ckptfs unmount`, or because
// another process has unmounted it. In each case no file is opened for writing any more, and uploads get
// --drain-timeout to finish; files that are not saved then are named.
//
// Threads: run() on one thread; session_ended() from any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "ckptfs/clock.h"
#include "ckptfs/status.h"
#include "daemon/control.h"
#include "fs/file_system.h"

namespace ckptfs {

// A signalfd(2) for the signals that end a mount. Blocks them for this thread and those it starts later.
Result<FileDescriptor> take_over_signals();

class Service {
public:
    struct Outcome {
        // What ended the mount, for the log.
        std::string reason;
        // Keys of the files that are not saved.
        std::vector<std::string> lost;
        // Lines of FileSystem::left_undone().
        std::vector<std::string> undone;
    };

    // Called by run(), on its thread; each may be missing.
    struct Events {
        // About how often `heartbeat` is called, from the beginning to the end. Not zero if `heartbeat` is set.
        Milliseconds heartbeat_period{0};
        std::function<void()> heartbeat;
        // Returns the reply to `ckptfs status`, with its line feed.
        std::function<std::string(const fs::FileSystem&)> status;
        // Called for SIGHUP. Returns whether the mount is to end; if this is missing, it is.
        std::function<bool()> hung_up;
        // Returns what a disk has acknowledged and is not in the bucket, which is added to the progress.
        std::function<DrainProgress()> unsent;
        // Whether another mount has taken over what is left, which is then not waited for.
        std::function<bool()> handed_over;
        // Called several times a second once the mount is to end.
        std::function<void(const DrainProgress&)> draining;
    };

    virtual ~Service() = default;
    // `signals`: of take_over_signals(). `control` may be null; it gets the progress and outlives the service.
    static Result<std::unique_ptr<Service>> create(FileDescriptor signals, ControlServer* control, Events events);

    // Returns when everything is saved or given up.
    virtual Outcome run(fs::FileSystem& fs, const Clock& clock, Milliseconds drain_timeout) = 0;
    virtual void session_ended() = 0;
};

}  // namespace ckptfs
