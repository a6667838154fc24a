// SPDX-License-Identifier: Apache-2.0
// The two ends of a directory's rename: back to the source, or forward to the destination. The renaming process and a
// repair take the same steps, each of which may be repeated.
//
// A directory is shown again only when all of it is there, and what is to vanish is hidden until all of it is gone.
// Only the objects that the rename has copied, or its copies (rename_copies.h), are deleted. What another process left
// in a hidden directory reappears with it; what may be a copy reappears beside it, as with it a part would be shown.
//
// Threads: block; for the holder of the rename's record.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "fs/objects/directory_marker.h"
#include "fs/objects/tree_copy.h"

namespace ckptfs::fs {

using NameList = std::optional<std::vector<MovedName>>;

// `names`: what the rename moves, as far as it is known.
//
// Shows the source, deletes the copies, and moves what may be a copy to a directory `.undone-...` beside the
// destination; the destination stays, shown, if it holds anything else. `own`: the copies that are known to this
// process, as it has made them.
Status roll_back(ObjectStore& store, const Clock& clock, const DirectoryMarker& rename, const NameList& names,
                 const RemovalTerms& terms, const OwnCopies& own = {});
// For a rename whose record is gone: either its copies are gone as well, or it was finished, and the store has carried
// out an early request for its marker only now. As above for what is younger than the marker, if the source holds
// anything; otherwise nothing is deleted: the destination may hold all that is left, and is shown.
Status roll_back_without_record(ObjectStore& store, const Clock& clock, const DirectoryMarker& rename,
                                const NameList& names, const RemovalTerms& terms);
// Shows the destination and deletes the source. What was committed in the source since it was copied stays, and shows
// it again. `move_failures`: gives what failed below the source its new name, while both are hidden.
Status finish(ObjectStore& store, const Clock& clock, const DirectoryMarker& rename, const NameList& names,
              const RemovalTerms& terms, const std::function<Status()>& move_failures);

// If the source's marker is this rename's, replaces it by an ordinary one, or removes it if there was none before.
Status show_source(ObjectStore& store, const Clock& clock, const DirectoryMarker& rename);
// For a slow process whose rename was taken over: removes what it copied later than that, unless replaced since.
Status remove_late_copies(ObjectStore& store, const DirectoryMarker& rename, const Copies& copies,
                          const RemovalTerms& terms);

}  // namespace ckptfs::fs
