// SPDX-License-Identifier: Apache-2.0
#include "writeback/overlay.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ckptfs {
namespace {

// The common prefix that a listing shows for the key; empty if it shows the key itself.
std::string common_prefix(const std::string& key, const ListRequest& request) {
    const std::size_t cut =
        request.delimiter.empty() ? std::string::npos : key.find(request.delimiter, request.prefix.size());
    return cut == std::string::npos ? "" : key.substr(0, cut + request.delimiter.size());
}

// The object with what listings show of it.
ObjectInfo listed(const ObjectInfo& object) {
    ObjectInfo shown;
    shown.key = object.key;
    shown.size = object.size;
    shown.etag = object.etag;
    shown.last_modified = object.last_modified;
    shown.storage_class = object.storage_class;
    return shown;
}

bool covers(const KeyRange& range, const std::string& name) {
    return name > range.after && (range.last.empty() || name <= range.last);
}

}  // namespace

std::uint64_t bytes_on_disk(const UnsentChange& change) {
    std::uint64_t bytes = 0;
    for (const BodyPiece& piece : change.body) {
        bytes += piece.place == BodyPiece::Place::kObject ? 0 : piece.size;
    }
    return bytes;
}

const BodyFile* Body::file(std::uint64_t number) const {
    const auto found =
        std::find_if(files.begin(), files.end(), [number](const auto& each) { return each->number() == number; });
    return found == files.end() ? nullptr : found->get();
}

std::shared_ptr<const HeldChange> Body::source(const BodyPiece& piece) const {
    for (const std::weak_ptr<const HeldChange>& each : sources) {
        std::shared_ptr<const HeldChange> source = each.lock();
        if (source != nullptr && source->key() == piece.key && source->change.object.etag == piece.etag) {
            return source;
        }
    }
    return nullptr;
}

bool Body::is_local() const {
    return std::none_of(pieces.begin(), pieces.end(),
                        [](const BodyPiece& piece) { return piece.place == BodyPiece::Place::kObject; });
}

void Overlay::add(std::shared_ptr<const HeldChange> change) {
    std::string key = change->key();
    changes_.insert_or_assign(std::move(key), std::move(change));
}

void Overlay::drop(const HeldChange& change, std::shared_ptr<const HeldChange> earlier) {
    const auto found = changes_.find(change.key());
    if (found == changes_.end() || found->second->change.number != change.change.number) {
        return;
    }
    if (earlier != nullptr) {
        found->second = std::move(earlier);
    } else {
        changes_.erase(found);
    }
}

std::shared_ptr<const HeldChange> Overlay::find(std::string_view key) const {
    const auto found = changes_.find(key);
    return found == changes_.end() ? nullptr : found->second;
}

Overlay::Changes Overlay::below(std::string_view prefix) const {
    const auto first = changes_.lower_bound(prefix);
    auto last = first;
    while (last != changes_.end() && last->first.starts_with(prefix)) {
        ++last;
    }
    return {first, last};
}

std::vector<std::string> doubtful_prefixes(const ListResponse& page, const Overlay::Changes& changes) {
    std::vector<std::string> doubtful;
    for (const std::string& prefix : page.common_prefixes) {
        bool removes = false;
        bool makes = false;
        for (auto at = changes.lower_bound(prefix); at != changes.end() && at->first.starts_with(prefix); ++at) {
            (at->second->removes() ? removes : makes) = true;
        }
        if (removes && !makes) {
            doubtful.push_back(prefix);
        }
    }
    return doubtful;
}

ListResponse merge_page(ListResponse page, const ListRequest& request, const Overlay::Changes& changes,
                        const KeyRange& range, const std::vector<std::string>& gone) {
    std::map<std::string, ObjectInfo> objects;
    std::set<std::string> prefixes(page.common_prefixes.begin(), page.common_prefixes.end());
    for (ObjectInfo& object : page.objects) {
        std::string key = object.key;
        objects.insert_or_assign(std::move(key), std::move(object));
    }
    for (const std::string& prefix : gone) {
        prefixes.erase(prefix);
    }
    for (const auto& [key, held] : changes) {
        std::string common = common_prefix(key, request);
        if (!covers(range, common.empty() ? key : common)) {
            continue;
        }
        if (!common.empty()) {
            if (!held->removes()) {
                prefixes.insert(std::move(common));
            }
        } else if (held->removes()) {
            objects.erase(key);
        } else {
            objects.insert_or_assign(key, listed(held->change.object));
        }
    }
    page.objects.clear();
    for (auto& [key, object] : objects) {
        page.objects.push_back(std::move(object));
    }
    page.common_prefixes.assign(prefixes.begin(), prefixes.end());
    return page;
}

}  // namespace ckptfs
