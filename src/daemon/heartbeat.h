// SPDX-License-Identifier: Apache-2.0
// A small object that says that a mount is alive, to tell whose an open upload may be: gc ends none while a mount
// was seen alive lately. Its Last-Modified is the time; its body is the host's name and since when it is mounted.
//
// The first one comes after the first period: a mount that is gone by then costs nothing, and its uploads are too young
// to be ended.
//
// Ownership: store and timer outlive it. The destructor stops it and leaves the object.
// Threads: all functions may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"

namespace ckptfs {

class Heartbeat {
public:
    struct Environment {
        ObjectStore& store;
        Timer& timer;
        const Clock& clock;
        // In [0, 1): a whole cluster that starts at once must not beat at once.
        std::function<double()> random;
    };
    // `key`: PREFIX.ckptfs/mounts/UUID
    Heartbeat(Environment environment, std::string key, const std::string& host);
    ~Heartbeat();
    Heartbeat(const Heartbeat&) = delete;
    Heartbeat& operator=(const Heartbeat&) = delete;

    // For the end of the mount: no beat comes after it, and `gone` when the object is removed, or could not be, or
    // there was none.
    void stop(std::function<void()> gone);

private:
    class Beats;
    const std::shared_ptr<Beats> beats_;
};

// A mount, as its heartbeat shows it.
struct SeenMount {
    std::string host;
    // Last-Modified.
    WallTime last_seen{};
    // When it was mounted, by the clock of its host; empty where it does not tell.
    std::optional<WallTime> since;
};

// The body of one. Pure.
[[nodiscard]] std::string heartbeat_text(const std::string& host, WallTime since);
[[nodiscard]] SeenMount parse_heartbeat(std::string_view text, WallTime last_seen);

}  // namespace ckptfs
