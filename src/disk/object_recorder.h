// SPDX-License-Identifier: Apache-2.0
// Records what requests show of the bucket (ObjectRecord), in the background.
//
// The number of waiting events is limited. Where the disk does not keep up, bytes are left out first, and then lists;
// where anything else would be, all that was recorded of this bucket is dropped, because it would be outdated. Where
// the disk fails, all that was recorded is removed, and nothing is recorded for a while; recording then begins with
// nothing. A database that other processes use is waited for.
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
        // Limit for the database, in bytes.
        std::uint64_t limit = 0;
    };
    // Time from the first event that waits until all that wait are written.
    static constexpr Milliseconds kWritesAfter{200};
    // How long a disk that failed is not used.
    static constexpr Milliseconds kLeftAlone{60'000};

    ObjectRecorder(Config config, const Clock& clock, Timer& timer);
    ~ObjectRecorder();
    ObjectRecorder(const ObjectRecorder&) = delete;
    ObjectRecorder& operator=(const ObjectRecorder&) = delete;

    // Of a reply, when it was asked for; of a change of this mount's, when it ended.
    struct Moment {
        SteadyTime at{};
        bool is_change = false;
    };
    [[nodiscard]] SteadyTime now() const { return clock_.now(); }

    // What another process has changed meanwhile is left as it recorded it.
    void there(SeenObject seen, Moment moment);
    void gone(std::string key, Moment moment);
    // A change. `copy`: only its keys, `source_if_match` and `description` count.
    void copied(CopyRequest copy, PutResponse written, SteadyTime ended);
    // `left_alone`: names of which something newer is known.
    void listed(ListRequest request, ListResponse page, std::set<std::string> left_alone, SteadyTime asked);
    // Drops the bytes recorded of an object.
    void drop(std::string key);

    // Writes what waits, and nothing after it. False if the disk hangs: then a thread may use its state for as long as
    // the process lives.
    bool stop(Milliseconds patience);

private:
    struct There {
        SeenObject seen;
        Moment moment;
    };
    struct Gone {
        std::string key;
        Moment moment;
    };
    struct Copied {
        CopyRequest copy;
        PutResponse written;
        SteadyTime ended{};
    };
    struct Listed {
        ListRequest request;
        ListResponse page;
        std::set<std::string> left_alone;
        SteadyTime asked{};
    };
    struct Dropped {
        std::string key;
    };
    using Event = std::variant<There, Gone, Copied, Listed, Dropped>;
    // What the writing thread uses, even after the end of this object if the disk hangs.
    class State;

    void add(Event event);
    void write_now();

    const Clock& clock_;
    const std::shared_ptr<State> state_;
    DiskThreads writes_;
    OwnedTimers timers_;
};

}  // namespace ckptfs
