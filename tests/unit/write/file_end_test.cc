// SPDX-License-Identifier: Apache-2.0
#include "write/file_end.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "base/mutex.h"

namespace ckptfs {
namespace {

TEST(FileEnd, TellsTheErrorOfWhatIsEndedAndNoneOfBefore) {
    Mutex mutex;
    Outbox outbox;
    FileEnd end(outbox);
    std::vector<int> told;
    const auto end_one = [&](const Status& status, bool is_waited_for) {
        MutexLock lock(mutex);
        end.begin();
        if (is_waited_for) {
            end.when_ended([&](const Status& ended) { told.push_back(ended ? 0 : ended.error().errno_value); });
        }
        end.ended(status);
        end.answer();
        outbox.deliver(lock);
    };
    end_one(failure(EACCES, "refused"), true);
    end_one({}, true);
    end_one(failure(EACCES, "refused"), false);
    end_one({}, true);
    EXPECT_EQ(told, (std::vector<int>{EACCES, 0, 0}));
}

}  // namespace
}  // namespace ckptfs
