// SPDX-License-Identifier: Apache-2.0
// What the bucket will look like once all changes have been made: the last change of each key.
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

// The content of a change's object. Keeps the files that its pieces name, and refers to the changes that make the
// objects that its pieces name, where those were unsent.
struct Body {
    std::vector<BodyPiece> pieces;
    std::vector<std::shared_ptr<BodyFile>> files;
    // Weak: a file that is appended to again and again would otherwise keep all of its earlier versions.
    std::vector<std::weak_ptr<const HeldChange>> sources;

    [[nodiscard]] const BodyFile* file(std::uint64_t number) const;
    // The change that makes the object of the piece; null if that was in the bucket already, or the change is not held
    // any more.
    [[nodiscard]] std::shared_ptr<const HeldChange> source(const BodyPiece& piece) const;
    // Whether all bytes are on the disk.
    [[nodiscard]] bool is_local() const;
};

[[nodiscard]] std::uint64_t bytes_on_disk(const UnsentChange& change);

struct HeldChange {
    UnsentChange change;
    // Content of the object after the change.
    Body body;
    // The change may have been made, by an earlier mount or by a request whose reply was lost.
    bool may_be_made = false;

    [[nodiscard]] const std::string& key() const { return change.object.key; }
    [[nodiscard]] bool removes() const { return change.kind == UnsentChange::Kind::kRemove; }
};

class Overlay {
public:
    using Changes = std::map<std::string, std::shared_ptr<const HeldChange>, std::less<>>;

    void add(std::shared_ptr<const HeldChange> change);
    // Removes a change that is in the bucket or was not acknowledged. `earlier`: the last change of the key that is
    // left; null if there is none.
    void drop(const HeldChange& change, std::shared_ptr<const HeldChange> earlier);
    // The last change of the key; null if the bucket's object counts.
    [[nodiscard]] std::shared_ptr<const HeldChange> find(std::string_view key) const;
    // The changes whose keys begin with `prefix`.
    [[nodiscard]] Changes below(std::string_view prefix) const;
    [[nodiscard]] bool empty() const { return changes_.empty(); }

private:
    Changes changes_;
};

// The keys after `after`, in order, up to and including `last`; to the end if that is empty.
struct KeyRange {
    std::string after;
    std::string last;
};

// The common prefixes of the page below which the changes only remove, so that nothing may be left there.
[[nodiscard]] std::vector<std::string> doubtful_prefixes(const ListResponse& page, const Overlay::Changes& changes);
// The page with the changes applied. `range`: the keys that it covers. `gone`: common prefixes with nothing below them.
[[nodiscard]] ListResponse merge_page(ListResponse page, const ListRequest& request, const Overlay::Changes& changes,
                                      const KeyRange& range, const std::vector<std::string>& gone);

}  // namespace ckptfs
