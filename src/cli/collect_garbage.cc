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

    Result<std::vector<FoundLeftover>> find() {
        Result<std::vector<Begun>> begun = all_begun();
        if (!begun) {
            return failure(std::move(begun.error()));
        }
        std::stable_sort(begun->begin(), begun->end(),
                         [](const Begun& one, const Begun& other) { return one.when < other.when; });
        if (const Status seen = see_mounts(*begun); !seen) {
            return failure(seen.error());
        }
        std::vector<FoundLeftover> found;
        for (Begun& each : *begun) {
            const auto age = std::chrono::duration_cast<Milliseconds>(now_ - each.when);
            const Leftover state = judge(each.when, mounts_above(each.upload.key), now_, request_.older_than);
            const bool is_file = each.upload.id.empty();
            found.push_back(FoundLeftover{std::move(each.upload), is_file, state, age, each.size, false, {}});
        }
        return found;
    }

    void measure(std::vector<FoundLeftover>& found) {
        for_each(found, [this](FoundLeftover& each, const std::function<void(Status)>& done) {
            if (each.is_file) {
                done({});
                return;
            }
            store_.list_parts(each.upload, [&each, done](const Result<std::vector<UploadedPart>>& parts) {
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

    void end(std::vector<FoundLeftover>& found) {
        for_each(found, [this](FoundLeftover& each, const std::function<void(Status)>& done) {
            if (each.state != Leftover::kAbandoned) {
                done({});
                return;
            }
            const auto ended = [&each, done](const Status& status) {
                each.ended = status.has_value();
                each.problem = status ? "" : status.error().message;
                done({});
            };
            if (each.is_file) {
                store_.remove(each.upload.key, ended);
            } else {
                store_.abort_upload(each.upload, ended);
            }
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
    struct Begun {
        UploadId upload;
        WallTime when;
        std::uint64_t size = 0;
    };

    Result<std::vector<Begun>> all_begun() {
        Result<std::vector<OpenUpload>> open =
            wait_for<std::vector<OpenUpload>>([&](auto done) { store_.list_uploads(request_.prefix, done); });
        if (!open) {
            return failure(std::move(open.error()));
        }
        std::vector<Begun> begun;
        for (OpenUpload& each : *open) {
            begun.push_back({std::move(each.upload), each.initiated});
        }
        const Result<std::vector<ObjectInfo>> files = list_all(store_, request_.prefix + std::string(kTemporaryPrefix));
        if (!files) {
            return failure(files.error());
        }
        for (const ObjectInfo& file : *files) {
            begun.push_back({{file.key, ""}, file.last_modified, file.size});
        }
        return begun;
    }

    static void for_each(std::vector<FoundLeftover>& found,
                         const std::function<void(FoundLeftover&, const std::function<void(Status)>&)>& start) {
        static_cast<void>(for_each_in_parallel(
            found.size(), kAtOnce,
            [&](std::size_t index, const std::function<void(Status)>& done) { start(found[index], done); }));
    }

    // Whoever began it: nobody needs to be asked for.
    [[nodiscard]] bool is_young(const Begun& begun) const {
        return judge(begun.when, {}, now_, request_.older_than) == Leftover::kYoung;
    }

    Status see_mounts(const std::vector<Begun>& begun) {
        const std::vector<std::string> asked = mounts_may_be_at(request_.prefix);
        std::set<std::string> directories(asked.begin(), asked.end());
        for (const Begun& each : begun) {
            if (is_young(each)) {
                continue;
            }
            const std::vector<std::string> above = mounts_may_be_at(each.upload.key);
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
                                      const std::function<void(const FoundLeftover&)>& found) {
    Collection collection(store, clock, request);
    Result<std::vector<FoundLeftover>> leftovers = collection.find();
    if (!leftovers) {
        return failure(std::move(leftovers.error()));
    }
    collection.measure(*leftovers);
    GarbageTotals totals;
    if (request.end) {
        collection.end(*leftovers);
        totals.problems += collection.remove_dead_mounts();
    }
    totals.dead_mounts = collection.dead_mounts();
    for (const FoundLeftover& each : *leftovers) {
        ++(each.is_file ? totals.files : totals.uploads);
        totals.size += each.size;
        totals.abandoned += each.state == Leftover::kAbandoned ? 1 : 0;
        totals.abandoned_size += each.state == Leftover::kAbandoned ? each.size : 0;
        totals.ended += each.ended ? 1 : 0;
        totals.problems += each.problem.empty() ? 0 : 1;
        found(each);
    }
    return totals;
}

std::string describe(const FoundLeftover& leftover) {
    const auto hours = std::chrono::duration_cast<std::chrono::hours>(leftover.age).count();
    const std::string_view ended = leftover.is_file ? "removed" : "ended";
    std::string text = format("{}: {}{} MiB, begun {} h ago, {}", escaped(leftover.upload.key),
                              leftover.is_file ? "hidden file, " : "", mebibytes(leftover.size), hours,
                              leftover.ended ? ended : name_of(leftover.state));
    if (!leftover.problem.empty()) {
        text += ": " + escaped(leftover.problem);
    }
    return text;
}

std::string describe(const GarbageTotals& totals) {
    std::string text = counted(totals.uploads, "upload") + " open";
    if (totals.files > 0) {
        text += format(" and {}", counted(totals.files, "hidden file"));
    }
    text += format(", {} MiB, about ${:.2f} a month; {} abandoned, {} MiB", mebibytes(totals.size),
                   static_cast<double>(totals.size) / static_cast<double>(kGibibyte) * kDollarsPerGibibyteAndMonth,
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
