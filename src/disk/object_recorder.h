// SPDX-License-Identifier: Apache-2.0
// Records what requests show of the bucket (ObjectRecord), in the background.
//
// What waits is bounded. Where the disk does not keep up, bytes are left out first, and then answers; where changes
// would be, what was recorded of this bucket before goes, because it would be older than what it stands for. Where the
// disk fails, all that was recorded goes, and nothing is recorded for a while. A database that others use is waited
// for.
//
// Ownership: `timer` and `clock` outlive it.
// Threads: all functions may be called from any thread, and return at once; only stop() waits.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <variant>

#include "base/owned_timers.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "disk/disk_threads.h"
#include "disk/object_record.h"

namespace ckptfs {

class ObjectRecorder {
public:
    struct Config {
        // The cache directory, which exists.
        std::string directory;
        // Endpoint and bucket.
        std::string store;
        // Of the database, in bytes.
        std::uint64_t limit = 0;
    };
    // What is waiting is written so long after the first of it came.
    static constexpr Milliseconds kWritesAfter{200};
    // How long a disk that failed is left alone.
    static constexpr Milliseconds kLeftAlone{60'000};

    ObjectRecorder(Config config, const Clock& clock, Timer& timer);
    ~ObjectRecorder();
    ObjectRecorder(const ObjectRecorder&) = delete;
    ObjectRecorder& operator=(const ObjectRecorder&) = delete;

    // By an answer, or by a change of this mount's: only those must not be lost.
    enum class By : std::uint8_t { kAnswer, kChange };
    void there(SeenObject seen, By by);
    void gone(std::string key, By by);
    // `description` and what it is of is all that counts.
    void copied(CopyRequest copy, PutResponse written);
    // `left_alone`: names of which something newer is known.
    void listed(ListRequest request, ListResponse page, std::set<std::string> left_alone);
    // Its bytes.
    void drop(std::string key);

    // Writes what waits, and nothing after it. False where the disk hangs: then a thread may use what it has for as
    // long as the process lives.
    bool stop(Milliseconds patience);

private:
    struct Gone {
        std::string key;
    };
    struct Copied {
        CopyRequest copy;
        PutResponse written;
    };
    struct Listed {
        ListRequest request;
        ListResponse page;
        std::set<std::string> left_alone;
    };
    struct Dropped {
        std::string key;
    };
    using Event = std::variant<SeenObject, Gone, Copied, Listed, Dropped>;
    // What the writing thread has, also after the end of this where the disk hangs.
    class State;

    void add(Event event, By by);
    void write_now();

    const Clock& clock_;
    const std::shared_ptr<State> state_;
    DiskThreads writes_;
    OwnedTimers timers_;
};

}  // namespace ckptfs
