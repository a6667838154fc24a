// SPDX-License-Identifier: Apache-2.0
// How the store was found to differ from S3, kept for as long as it is used, so that what it refuses is not sent to it
// again with every operation.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "base/mutex.h"

namespace ckptfs::s3 {

// How a condition (If-Match, If-None-Match, x-amz-copy-source-if-match) is sent.
enum class SentCondition : std::uint8_t { kAsInS3, kWithoutQuotes, kNotAtAll };

class StoreHabits {
public:
    // Notes a habit. True the first time: it is worth a log line.
    bool note(const std::string& habit) {
        const MutexLock lock(mutex_);
        return told_.insert(habit).second;
    }
    [[nodiscard]] bool has(const std::string& habit) const {
        const MutexLock lock(mutex_);
        return told_.contains(habit);
    }

    // Notes that a condition of this kind held, and was accepted only when sent in this way. That is believed when it
    // was seen twice, and none was accepted in another way in between: a proxy may have refused the first, and while it
    // was checked, the version may have gone and come back. True when it comes to be believed: it is worth a log line.
    bool took(const std::string& kind, SentCondition sent) {
        const MutexLock lock(mutex_);
        Seen& seen = conditions_[kind];
        seen.times = seen.sent == sent ? seen.times + 1 : 1;
        seen.sent = sent;
        return sent != SentCondition::kAsInS3 && seen.times == 2;
    }
    [[nodiscard]] SentCondition condition(const std::string& kind) const {
        const MutexLock lock(mutex_);
        const auto found = conditions_.find(kind);
        return found != conditions_.end() && found->second.times > 1 ? found->second.sent : SentCondition::kAsInS3;
    }

private:
    struct Seen {
        SentCondition sent = SentCondition::kAsInS3;
        std::uint64_t times = 0;
    };

    mutable Mutex mutex_;
    std::set<std::string> told_ GUARDED_BY(mutex_);
    std::map<std::string, Seen> conditions_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::s3
