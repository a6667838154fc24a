// SPDX-License-Identifier: Apache-2.0
#include "daemon/leftover_policy.h"

#include <algorithm>
#include <chrono>

#include "base/numbers.h"
#include "base/text.h"

namespace ckptfs {
namespace {

constexpr std::string_view kHost = "host: ";
constexpr std::string_view kSince = "since: ";
// Two beats in a row may be lost, each after all its retries of --retry-for (5 minutes). Mounts of earlier versions
// beat again only a whole period after each.
constexpr std::chrono::minutes kSilence{45};
// How far the clock of a host may be from the store's: beyond it the store refuses the host's requests
// (RequestTimeTooSkewed).
constexpr std::chrono::minutes kClockSkew{15};

}  // namespace

std::string heartbeat_text(const std::string& host, WallTime since) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since.time_since_epoch()).count();
    return format("{}{}\n{}{}\n", kHost, host, kSince, seconds);
}

SeenMount parse_heartbeat(std::string_view text, WallTime last_seen) {
    SeenMount mount;
    mount.last_seen = last_seen;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        if (line.starts_with(kHost)) {
            mount.host = line.substr(kHost.size());
        } else if (line.starts_with(kSince)) {
            const auto seconds = whole_number<std::int64_t>(line.substr(kSince.size()));
            const auto latest =
                std::chrono::duration_cast<std::chrono::seconds>(last_seen.time_since_epoch() + kClockSkew).count();
            if (seconds && *seconds >= 0 && *seconds <= latest) {
                mount.since = WallTime(std::chrono::seconds(*seconds));
            }
        }
    }
    return mount;
}

std::string_view name_of(Leftover leftover) {
    switch (leftover) {
        case Leftover::kAbandoned:
            return "abandoned";
        case Leftover::kYoung:
            return "young";
        case Leftover::kPerhapsInUse:
            return "perhaps in use";
        case Leftover::kUnfinished:
            return "unfinished";
    }
    return "";
}

bool lives(const SeenMount& mount, WallTime now) {
    return now - mount.last_seen < kSilence;
}

Leftover judge(WallTime initiated, const std::vector<SeenMount>& mounts, WallTime now, Milliseconds older_than) {
    if (now - initiated < older_than) {
        return Leftover::kYoung;
    }
    const bool in_use = std::any_of(mounts.begin(), mounts.end(), [&](const SeenMount& mount) {
        return lives(mount, now) && (!mount.since || initiated > *mount.since - kClockSkew);
    });
    return in_use ? Leftover::kPerhapsInUse : Leftover::kAbandoned;
}

}  // namespace ckptfs
