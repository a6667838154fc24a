// SPDX-License-Identifier: Apache-2.0
// Listings: those of the bucket are compared with what is recorded, and what is recorded is listed.
#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/xxhash.h"
#include "ckptfs/log.h"
#include "disk/object_record.h"

namespace ckptfs {
namespace {

// Rows that are read at once, at most and at least.
constexpr int kBatch = 256;
constexpr int kFewest = 16;
// Pages whose last listing is known.
constexpr std::size_t kMostPages = 1024;

// The first name behind all that begin with `prefix`; names are compared byte by byte.
std::string behind_all(std::string prefix) {
    while (!prefix.empty() && prefix.back() == '\xFF') {
        prefix.pop_back();
    }
    if (!prefix.empty()) {
        prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
    }
    return prefix;
}

// What a listing with a delimiter shows for a key; empty where it shows the key.
std::string common_prefix(const std::string& key, const ListRequest& request) {
    const std::size_t end =
        request.delimiter.empty() ? std::string::npos : key.find(request.delimiter, request.prefix.size());
    return end == std::string::npos ? "" : key.substr(0, end + request.delimiter.size());
}

std::vector<std::string> names_of(const ListResponse& page) {
    std::vector<std::string> names = page.common_prefixes;
    for (const ObjectInfo& object : page.objects) {
        names.push_back(object.key);
    }
    return names;
}

// Hash of what is recorded of a page.
std::uint64_t hash_of_page(const ListResponse& page) {
    std::string text = page.next_continuation_token.empty() ? "last" : "";
    for (const std::string& prefix : page.common_prefixes) {
        text += prefix + '\n';
    }
    for (const ObjectInfo& object : page.objects) {
        text += format("{}\n{}\n{}\n", object.key, object.etag, object.size);
    }
    return xxh3(text);
}

}  // namespace

Result<ObjectRecord::Rows> ObjectRecord::rows_from(const std::string& key, const std::string& prefix, int most) {
    const std::string first = name(key);
    const std::string end = behind_all(name(prefix));
    statements_.from.bind(1, first).bind(2, end).bind(3, most);
    Rows found;
    for (int count = 0;; ++count) {
        const Result<bool> is_there = statements_.from.next();
        if (!is_there) {
            return failure(is_there.error());
        }
        if (!*is_there) {
            if (count < most) {
                found.next.clear();
            }
            return found;
        }
        Result<Row> row = row_of(statements_.from);
        if (row && row->key < (found.next.empty() ? key : found.next)) {
            row = damaged_name();
        }
        if (!row) {
            statements_.from.end();
            return failure(std::move(row.error()));
        }
        found.next = row->key + '\0';
        found.rows.push_back(std::move(*row));
    }
}

Result<std::int64_t> ObjectRecord::changes() {
    const Result<bool> row = statements_.data_version.next();
    if (!row) {
        return failure(row.error());
    }
    if (const std::int64_t version = *row ? statements_.data_version.number(0) : 0; version != data_version_) {
        data_version_ = version;
        ++changes_;
    }
    statements_.data_version.end();
    return changes_;
}

// A listing that is repeated, as one is while its directory is read, costs no look at the rows.
Status ObjectRecord::listed(const ListRequest& request, const ListResponse& page,
                            const std::set<std::string>& left_alone, WallTime now) {
    const Result<std::int64_t> before = changes();
    if (!before) {
        return failure(before.error());
    }
    const std::string asked = format("{}\n{}\n{}\n{}\n{}", hours(now), request.delimiter, request.start_after,
                                     request.continuation_token, request.prefix);
    const std::uint64_t hash = hash_of_page(page);
    if (const auto found = pages_.find(asked);
        left_alone.empty() && found != pages_.end() && found->second.changes == *before && found->second.hash == hash) {
        return {};
    }
    if (Status listed = list_now(request, page, left_alone, now); !listed || !left_alone.empty()) {
        return listed;
    }
    if (pages_.size() >= kMostPages) {
        pages_.clear();
    }
    pages_[asked] = {changes_, hash};
    return {};
}

// What is recorded of the range that the page covers, and is not on it, is gone.
Status ObjectRecord::list_now(const ListRequest& request, const ListResponse& page,
                              const std::set<std::string>& left_alone, WallTime now) {
    const Result<std::vector<NamedVersion>> recorded = recorded_of(request, page);
    if (!recorded) {
        return failure(recorded.error());
    }
    const std::set<std::string_view> prefixes(page.common_prefixes.begin(), page.common_prefixes.end());
    std::unordered_map<std::string_view, const ObjectInfo*> shown;
    for (const ObjectInfo& object : page.objects) {
        if (!left_alone.contains(object.key)) {
            shown.emplace(object.key, &object);
        }
    }
    for (const NamedVersion& each : *recorded) {
        Status noted;
        const auto first_left = left_alone.lower_bound(each.name);
        const bool is_left = first_left != left_alone.end() &&
                             (each.version ? *first_left == each.name : first_left->starts_with(each.name));
        if (is_left) {
            continue;
        }
        if (!each.version) {
            noted = prefixes.contains(each.name) ? Status() : remove_below(each.name);
        } else if (const auto found = shown.find(each.name); found == shown.end()) {
            noted = gone(each.name);
        } else if (each.version->is_of(*found->second)) {
            noted = touch(each.name, each.version->seen, now);
            shown.erase(found);
        }
        if (!noted) {
            return noted;
        }
    }
    for (const auto& [key, object] : shown) {
        if (Status noted = there({*object, false}, now); !noted) {
            return noted;
        }
    }
    return {};
}

Result<std::vector<ObjectRecord::NamedVersion>> ObjectRecord::recorded_of(const ListRequest& request,
                                                                          const ListResponse& page) {
    const std::vector<std::string> names = names_of(page);
    const bool is_last = page.next_continuation_token.empty();
    if (names.empty() && !(is_last && request.continuation_token.empty())) {
        return {};
    }
    const std::string last = is_last ? "" : *std::max_element(names.begin(), names.end());
    // Where the page before it has ended is not always known.
    const std::string after =
        request.continuation_token.empty() ? request.start_after : *std::min_element(names.begin(), names.end());
    const std::string end = behind_all(name(request.prefix));
    std::vector<NamedVersion> recorded;
    std::string from = std::max(after, request.prefix);
    for (bool is_done = false; !is_done;) {
        const std::string begin = name(from);
        sqlite::Statement& row = statements_.versions_from;
        row.bind(1, begin).bind(2, end).bind(3, kBatch);
        std::string read_until = from;
        int count = 0;
        for (;; ++count) {
            const Result<bool> is_there = row.next();
            if (!is_there) {
                return failure(is_there.error());
            }
            if (!*is_there) {
                break;
            }
            std::optional<std::string> key = key_of(row.bytes(0));
            if (!key || *key < read_until) {
                row.end();
                return damaged_name();
            }
            read_until = *key;
            if (*key < from) {
                continue;
            }
            std::string shown = common_prefix(*key, request);
            const bool is_prefix = !shown.empty();
            if (!is_prefix) {
                shown = std::move(*key);
            }
            if (!is_last && shown > last) {
                row.end();
                return recorded;
            }
            from = is_prefix ? behind_all(shown) : shown + '\0';
            if (shown > after || after.empty()) {
                std::optional<Version> version;
                if (!is_prefix) {
                    version = {std::string(row.bytes(1)), static_cast<std::uint64_t>(row.number(2)), row.number(3)};
                }
                recorded.push_back({std::move(shown), std::move(version)});
            }
        }
        is_done = count < kBatch || from.empty();
    }
    return recorded;
}

Result<std::set<std::string>> ObjectRecord::changed_below(const std::string& prefix, SteadyTime since) {
    const std::string first = name(prefix);
    Result<std::set<std::string>> names = shared_->changed(first, behind_all(first), since);
    if (!names) {
        return names;
    }
    std::set<std::string> keys;
    for (const std::string& each : *names) {
        if (std::optional<std::string> key = key_of(each)) {
            keys.insert(std::move(*key));
        }
    }
    return keys;
}

Status ObjectRecord::remove_below(const std::string& prefix) {
    const std::string begin = name(prefix);
    const std::string end = behind_all(begin);
    const Status removed = statements_.remove_range.bind(1, begin).bind(2, end).run();
    changes_ += database_.rows_changed();
    return removed;
}

// A directory below is one entry, however much is in it: the next rows are those behind it.
Result<ListResponse> ObjectRecord::list(const ListRequest& request) {
    ListResponse response;
    const std::string& after = request.continuation_token.empty() ? request.start_after : request.continuation_token;
    std::string from = after < request.prefix ? request.prefix : after + '\0';
    // One more than asked for shows whether there are more.
    const int most = std::clamp(request.max_keys + 1, kFewest, kBatch);
    std::string last;
    while (!from.empty()) {
        Result<Rows> found = rows_from(from, request.prefix, most);
        if (!found) {
            return failure(std::move(found.error()));
        }
        for (Row& row : found->rows) {
            if (row.key < from) {
                continue;
            }
            std::string shown = common_prefix(row.key, request);
            if (!shown.empty() && shown <= after) {
                // The last page has ended with it.
                from = behind_all(shown);
                continue;
            }
            if (response.objects.size() + response.common_prefixes.size() ==
                static_cast<std::size_t>(request.max_keys)) {
                response.next_continuation_token = last;
                return response;
            }
            last = shown.empty() ? row.key : shown;
            if (shown.empty()) {
                from = row.key + '\0';
                response.objects.push_back(std::move(row.seen.info));
            } else {
                from = behind_all(shown);
                response.common_prefixes.push_back(std::move(shown));
            }
        }
        from = found->next.empty() ? "" : std::max(from, found->next);
    }
    return response;
}

}  // namespace ckptfs
