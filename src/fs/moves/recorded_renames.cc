// SPDX-License-Identifier: Apache-2.0
#include "fs/moves/recorded_renames.h"

#include <utility>

#include "ckptfs/bucket_layout.h"
#include "fs/moves/directory_rename.h"

namespace ckptfs::fs {

void RenameRecords::ask(Reply<std::shared_ptr<const RecordedRenames>> reply) {
    const SteadyTime now = state_.env.clock.now();
    std::shared_ptr<const RecordedRenames> last;
    {
        const MutexLock lock(mutex_);
        last = last_;
    }
    // The other half is for the list of names.
    if (last != nullptr && now - last->asked < kRecordLead / 2) {
        reply(std::move(last));
        return;
    }
    ListRequest list;
    list.prefix = state_.env.prefix + std::string(kRenamesPrefix);
    state_.env.store.list(list, [this, now, reply = std::move(reply)](Result<ListResponse> records) {
        if (records) {
            reply(take(*records, now));
        } else if (is_refused_by_store(records.error())) {
            // A mount that may not see them shows every directory.
            reply(take({}, SteadyTime{}));
        } else {
            reply(failure(std::move(records.error())));
        }
    });
}

std::shared_ptr<const RecordedRenames> RenameRecords::take(const ListResponse& records, SteadyTime asked) {
    auto taken = std::make_shared<RecordedRenames>();
    taken->asked = records.next_continuation_token.empty() ? asked : SteadyTime{};
    taken->answered = state_.env.clock.now();
    for (const ObjectInfo& record : records.objects) {
        if (const auto paths = recorded_paths(state_.env.prefix, record.key)) {
            taken->sources.insert(paths->source);
            taken->destinations.insert(paths->destination);
            repairs_.met_record(record.key);
        }
    }
    const MutexLock lock(mutex_);
    last_ = taken;
    return taken;
}

}  // namespace ckptfs::fs
