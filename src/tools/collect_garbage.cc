// SPDX-License-Identifier: Apache-2.0
#include "tools/collect_garbage.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/range_fetch.h"
#include "base/store_wait.h"
#include "base/text.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "daemon/heartbeat.h"
#include "fs/failures/commit_policy.h"
#include "fs/objects/tree_copy.h"

namespace ckptfs {
namespace {

constexpr std::size_t kAtOnce = 16;
constexpr std::uint64_t kLongestHeartbeat = 4096;
// S3 Standard's list price in us-east-1, from which other regions and classes differ little.
constexpr double kDollarsPerGibibyteAndMonth = 0.023;
// A heartbeat of this age is void (ckptfs-format(5)).
constexpr std::chrono::hours kForgotten{24};

struct Heartbeats {
    std::vector<SeenMount> mounts;
    std::vector<ObjectInfo> dead;
};

// The prefixes of all mounts that may write the key.
std::vector<std::string> mounts_may_be_at(const std::string& key) {
    std::vector<std::string> directories = fs::directories_above(key, "");
    directories.emplace_back();
    return directories;
}

// The heartbeats of mounts of this prefix, without those that are removed meanwhile.
Result<Heartbeats> heartbeats_at(ObjectStore& store, const std::string& directory, WallTime now) {
    const Result<std::vector<ObjectInfo>> objects = fs::list_all(store, directory + std::string(kMountsPrefix));
    if (!objects) {
        return failure(objects.error());
    }
    Heartbeats heartbeats;
    for (const ObjectInfo& object : *objects) {
        if (now - object.last_modified > kForgotten) {
            heartbeats.dead.push_back(object);
            continue;
        }
        const ByteRange range{0, std::min(object.size, kLongestHeartbeat)};
        const Result<FetchedRange> body =
            wait_for<FetchedRange>([&](auto done) { fetch_range(store, object.key, object.etag, range, done); });
        if (body || body.error().errno_value != ENOENT) {
            // A heartbeat that was just written again may be unreadable, but counts all the more.
            heartbeats.mounts.push_back(parse_heartbeat(body ? body->bytes.to_string() : "", object.last_modified));
        }
    }
    return heartbeats;
}

class Collection {
public:
    Collection(ObjectStore& store, const Clock& clock, const GarbageRequest& request)
        : store_(store), clock_(clock), request_(request) {}

    Result<std::vector<FoundLeftover>> find() {
        Result<std::vector<Begun>> begun = all_begun();
        if (!begun) {
            return failure(std::move(begun.error()));
        }
        // By the store's clock, which is known after the lists above.
        now_ = clock_.wall_now();
        std::stable_sort(begun->begin(), begun->end(),
                         [](const Begun& one, const Begun& other) { return one.when < other.when; });
        if (const Status seen = see_mounts(*begun); !seen) {
            return failure(seen.error());
        }
        if (const Status seen = see_markers(*begun); !seen) {
            return failure(seen.error());
        }
        are_disks_awaited_ = std::any_of(begun->begin(), begun->end(), [this](const Begun& each) {
            return each.kind == LeftoverKind::kUnsent && !is_forgotten(each);
        });
        std::vector<FoundLeftover> found;
        for (Begun& each : *begun) {
            const auto age = std::chrono::duration_cast<Milliseconds>(now_ - each.when);
            const Leftover state = state_of(each);
            found.push_back(
                FoundLeftover{std::move(each.upload), each.when, each.kind, state, age, each.size, false, {}});
        }
        return found;
    }

