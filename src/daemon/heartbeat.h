// SPDX-License-Identifier: Apache-2.0
// A small object that shows that a mount is alive: gc ends no open upload that may belong to a mount seen alive lately.
// Its Last-Modified is the time of the last beat; its body holds the host's name and the time of mounting.
//
// The first beat comes after the first period: a mount that is gone by then costs no request, and its uploads are too
// young for gc to end.
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

    // For the end of the mount: no beat comes after it. Calls `gone` once the object was removed or could not be, or if
    // there was none.
    void stop(std::function<void()> gone);

private:
    class Beats;
    const std::shared_ptr<Beats> beats_;
};

// A mount, as its heartbeat shows it.
struct SeenMount {
    std::string host;
    // Last-Modified of the heartbeat.
    WallTime last_seen{};
    // When it was mounted, by the store's clock as far as the mount knew it; empty if the heartbeat does not say.
    std::optional<WallTime> since;
};

// Make and parse the body of a heartbeat. Pure.
[[nodiscard]] std::string heartbeat_text(const std::string& host, WallTime since);
[[nodiscard]] SeenMount parse_heartbeat(std::string_view text, WallTime last_seen);

}  // namespace ckptfs
