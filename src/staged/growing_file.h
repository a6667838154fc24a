// SPDX-License-Identifier: Apache-2.0
// A log: a file that grows at its end and is published while it does. The writing process does not wait for that.
//
//   What was written lies in --staging-dir until it is in the bucket, and as long as the next commit would have to send
//     it once more: a commit sends a part of it through a writer of its own, and nothing has to be fetched. What is
//     written meanwhile goes on, and is for the next commit.
//   Publishing (CommitReason::kPublish) that fails is no failure of the file: its bytes are still there, and the next
//     commit sends them again. Any other commit that fails is.
//   Streaming: what grows by much at a time, is changed where its bytes are no longer here, or finds no room in
//     --staging-dir, goes on through the writer of the next commit as any other file does, and fails as it does, too.
//     What is written while that commit is under way is staged again.
//
// The version that it started from, or committed last, is what a commit replaces: another one is ESTALE.
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
