// SPDX-License-Identifier: Apache-2.0
#include "cli/collect_garbage.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/range_fetch.h"
#include "base/text.h"
#include "ckptfs/format.h"
#include "ckptfs/log.h"
#include "cli/amounts.h"
#include "fs/commit_policy.h"
#include "fs/store_wait.h"
#include "fs/tree_copy.h"

namespace ckptfs {
namespace {

constexpr std::size_t kAtOnce = 16;
constexpr std::uint64_t kLongestHeartbeat = 4096;
// S3 Standard's list price in us-east-1, of which other places and classes differ little.
constexpr double kDollarsPerGibibyteAndMonth = 0.023;
// What stands for nothing any more (ckptfs-format(5)).
constexpr std::chrono::hours kForgotten{24};

struct Heartbeats {
    std::vector<SeenMount> mounts;
    std::vector<std::string> dead;
};

// At which a mount may be that writes the key.
std::vector<std::string> mounts_may_be_at(const std::string& key) {
    std::vector<std::string> directories = directories_above(key, "");
    directories.emplace_back();
    return directories;
}

// Without those that are removed meanwhile.
Result<Heartbeats> heartbeats_at(ObjectStore& store, const std::string& directory, WallTime now) {
    const Result<std::vector<ObjectInfo>> objects = list_all(store, directory + std::string(kMountsPrefix));
    if (!objects) {
        return failure(objects.error());
    }
    Heartbeats heartbeats;
    for (const ObjectInfo& object : *objects) {
        if (now - object.last_modified > kForgotten) {
            heartbeats.dead.push_back(object.key);
            continue;
        }
        const ByteRange range{0, std::min(object.size, kLongestHeartbeat)};
        const Result<FetchedRange> body =
            wait_for<FetchedRange>([&](auto done) { fetch_range(store, object.key, object.etag, range, done); });
        if (body || body.error().errno_value != ENOENT) {
            // One that has just beaten again tells nothing, and counts all the more.
            heartbeats.mounts.push_back(parse_heartbeat(body ? body->bytes.to_string() : "", object.last_modified));
        }
    }
    return heartbeats;
}

class Collection {
public:
    Collection(ObjectStore& store, const Clock& clock, const GarbageRequest& request)
        : store_(store), now_(clock.wall_now()), request_(request) {}

    Result<std::vector<FoundUpload>> find() {
        Result<std::vector<OpenUpload>> open =
            wait_for<std::vector<OpenUpload>>([&](auto done) { store_.list_uploads(request_.prefix, done); });
        if (!open) {
            return failure(std::move(open.error()));
        }
        std::stable_sort(open->begin(), open->end(), [](const OpenUpload& one, const OpenUpload& other) {
            return one.initiated < other.initiated;
        });
        if (const Status seen = see_mounts(*open); !seen) {
            return failure(seen.error());
        }
        std::vector<FoundUpload> found;
        for (OpenUpload& upload : *open) {
            const auto age = std::chrono::duration_cast<Milliseconds>(now_ - upload.initiated);
            const Leftover state = judge(upload.initiated, mounts_above(upload.upload.key), now_, request_.older_than);
            found.push_back(FoundUpload{std::move(upload), state, age, 0, false, {}});
        }
        return found;
    }

    void measure(std::vector<FoundUpload>& found) {
        for_each(found, [this](FoundUpload& each, const std::function<void(Status)>& done) {
            store_.list_parts(each.upload.upload, [&each, done](const Result<std::vector<UploadedPart>>& parts) {
                for (const UploadedPart& part : parts ? *parts : std::vector<UploadedPart>()) {
                    each.size += part.size;
                }
                if (!parts && parts.error().errno_value != ENOENT) {
                    each.problem = parts.error().message;
                }
                done({});
            });
        });
    }

    void end(std::vector<FoundUpload>& found) {
        for_each(found, [this](FoundUpload& each, const std::function<void(Status)>& done) {
            if (each.state != Leftover::kAbandoned) {
                done({});
                return;
            }
            store_.abort_upload(each.upload.upload, [&each, done](const Status& ended) {
                each.ended = ended.has_value();
                each.problem = ended ? "" : ended.error().message;
                done({});
            });
        });
    }

