// SPDX-License-Identifier: Apache-2.0
// The way of a file's bytes to one commit: from the stream through frames and parts to the store.
//
// A writer has one at a time. It is replaced by a new one when it ends, by a commit, a failure, or a file that starts
// over: what belongs to it goes with it, and completions that come later find that theirs is no longer the writer's.
//
// It does not know of the queue of calls, nor where the bytes of an earlier commit come from: its owner hands it the
// stream, and says when that ends.
//
// Ownership: the writer's alone. Completions only refer to it: its memory is free as soon as it has ended.
// Guarded by its owner's mutex; calls to the outside are put into its owner's outbox. It is freed without the mutex:
// waiters for memory may call back into the owner.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/outbox.h"
#include "ckptfs/codec.h"
#include "ckptfs/file_cache.h"
#include "ckptfs/object_store.h"
#include "write/buffer_rooms.h"
#include "write/file_writer.h"
#include "write/frame_sequencer.h"
#include "write/memory_relief.h"
#include "write/part.h"
#include "write/part_assembler.h"
#include "write/part_plan.h"
#include "write/upload.h"
#include "write/writer_group.h"

namespace ckptfs {

class UploadCycle;
using WeakCycle = std::weak_ptr<UploadCycle>;

// The writer, as its cycle sees it. All functions except resume() are called with its mutex held, and may not free the
// cycle before it is released.
class CycleOwner {
public:
    virtual ~CycleOwner() = default;

    // Completions hold it, to keep the owner alive.
    [[nodiscard]] virtual std::shared_ptr<CycleOwner> kept_owner() = 0;
    [[nodiscard]] virtual Outbox& outbox() = 0;
    // The file's key, for messages.
    [[nodiscard]] virtual std::string shown_key() const = 0;
    [[nodiscard]] virtual Error about_this_file(Error error) const = 0;
    // Ends the cycle: nothing of it may be changed afterwards.
    virtual void fail(Error error) = 0;
    [[nodiscard]] virtual std::shared_ptr<Upload> new_upload(Metadata metadata, std::string content_encoding) = 0;
    virtual void end_upload(std::shared_ptr<Upload> upload) = 0;
    // The whole committed object.
    [[nodiscard]] virtual CopySource committed_source() const = 0;
    // Ends the cycle, as fail() does.
    virtual void published(Result<PutResponse> result) = 0;

    // Without the mutex: makes the change, and what follows from it. False if the cycle has ended.
    virtual bool resume(const WeakCycle& cycle, const std::function<void(UploadCycle&)>& change) = 0;
};

// What a cycle starts from.
struct CycleStart {
    std::shared_ptr<const FrameEncoder> encoder;
    // What is copied of the committed object from its beginning on: pieces, stored bytes, and records of frames.
    CopyPlan copy;
    std::uint64_t stored_begin = 0;
    std::vector<FrameRecord> records;
    // Size of the file; 0 if it is not known.
    std::uint64_t known_size = 0;
    // Where the next run that is copied begins; 0 if there is none.
    std::uint64_t next_copy = 0;
};

// A run of the committed object that stays as it is.
struct CopiedRun {
    FileRange range;
    std::uint64_t stored_size = 0;
    CopyPlan copy;
    // Records of its frames; none for a plain object.
    std::span<const FrameRecord> records;
};

class UploadCycle : public std::enable_shared_from_this<UploadCycle> {
public:
    UploadCycle(CycleOwner& owner, WriteEnvironment& environment, std::shared_ptr<WriterGroup> group)
        : owner_(owner), environment_(environment), group_(std::move(group)) {}
    ~UploadCycle();
    UploadCycle(const UploadCycle&) = delete;
    UploadCycle& operator=(const UploadCycle&) = delete;

    // --- upload_cycle.cc: its beginning. Before begin(), only functions that say "At any time" are called.
    void begin(CycleStart start);
    // The stream takes bytes, or what it begins with is being fetched. At any time.
    [[nodiscard]] bool begun() const { return assembler_.has_value(); }
    // Begins a fetch of something that was committed, ended by has_fetched(); false if one is under way. At any time.
    [[nodiscard]] bool begins_to_fetch() { return !std::exchange(fetching_, true); }
    void has_fetched() { fetching_ = false; }
    // Puts bytes that are no longer needed into the outbox. At any time.
    void release_discarded();