    void measure(std::vector<FoundLeftover>& found) {
        for_each(found, [this](FoundLeftover& each, const std::function<void(Status)>& done) {
            if (each.kind != LeftoverKind::kUpload) {
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
            if (each.kind == LeftoverKind::kUpload) {
                store_.abort_upload(each.upload, ended);
            } else {
                remove_unless_written_since(each.upload.key, each.when, ended);
            }
        });
    }

    // Minutes may have passed: a mount that has begun meanwhile may have failed to write the same file.
    void remove_unless_written_since(const std::string& key, WallTime when,
                                     const std::function<void(const Status&)>& ended) {
        store_.head(key, [this, key, when, ended](const Result<ObjectInfo>& object) {
            // Lists may have fractions of a second, which Last-Modified lacks.
            using std::chrono::seconds;
            if (!object) {
                ended(object.error().errno_value == ENOENT ? Status() : failure(object.error()));
            } else if (std::chrono::floor<seconds>(object->last_modified) != std::chrono::floor<seconds>(when)) {
                ended(failure(EBUSY, "written again meanwhile"));
            } else {
                store_.remove(RemoveRequest(key, object->etag), ended);
            }
        });
    }

    // Returns how many could not be removed.
    std::uint64_t remove_dead_mounts() {
        std::uint64_t failed = 0;
        for (const ObjectInfo& each : dead_) {
            const Status removed =
                wait_for<void>([&](auto done) { remove_unless_written_since(each.key, each.last_modified, done); });
            // EBUSY: a mount that beats again was only suspended.
            if (!removed && removed.error().errno_value != EBUSY) {
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
        LeftoverKind kind = LeftoverKind::kUpload;
        std::uint64_t size = 0;
        std::string rename_id{};
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
        Result<std::vector<MountLeftover>> left = mount_leftovers(store_, request_.prefix);
        if (!left) {
            return failure(std::move(left.error()));
        }
        for (MountLeftover& each : *left) {
            const ObjectInfo& object = each.object;
            begun.push_back(
                {{object.key, ""}, object.last_modified, each.kind, object.size, std::move(each.rename_id)});
        }
        return begun;
    }

    static void for_each(std::vector<FoundLeftover>& found,
                         const std::function<void(FoundLeftover&, const std::function<void(Status)>&)>& start) {
        static_cast<void>(for_each_in_parallel(
            found.size(), kAtOnce,
            [&](std::size_t index, const std::function<void(Status)>& done) { start(found[index], done); }));
    }

    // Young whichever mount began it, so that no heartbeat needs to be read.
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

    // Only if a rename may be abandoned, because the whole prefix is listed.
    Status see_markers(const std::vector<Begun>& begun) {
        const bool is_worth_it = std::any_of(begun.begin(), begun.end(), [this](const Begun& each) {
            return !each.rename_id.empty() && !is_young(each);
        });
        if (!is_worth_it) {
            return {};
        }
        Result<std::set<std::string>> renames = renames_with_markers(store_, clock_, request_.prefix);
        if (!renames) {
            return failure(std::move(renames.error()));
        }
        hiding_ = *std::move(renames);
        return {};
    }

    [[nodiscard]] Leftover state_of(const Begun& begun) const {
        std::vector<SeenMount> mounts = mounts_above(begun.upload.key);
        if (begun.kind == LeftoverKind::kFailureRecord) {
            // A live mount counts whenever it was mounted.
            for (SeenMount& mount : mounts) {
                mount.since.reset();
            }
        }
        const Leftover state = judge(begun.when, mounts, now_, request_.older_than);
        if (state != Leftover::kAbandoned) {
            return state;
        }
        // What a disk sends may be a copy of a hidden file that was sent before.
        const bool is_needed = begun.kind == LeftoverKind::kUnsent
                                   ? !request_.forget_disks
                                   : begun.kind == LeftoverKind::kFile && are_disks_awaited_;
        if (is_needed) {
            return Leftover::kNeededByDisk;
        }
        return hiding_.contains(begun.rename_id) ? Leftover::kUnfinished : state;
    }

    // The disk that has the files is lost for good, as far as the user knows.
    [[nodiscard]] bool is_forgotten(const Begun& unsent) const {
        return request_.forget_disks &&
               judge(unsent.when, mounts_above(unsent.upload.key), now_, request_.older_than) == Leftover::kAbandoned;
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
    const Clock& clock_;
    WallTime now_{};
    const GarbageRequest& request_;
    std::map<std::string, std::vector<SeenMount>> mounts_;
    std::vector<ObjectInfo> dead_;
    // UUIDs of the renames that hide a directory.
    std::set<std::string> hiding_;
    // Some have files that are not in the bucket.
    bool are_disks_awaited_ = false;
};

std::string_view what(LeftoverKind kind) {
    switch (kind) {
        case LeftoverKind::kUpload:
            return "";
        case LeftoverKind::kFile:
            return "hidden file, ";
        case LeftoverKind::kFailureRecord:
            return "record of a failed file, ";
        case LeftoverKind::kRenameRecord:
            return "record of a rename, ";
        case LeftoverKind::kRenameNames:
            return "names of a rename, ";
        case LeftoverKind::kUnsent:
            return "files that a disk has acknowledged, ";
    }
    return "";
}

void count(GarbageTotals& totals, LeftoverKind kind) {
    switch (kind) {
        case LeftoverKind::kUpload:
            ++totals.uploads;
            return;
        case LeftoverKind::kFile:
            ++totals.files;
            return;
        case LeftoverKind::kFailureRecord:
        case LeftoverKind::kRenameRecord:
        case LeftoverKind::kRenameNames:
        case LeftoverKind::kUnsent:
            ++totals.records;
            return;
    }
}

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
        count(totals, each.kind);
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
    const std::string_view ended = leftover.kind == LeftoverKind::kUpload ? "ended" : "removed";
    std::string text = format("{}: {}{} MiB, begun {} h ago, {}", escaped(leftover.upload.key), what(leftover.kind),
                              mebibytes(leftover.size), hours, leftover.ended ? ended : name_of(leftover.state));
    if (leftover.state == Leftover::kUnfinished) {
        text += ": a mount of the prefix ends it when it lists the directory";
    }
    if (leftover.state == Leftover::kNeededByDisk) {
        text += ": mount its --cache-dir again, or give --forget-disks if it is lost";
    }
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
    if (totals.records > 0) {
        text += format(" and {}", counted(totals.records, "record"));
    }
    text += format(", {} MiB, about ${:.2f} a month; {} abandoned, {} MiB", mebibytes(totals.size),
                   static_cast<double>(totals.size) / static_cast<double>(kGibibyte) * kDollarsPerGibibyteAndMonth,
                   totals.abandoned, mebibytes(totals.abandoned_size));
    if (totals.ended > 0) {
        text += format(", {} ended", totals.ended);
    } else if (totals.abandoned > 0) {
        text += "; --end aborts or removes them";
    }
    return text;
}

int exit_code(const GarbageTotals& totals) {
    return totals.problems == 0 ? 0 : 1;
}

}  // namespace ckptfs
