// SPDX-License-Identifier: Apache-2.0
// A log: a file that grows at its end and is published while it does. The writing process does not wait for that.
//
//   Staged: what was written lies in --staging-dir until it is in the bucket, and for as long as the next commit would
//     have to send it once more: a commit sends a part of it through a writer of its own, and fetches nothing that is
//     still staged. What is written meanwhile is for the next commit.
//   A commit for CommitReason::kPublish that fails is no failure of the file, unless it was streamed, or the error is
//     final: the bytes are still there, and the next commit sends them again. Any other commit that fails is.
//   Streaming: a file that grows by much at a time, is changed where its bytes are no longer here, or finds no room in
//     --staging-dir, goes on through the writer of the next commit as any other file does, and fails as it does, too.
//     What is written while that commit is under way is staged again.
//
// A commit replaces the version that the file started from, or committed last: another one is ESTALE.
//
// Ownership and threads: as FileWriter's. It cannot be read.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "write/file_writer.h"

namespace ckptfs {

[[nodiscard]] std::shared_ptr<FileWriter> make_growing_file(WriteEnvironment& environment, std::string key,
                                                            std::optional<CommittedObject> base,
                                                            Overwrite overwrite = Overwrite::kAllowed);

}  // namespace ckptfs
