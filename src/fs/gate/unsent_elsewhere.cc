// SPDX-License-Identifier: Apache-2.0
#include "fs/gate/unsent_elsewhere.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "base/xxhash.h"
#include "ckptfs/bucket_layout.h"
#include "fs/failures/commit_policy.h"
#include "staged/hidden_key.h"

namespace ckptfs::fs {

namespace {

constexpr Milliseconds kBetweenLooks{500};
// In bytes; what ckptfs writes is one line.
constexpr std::size_t kMostHost = 256;
// A marker that waits looks more often.
constexpr std::chrono::minutes kNotLookedAtFor{10};
constexpr std::size_t kMostLate = 10'000;

}  // namespace

bool is_awaited(const std::string& object, const AskedBy& by) {
    return !by.awaited || std::binary_search(by.awaited->begin(), by.awaited->end(), xxh3(object));
}

std::string told_as_unsent(const std::string& prefix, const std::string& key, const WriteConfig& config) {
    const std::optional<HiddenFile> hidden = parse_hidden_key(prefix, key);
    const std::string file = hidden ? hidden->key : key;
    return file.ends_with('/') || is_commit_marker(file, config) || may_be_missing(file, config) ? "" : file;
}

bool is_told_at_once(const std::string& prefix, const std::string& key) {
    return key.starts_with(prefix + std::string(kControlDirectory) + "/") &&
           !key.starts_with(prefix + std::string(kTemporaryPrefix));
}

std::vector<std::uint64_t> digests_of(const std::vector<UnsentDirectory>& unsent) {
    std::vector<std::uint64_t> digests;
    for (const UnsentDirectory& each : unsent) {
        digests.push_back(xxh3(each.object));
    }
    std::sort(digests.begin(), digests.end());
    return digests;
}

ListRequest UnsentElsewhere::request_for(const std::string& directory, std::string token) const {
    ListRequest request;
    request.prefix = state_.env.prefix + std::string(kUnsentPrefix) + directory.substr(state_.env.prefix.size());
    request.continuation_token = std::move(token);
    return request;
}

void UnsentElsewhere::add(std::vector<UnsentDirectory>& unsent, const ListResponse& page, const AskedBy& by) const {
    const FileSystemEnvironment& env = state_.env;
    const std::size_t place = env.prefix.size() + kUnsentPrefix.size();
    const WallTime now = env.clock.wall_now();
    for (const ObjectInfo& object : page.objects) {
        const bool is_own = !by.disk.empty() && file_name(object.key).starts_with(by.disk + "-");
        // What counted when a disk acknowledged the marker counts until it is sent, or is_lost() gives the marker up:
        // the disk may have been away for longer.
        const bool counts = (!by.disk.empty() && by.awaited) ||
                            counts_as_unsent(object.last_modified, now, env.write.config.failed_sibling_ttl);
        if (!is_own && counts && is_awaited(object.key, by)) {
            unsent.push_back({env.prefix + directory_of(object.key.substr(place)), object.key, object.last_modified});
        }
    }
}

void UnsentElsewhere::collect(const std::string& directory, const AskedBy& by,
                              Reply<std::vector<UnsentDirectory>> reply) const {
    struct Collection : std::enable_shared_from_this<Collection> {
        Collection(const UnsentElsewhere& its_place, std::string its_directory, AskedBy its_by,
                   Reply<std::vector<UnsentDirectory>> its_reply)
            : place(its_place),
              directory(std::move(its_directory)),
              by(std::move(its_by)),
              reply(std::move(its_reply)) {}

        void ask(std::string token) {
            place.state_.env.store.list(
                place.request_for(directory, std::move(token)),
                [self = shared_from_this()](const Result<ListResponse>& page) { self->listed(page); });
        }
        void listed(const Result<ListResponse>& page) {
            if (!page) {
                reply(failure(page.error()));
                return;
            }
            place.add(unsent, *page, by);
            if (page->next_continuation_token.empty()) {
                reply(std::move(unsent));
            } else {
                ask(page->next_continuation_token);
            }
        }

        const UnsentElsewhere& place;
        const std::string directory;
        const AskedBy by;
        const Reply<std::vector<UnsentDirectory>> reply;
        std::vector<UnsentDirectory> unsent;
    };
    std::make_shared<Collection>(*this, directory, by, std::move(reply))->ask("");
}

std::future<Result<std::vector<UnsentDirectory>>> UnsentElsewhere::ask(const std::string& directory,
                                                                       const AskedBy& by) const {
    return ckptfs::ask<std::vector<UnsentDirectory>>([&](auto done) { collect(directory, by, std::move(done)); });
}

Status UnsentElsewhere::look(const std::string& directory, const AskedBy& by, const std::string& what) {
    const Result<std::vector<UnsentDirectory>> unsent = ask(directory, by).get();
    if (!unsent) {
        return unsent.error().errno_value == ECANCELED ? failure(unsent.error()) : ask_again(unsent.error());
    }
    if (unsent->empty()) {
        return {};
    }
    const auto lost =
        std::find_if(unsent->begin(), unsent->end(), [&](const UnsentDirectory& each) { return is_lost(each, by); });
    return lost == unsent->end() ? refusal(unsent->front(), what, true) : refusal(*lost, what, false);
}

Status UnsentElsewhere::wait(const std::string& directory, const AskedBy& by, const std::string& what,
                             SteadyTime begun) {
    const Clock& clock = state_.env.clock;
    for (;;) {
        // Also where the store refuses to list them: the permission may come back.
        Status looked = look(directory, by, what);
        if (looked || !looked.error().retryable || clock.now() - begun >= state_.env.write.retry_for) {
            return looked;
        }
        std::this_thread::sleep_for(kBetweenLooks);
    }
}

bool UnsentElsewhere::is_lost(const UnsentDirectory& unsent, const AskedBy& by) {
    if (is_on_its_way(unsent.told, state_.env.clock.wall_now())) {
        return false;
    }
    if (by.disk.empty()) {
        return true;
    }
    const SteadyTime now = state_.env.clock.now();
    const MutexLock lock(mutex_);
    if (late_.size() >= kMostLate) {
        // Sent, or of a marker that was given up.
        std::erase_if(late_, [now](const auto& each) { return now - each.second.looked_at > kNotLookedAtFor; });
    }
    const auto found = late_.find(unsent.object);
    if (found == late_.end() && late_.size() >= kMostLate) {
        return false;
    }
    Seen& seen = found == late_.end() ? late_[unsent.object] : found->second;
    if (seen.told != unsent.told) {
        seen = {unsent.told, now, now};
    }
    // Looks are a minute apart. Time in which the store could not be asked is time in which it could not be told,
    // either.
    if (const auto since = now - seen.looked_at; since > kUnsentToldEvery) {
        seen.at += since;
    }
    seen.looked_at = now;
    return now - seen.at >= kUnsentCountsFor;
}

// For the message; empty where the bucket does not say.
std::string UnsentElsewhere::host_of(const UnsentDirectory& unsent) const {
    const auto text = std::make_shared<std::string>();
    GetRequest request;
    request.key = unsent.object;
    request.is_small = true;
    request.on_body = [text](ByteSpan bytes) {
        text->append(as_text(bytes));
        return text->size() <= kMostHost;
    };
    const auto got = wait_for<GetResponse>([&](auto done) { state_.env.store.get(std::move(request), done); });
    return got ? *text : "";
}

Failure UnsentElsewhere::refusal(const UnsentDirectory& unsent, const std::string& what, bool is_coming) const {
    const std::string host = host_of(unsent);
    const std::string who = host.empty() ? "another mount" : "a mount on " + host;
    Error error;
    error.errno_value = EIO;
    error.retryable = is_coming;
    if (is_coming) {
        error.message = format(
            "{} is not committed: files in {} that {} has acknowledged by its disk are not in the bucket yet; wait for "
            "them there (ckptfs wait), then commit again",
            what, unsent.directory, who);
    } else {
        error.message = format(
            "{} is not committed: files in {} that {} has acknowledged by its disk are not in the bucket, and it was "
            "last heard of {} ago; mount there again, or write them again, then commit again; it is forgotten "
            "after {}",
            what, unsent.directory, who, in_minutes(state_.env.clock.wall_now() - unsent.told),
            in_minutes(state_.env.write.config.failed_sibling_ttl));
    }
    return failure(std::move(error));
}

}  // namespace ckptfs::fs