    // --- upload_cycle_encoding.cc: the stream, and its frames.
    [[nodiscard]] std::uint64_t end() const { return sequencer_.end(); }
    [[nodiscard]] std::uint64_t frames_under_way() const { return sequencer_.under_way(); }
    void set_known_size(std::uint64_t size);
    // Copies bytes that need no buffer of their own; empty if they do.
    [[nodiscard]] std::optional<Slice> copy(ByteSpan data) { return room_.copy(data); }
    [[nodiscard]] Slice keep(Buffer buffer, ByteSpan data);
    void accept(Slice slice);

    // --- upload_cycle_patches.cc: what may change before the end of the stream.
    [[nodiscard]] bool patchable(std::uint64_t offset, std::uint64_t end) const;
    [[nodiscard]] std::uint64_t patchable_from() const { return assembler_->patchable_from(); }
    // Why a write is not patchable(); the file has `file_size` bytes.
    [[nodiscard]] Error out_of_order(std::uint64_t offset, std::uint64_t size, std::uint64_t file_size) const;
    void patch(std::uint64_t offset, const Slice& slice);
    // Nothing is being encoded or staged.
    [[nodiscard]] bool is_quiet() const { return sequencer_.under_way() == 0 && !spilling_; }
    // The stream began after `offset`, and what lies before its beginning is copied.
    [[nodiscard]] bool begins_behind(std::uint64_t offset) const { return offset < copy_.fetch_from; }
    // Only while it is quiet; false if what is cut is already in the store.
    [[nodiscard]] bool cut(std::uint64_t size);

    // --- upload_cycle_sending.cc: parts.
    [[nodiscard]] const std::shared_ptr<Upload>& upload() const { return upload_; }
    [[nodiscard]] std::shared_ptr<Upload> take_upload() { return std::exchange(upload_, nullptr); }
    [[nodiscard]] int parts_under_way() const { return parts_under_way_; }
    // False if it has to wait until what comes before the run is in a part, or if the file has failed.
    [[nodiscard]] bool copy_run(const CopiedRun& run);
    void set_next_copy(std::uint64_t offset) { assembler_->set_next_copy(offset); }

    // --- upload_cycle_publishing.cc: the commit.
    void begin_commit();
    // At any time.
    [[nodiscard]] bool is_committing() const { return commit_.has_value(); }
    [[nodiscard]] bool is_publishing() const { return commit_->publishing; }
    // One step, when all `size` bytes are in the stream; true when another may follow at once.
    [[nodiscard]] bool commit_step(std::uint64_t size);
    // Size, encoder and records of the object that was published.
    [[nodiscard]] std::uint64_t stored_size() const { return commit_->stored_size; }
    [[nodiscard]] const std::shared_ptr<const FrameEncoder>& encoder() const { return encoder_; }
    [[nodiscard]] std::vector<FrameRecord> take_records() { return std::exchange(records_, {}); }

    // --- upload_cycle_shortage.cc: what a lack of memory does to it. At any time.
    [[nodiscard]] StuckMemory stuck_memory() const;
    void relieve(Relief relief);

private:
    // A commit that is under way.
    struct Commit {
        std::uint64_t size = 0;
        bool last_frame_cut = false;
        bool parts_sent = false;
        bool last_part_taken = false;
        // The last part of a container without its tail, which needs the records of all other parts.
        std::optional<Part> last_part;
        bool tail_sent = false;
        bool publishing = false;
        // Size of the object.
        std::uint64_t stored_size = 0;
    };

    // Called by a completion, without the mutex, to go on; false if the cycle has ended.
    class Resumption {
    public:
        explicit Resumption(UploadCycle& cycle) : owner_(cycle.owner_.kept_owner()), cycle_(cycle.weak_from_this()) {}
        template <class Change>
        bool operator()(Change&& change) const {
            return owner_->resume(cycle_, std::forward<Change>(change));
        }

    private:
        std::shared_ptr<CycleOwner> owner_;
        WeakCycle cycle_;
    };
    [[nodiscard]] Resumption resumption() { return Resumption(*this); }

