// SPDX-License-Identifier: Apache-2.0
// A block of the committed object on its way into the stream of the next commit: fetched, and checked or decoded.
//
// A damaged block is fetched once more. If the object is copied to another key meanwhile, the rest is fetched from
// there.
//
// Ownership: requests under way keep it alive.
// Threads: one at a time; callbacks run without locks held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"
#include "ckptfs/codec.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "write/block_checksums.h"
#include "write/committed_frames.h"
#include "write/file_writer.h"

namespace ckptfs {

class KeptBlock : public std::enable_shared_from_this<KeptBlock> {
public:
    // Where the object is.
    struct Place {
        std::string key;
        std::string etag;
    };
    // Returns nothing if the block is no longer wanted.
    using FindPlace = std::function<std::optional<Place>()>;
    // Not called if the block is found to be no longer wanted.
    using Done = std::function<void(KeptBlock& block, const Status& status)>;

    struct Source {
        Place place;
        // Size of the file.
        std::uint64_t size = 0;
        std::shared_ptr<const CommittedFrames> frames;
        // Null if the object is encoded, or need not be checked.
        std::shared_ptr<const BlockChecksums> checked;
    };

    // The block begins at `offset` of the file.
    KeptBlock(WriteEnvironment& environment, Source source, std::uint64_t offset, std::size_t size,
              FindPlace find_place, Done done);

    void fetch();

    [[nodiscard]] std::uint64_t offset() const { return offset_; }
    // The block's bytes, valid when Done is called with success.
    [[nodiscard]] ByteSpan bytes() const { return buffer_.bytes().first(size_); }
    [[nodiscard]] Buffer take_buffer() { return std::move(buffer_); }

private:
    // Bytes of one other frame that the block's frame refers to.
    struct ReferencedPiece {
        CommittedFrame frame;
        std::uint64_t begin = 0;
        std::uint64_t size = 0;
    };

    [[nodiscard]] bool encoded() const { return !source_.frames->plain(); }
    void get(const ByteRange& range);
    void fetched(const Result<GetResponse>& result);
    [[nodiscard]] bool follow_move();
    // These run on the executor.
    void check();
    void decode();
    [[nodiscard]] Status take_referenced(const Payload& stored);
    [[nodiscard]] bool find_referenced(const std::vector<FileRange>& references);
    void finish(const Status& status) { done_(*this, status); }

    WriteEnvironment& environment_;
    Source source_;
    const std::uint64_t offset_;
    const std::size_t size_;
    const FindPlace find_place_;
    const Done done_;

    // For the file's bytes, and, if they are encoded, for those of the object.
    Buffer buffer_;
    Buffer stored_;
    // The range of the object that is being fetched, and how many bytes of it have come.
    ByteRange range_;
    std::size_t filled_ = 0;
    // The block's frame, if the object is encoded.
    CommittedFrame frame_;
    // Bytes that the frame refers to and that are still missing. They are fetched into the same two buffers, before the
    // frame is fetched again.
    std::deque<ReferencedPiece> missing_;
    std::string referenced_;
    // The block has been fetched again because it was damaged, and so have the checksums that it is compared with.
    bool again_ = false;
    bool checked_again_ = false;
};

}  // namespace ckptfs
