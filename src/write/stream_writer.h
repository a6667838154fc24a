// SPDX-License-Identifier: Apache-2.0
// A FileWriter for a caller that has another way for out-of-order writes, or another place for what is written:
// staged/ keeps such files.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "write/committed_frames.h"
#include "write/file_writer.h"

namespace ckptfs {

class StreamWriter : public FileWriter {
public:
    // Gives back what cannot be written in order.
    using OutOfOrder = std::function<void(WriteData)>;

    static std::shared_ptr<StreamWriter> create(WriteEnvironment& environment, std::string key,
                                                std::optional<CommittedObject> base,
                                                Overwrite overwrite = Overwrite::kAllowed);

    // For one commit to `key` that keeps `kept` of `base`; only what lies between is to be written, in order. Parts of
    // any size are allowed.
    static std::shared_ptr<StreamWriter> create(WriteEnvironment& environment, std::string key, CommittedObject base,
                                                KeptContent kept, Overwrite overwrite);

    // Fetches what is sent once more of the committed object now, instead of at the first write. For a caller whose
    // writes come in buffers of MemoryUse::kWrite: what is fetched waits for such buffers, too.
    virtual void begin_writing(Done done) = 0;
    // As write(), but a write that would fail the file because of its offset is given back, and nothing has changed.
    virtual void write_in_order(std::uint64_t offset, WriteData data, WriteDone done, OutOfOrder out_of_order) = 0;
    using FileWriter::move_to;
    // `overwrite`: for the first commit under the new key.
    virtual bool move_to(std::string key, Overwrite overwrite) = 0;
    // `told` is called, in order, with what is fetched of the committed object to be sent once more, after it was
    // checked. Set before anything is handed over.
    virtual void when_fetched(std::function<void(std::uint64_t offset, Slice bytes)> told) = 0;
    // The frames of what was committed last, if they are known.
    [[nodiscard]] virtual std::optional<CommittedFrames> committed_frames() const = 0;
    // The write ID (kWriteIdMetadata) of the commit that began last, while that has not succeeded; empty before, and
    // after.
    [[nodiscard]] virtual std::string write_id() const = 0;
    // That of the commit under way, or else of the next one.
    [[nodiscard]] virtual std::string next_commit() = 0;
    // Right after a commit: what was committed stays where it is; the next commit starts from it and goes to `key`.
    virtual void go_on_at(std::string key, Overwrite overwrite) = 0;
};

}  // namespace ckptfs