    template <class T>
    void discard(T garbage) {
        owner_.outbox().add([keep = std::make_shared<T>(std::move(garbage))] {});
    }
    // --- upload_cycle.cc
    void fail_about_this_file(Error error);
    // Called when memory was freed or staged.
    void look_for_waiters();

    // --- upload_cycle_encoding.cc
    void keep_on_disk(const FrameSequencer::RawFrame& frame);
    void encode(FrameSequencer::RawFrame frame);
    void encode_into(FrameSequencer::RawFrame frame, Buffer output);
    // A result that is of no use any more is left to the caller, which frees it without the mutex.
    void encoded(std::uint64_t sequence, Result<PartFrame>&& result);
    void note_records(const Part& part);

    // --- upload_cycle_sending.cc
    // Without the mutex: `then` gets the part with all its bytes in memory and encoded.
    static void prepare(WriteEnvironment& environment, WriterGroup& group, std::shared_ptr<const FrameEncoder> encoder,
                        Part part, std::uint64_t least, std::function<void(Result<Part>)> then);
    void begin_upload();
    void copy_parts(int number, const std::vector<CopyPlan::Piece>& pieces);
    // send() and may_be_sent() return false if the file has failed, because it has too many parts.
    bool send(std::vector<Part> parts);
    [[nodiscard]] bool may_be_sent(const Part& part);
    // All completions of parts name their upload: one that is given up may be followed by another.
    struct Sending {
        int part = 0;
        std::uint64_t number = 0;
    };
    void prepared(const std::shared_ptr<Upload>& upload, Result<Part>&& part, const Sending& sending);
    void send_now(Part part);
    void part_sent(const std::shared_ptr<Upload>& upload, const Status& status);
    void forget_sent_parts();

    // --- upload_cycle_publishing.cc
    [[nodiscard]] bool send_last_part();
    void last_prepared(const std::shared_ptr<Upload>& upload, Result<Part>&& part);
    // True when all parts have been handed over, the last one among them.
    [[nodiscard]] bool last_part_sent();
    // Whether the upload is to be ended: a file under kFrameSize is plain, but if its first part was sent while the
    // file was larger, and was cut since, the upload is of a container.
    [[nodiscard]] bool can_take_upload_back() const;
    void put_whole();
    void put_prepared(const std::shared_ptr<Upload>& upload, Result<Part>&& whole);
    void complete();
    void published(const std::shared_ptr<Upload>& upload, Result<PutResponse> result);
    void finish_on_disk(const Upload& upload, const PutResponse& object);

    // --- upload_cycle_shortage.cc
    void send_early();
    void spill_open();
    void spill(std::vector<FrameBytes> frames, bool kept);
    // `of_open`: number of the part being filled that the frames were of; none for parts that are kept.
    void spilled(std::optional<int> of_open, const std::vector<FrameBytes>& frames, const Status& status);

    CycleOwner& owner_;
    WriteEnvironment& environment_;
    const std::shared_ptr<WriterGroup> group_;

    bool fetching_ = false;

    std::shared_ptr<const FrameEncoder> encoder_;
    // What frames may refer to; null if they never do.
    std::shared_ptr<FrameHistory> history_;
    // What this node keeps of the file; null if it keeps nothing.
    std::shared_ptr<FileBeingKept> kept_;
    CopyPlan copy_;
    FrameSequencer sequencer_;
    // Absent before it begins.
    std::optional<PartAssembler> assembler_;
    FillRoom room_;
    // Shared with what is being encoded.
    const std::shared_ptr<EncodedRoom> encoded_room_ = std::make_shared<EncodedRoom>();
    // Records of the container's frames, those of copied ones included.
    std::vector<FrameRecord> records_;

    std::shared_ptr<Upload> upload_;
    int parts_under_way_ = 0;
    // Of these, parts that are not yet encoded.
    int parts_being_prepared_ = 0;
    // A count of all sendings, and the latest sending of each part number: earlier ones that are still being prepared
    // are left out.
    std::uint64_t sendings_ = 0;
    std::map<int, std::uint64_t> latest_sending_;

    // Since when it holds memory (StuckMemory::since); 0 before that.
    std::uint64_t holds_since_ = 0;
    bool spilling_ = false;
    bool spill_when_encoded_ = false;
    int sent_early_ = 0;

    std::optional<Commit> commit_;
};

}  // namespace ckptfs
