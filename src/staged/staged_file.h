// SPDX-License-Identifier: Apache-2.0
// A file that may be written and read anywhere before it is committed.
//
//   Staged: what has changed lies in --staging-dir, over the object that the file started from. Reads see both. A
//     commit sends what has changed through a writer, as one upload to the file's key; what lies before and between is
//     copied within the store where that makes parts, and sent again where it does not.
//   Streaming: a file that has grown beyond what one request can hold, and was written in order so far, goes on through
//     a writer as it is written, to a hidden key (hidden_key.h). Its commit copies that within the store. At the first
//     step back that the writer cannot patch, or the first read of what it was given, the upload is completed there and
//     becomes the object that a staged file starts from.
//
// A new file starts staged, so that small ones need neither memory nor requests before their commit. Where the staging
// directory takes no more, writes fail with ENOSPC, and the file with them; what was committed stays.
//
// Ownership and threads: as FileWriter's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "read/file_reader.h"
#include "staged/hidden_key.h"
#include "write/file_writer.h"

namespace ckptfs {

// Shared by all files of a mount; outlives them.
struct StagedEnvironment {
    WriteEnvironment& write;
    ReadEnvironment& read;
    HiddenPlace hidden;
};

enum class Streaming : std::uint8_t { kWhileInOrder, kNever };

[[nodiscard]] std::shared_ptr<FileWriter> make_staged_file(const StagedEnvironment& environment, std::string key,
                                                           std::optional<CommittedObject> base, Streaming streaming,
                                                           Overwrite overwrite = Overwrite::kAllowed);

}  // namespace ckptfs