    // How many could not be removed.
    std::uint64_t remove_dead_mounts() {
        std::uint64_t failed = 0;
        for (const std::string& key : dead_) {
            if (const Status removed = wait_for<void>([&](auto done) { store_.remove(key, done); }); !removed) {
                log_error(escaped(removed.error().message));
                ++failed;
            }
        }
        return failed;
    }
    [[nodiscard]] std::size_t dead_mounts() const { return dead_.size(); }

private:
    static void for_each(std::vector<FoundUpload>& found,
                         const std::function<void(FoundUpload&, const std::function<void(Status)>&)>& start) {
        static_cast<void>(for_each_in_parallel(
            found.size(), kAtOnce,
            [&](std::size_t index, const std::function<void(Status)>& done) { start(found[index], done); }));
    }

    // Whoever began it: nobody needs to be asked for.
    [[nodiscard]] bool is_young(const OpenUpload& upload) const {
        return judge(upload.initiated, {}, now_, request_.older_than) == Leftover::kYoung;
    }

    Status see_mounts(const std::vector<OpenUpload>& uploads) {
        const std::vector<std::string> asked = mounts_may_be_at(request_.prefix);
        std::set<std::string> directories(asked.begin(), asked.end());
        for (const OpenUpload& upload : uploads) {
            if (is_young(upload)) {
                continue;
            }
            const std::vector<std::string> above = mounts_may_be_at(upload.upload.key);
            directories.insert(above.begin(), above.end());
        }
        for (const std::string& directory : directories) {
            Result<Heartbeats> seen = heartbeats_at(store_, directory, now_);
            if (!seen) {
                return failure(std::move(seen.error()));
            }
            mounts_[directory] = std::move(seen->mounts);
            std::move(seen->dead.begin(), seen->dead.end(), std::back_inserter(dead_));
        }
        return {};
    }

    std::vector<SeenMount> mounts_above(const std::string& key) const {
        std::vector<SeenMount> mounts;
        for (const std::string& directory : mounts_may_be_at(key)) {
            if (const auto here = mounts_.find(directory); here != mounts_.end()) {
                mounts.insert(mounts.end(), here->second.begin(), here->second.end());
            }
        }
        return mounts;
    }

    ObjectStore& store_;
    const WallTime now_;
    const GarbageRequest& request_;
    std::map<std::string, std::vector<SeenMount>> mounts_;
    std::vector<std::string> dead_;
};

}  // namespace

Result<GarbageTotals> collect_garbage(ObjectStore& store, const Clock& clock, const GarbageRequest& request,
                                      const std::function<void(const FoundUpload&)>& found) {
    Collection collection(store, clock, request);
    Result<std::vector<FoundUpload>> uploads = collection.find();
    if (!uploads) {
        return failure(std::move(uploads.error()));
    }
    collection.measure(*uploads);
    GarbageTotals totals;
    if (request.end) {
        collection.end(*uploads);
        totals.problems += collection.remove_dead_mounts();
    }
    totals.dead_mounts = collection.dead_mounts();
    for (const FoundUpload& each : *uploads) {
        ++totals.uploads;
        totals.size += each.size;
        totals.abandoned += each.state == Leftover::kAbandoned ? 1 : 0;
        totals.abandoned_size += each.state == Leftover::kAbandoned ? each.size : 0;
        totals.ended += each.ended ? 1 : 0;
        totals.problems += each.problem.empty() ? 0 : 1;
        found(each);
    }
    return totals;
}

std::string describe(const FoundUpload& upload) {
    const auto hours = std::chrono::duration_cast<std::chrono::hours>(upload.age).count();
    std::string text = format("{}: {} MiB, begun {} h ago, {}", escaped(upload.upload.upload.key),
                              mebibytes(upload.size), hours, upload.ended ? "ended" : name_of(upload.state));
    if (!upload.problem.empty()) {
        text += ": " + escaped(upload.problem);
    }
    return text;
}

std::string describe(const GarbageTotals& totals) {
    constexpr double kGibibyte = 1073741824;
    std::string text =
        format("{} open, {} MiB, about ${:.2f} a month; {} abandoned, {} MiB", counted(totals.uploads, "upload"),
               mebibytes(totals.size), static_cast<double>(totals.size) / kGibibyte * kDollarsPerGibibyteAndMonth,
               totals.abandoned, mebibytes(totals.abandoned_size));
    if (totals.ended > 0) {
        text += format(", {} ended", totals.ended);
    } else if (totals.abandoned > 0) {
        text += "; --end ends them";
    }
    return text;
}

int exit_code(const GarbageTotals& totals) {
    return totals.problems == 0 ? 0 : 1;
}

}  // namespace ckptfs
