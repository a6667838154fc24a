// SPDX-License-Identifier: Apache-2.0
// What the bucket will look like once all changes have been made: by key, the last of them.
//
// Pure; not synchronised.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/object_store.h"
#include "writeback/body_file.h"
#include "writeback/unsent_change.h"

namespace ckptfs {

struct HeldChange;

// Keeps the files that its pieces name, and knows the changes that make their objects, where those were unsent.
struct Body {
    std::vector<BodyPiece> pieces;
    std::vector<std::shared_ptr<BodyFile>> files;
    // Not kept: a log that is appended to again and again would keep all that it ever was.
    std::vector<std::weak_ptr<const HeldChange>> sources;

    [[nodiscard]] const BodyFile* file(std::uint64_t number) const;
    // Null where the object was in the bucket, or is by now.
    [[nodiscard]] std::shared_ptr<const HeldChange> source(const BodyPiece& piece) const;
    // All of its bytes are on the disk.
    [[nodiscard]] bool is_local() const;
};

[[nodiscard]] std::uint64_t bytes_on_disk(const UnsentChange& change);

struct HeldChange {
    UnsentChange change;
    // Of what is there afterwards.
    Body body;
    // By an earlier mount, or by a request whose answer was lost.
    bool may_be_made = false;

    [[nodiscard]] const std::string& key() const { return change.object.key; }
    [[nodiscard]] bool removes() const { return change.kind == UnsentChange::Kind::kRemove; }
};

class Overlay {
public:
    using Changes = std::map<std::string, std::shared_ptr<const HeldChange>, std::less<>>;

    void add(std::shared_ptr<const HeldChange> change);
    // It is in the bucket, or was not acknowledged. `earlier`: the last one of the key that is left; null where none
    // is.
    void drop(const HeldChange& change, std::shared_ptr<const HeldChange> earlier);
    // Null where the bucket tells.
    [[nodiscard]] std::shared_ptr<const HeldChange> find(std::string_view key) const;
    // Of keys that begin so.
    [[nodiscard]] Changes below(std::string_view prefix) const;
    [[nodiscard]] bool empty() const { return changes_.empty(); }

private:
    Changes changes_;
};

// What follows `after`, in the order of keys, up to and with `last`; to the end where that is empty.
struct KeyRange {
    std::string after;
    std::string last;
};

// Those of the page's common prefixes below which there is, as far as the changes tell, nothing but what was removed.
[[nodiscard]] std::vector<std::string> doubtful_prefixes(const ListResponse& page, const Overlay::Changes& changes);
// The page as it will be. `range`: of the keys that it covers. `gone`: common prefixes with nothing below them.
[[nodiscard]] ListResponse merge_page(ListResponse page, const ListRequest& request, const Overlay::Changes& changes,
                                      const KeyRange& range, const std::vector<std::string>& gone);

}  // namespace ckptfs
