// SPDX-License-Identifier: Apache-2.0
// A mount that tells others of the bucket what is unsent, and asks before it makes a marker.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "support/eventually.h"
#include "unit/writeback/writeback_fixture.h"
#include "writeback/given_up.h"

namespace ckptfs::testing {

inline const std::string kUnsent = "p/.ckptfs/unsent/d/";
inline const std::string kLarge(100'000, 'x');

class ToldToOthers : public WritebackTest {
protected:
    ToldToOthers() {
        change_environment = [this](WritebackEnvironment& environment) {
            environment.prefix = "p/";
            environment.host = "node-1";
            environment.announced_as = [](const std::string& key) {
                return key.ends_with(".log") || key.ends_with(".metadata") ? "" : key;
            };
            environment.is_direct = [](const std::string& key) { return key.starts_with("p/.ckptfs/"); };
            environment.announced_by_others = [this](const std::string& /*key*/, const auto& done) { done(announced); };
            environment.may_mark = [this](const UnsentChange& marker, const std::function<void(Status)>& done) {
                awaited = marker.awaited;
                ++asked;
                done(may_mark());
            };
            environment.made_good = [this](const std::string& key) {
                const MutexLock lock(mutex);
                lost_.erase(key);
            };
            environment.given_up = given_up_markers.get();
            environment.lost = [this](const std::string& key, const Error& why) {
                const MutexLock lock(mutex);
                lost_.emplace(key, why.errno_value);
            };
            environment.begin_file = [this](const std::string& /*key*/) {
                ++written;
                return [this] { --written; };
            };
        };
    }
    [[nodiscard]] bool is_told() const {
        const std::vector<std::string> keys = bucket.keys();
        return std::any_of(keys.begin(), keys.end(), [](const auto& key) { return key.starts_with(kUnsent); });
    }
    // Without what mounts tell each other.
    [[nodiscard]] std::vector<std::string> files() const {
        std::vector<std::string> keys = bucket.keys();
        std::erase_if(keys, [](const auto& key) { return key.starts_with("p/.ckptfs/"); });
        return keys;
    }

    [[nodiscard]] std::vector<std::string> announcements() const {
        std::vector<std::string> keys = bucket.keys();
        std::erase_if(keys, [](const auto& key) { return !key.starts_with(kUnsent); });
        return keys;
    }

    // By others; and what may_mark() was asked with, last.
    Result<std::vector<std::uint64_t>> announced = std::vector<std::uint64_t>();
    std::vector<std::uint64_t> awaited;
    std::function<Status()> may_mark = [] { return Status(); };
    std::atomic<int> asked = 0;
    std::atomic<int> written = 0;
    // And not made good.
    [[nodiscard]] std::map<std::string, int> lost() const EXCLUDES(mutex) {
        const MutexLock lock(mutex);
        return lost_;
    }
    mutable Mutex mutex;
    std::map<std::string, int> lost_ GUARDED_BY(mutex);
    SystemClock clock;
    std::unique_ptr<GivenUpMarkers> given_up_markers = std::make_unique<GivenUpMarkers>(clock, std::chrono::hours(1));
    // As at the end of the process, which remembers what `killed` gave up for `counts_for` no more.
    std::unique_ptr<WritebackMount> restart(std::unique_ptr<WritebackMount> killed,
                                            Milliseconds counts_for = std::chrono::hours(1)) {
        kill(std::move(killed));
        given_up_markers = std::make_unique<GivenUpMarkers>(clock, counts_for);
        return started();
    }
    // What was begun with an impatient timer before has ended.
    void pass_a_moment(WritebackMount& made) const {
        ASSERT_TRUE(made.put("p/moment/a", kLarge));
        made.unsent().start();
        made.wait_until_sent();
        ASSERT_TRUE(eventually([this] {
            const std::vector<std::string> keys = bucket.keys();
            return std::none_of(keys.begin(), keys.end(),
                                [](const auto& key) { return key.starts_with("p/.ckptfs/unsent/moment/"); });
        }));
    }
};

inline Status refusal(bool retryable) {
    Error error;
    error.errno_value = EIO;
    error.retryable = retryable;
    error.message = "not now";
    return failure(std::move(error));
}

}  // namespace ckptfs::testing
