// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ckptfs/store_limits.h"
#include "write/upload_cycle.h"

namespace ckptfs {

void UploadCycle::prepare(WriteEnvironment& environment, WriterGroup& group,
                          std::shared_ptr<const FrameEncoder> encoder, Part part, std::uint64_t least,
                          std::function<void(Result<Part>)> then) {
    if (part.has_staged_frames() || part.buffers_to_encode(*encoder) > 0) {
        group.staging().prepare(std::move(part), std::move(encoder), least, std::move(then));
        return;
    }
    const bool too_small = !encoder->identity() && part.stored_size() < least;
    if (!part.has_stale_frames() && !too_small) {
        then(std::move(part));
        return;
    }
    environment.executor.post(
        [encoder = std::move(encoder), part = std::move(part), least, then = std::move(then)]() mutable {
            const Status encoded = part.encode(*encoder, {}, least);
            then(encoded ? Result<Part>(std::move(part)) : failure(encoded.error()));
        });
}

void UploadCycle::begin_upload() {
    if (upload_) {
        return;
    }
    upload_ = owner_.new_upload(encoder_->metadata(std::nullopt), encoder_->content_encoding());
    copy_parts(1, copy_.pieces);
}

bool UploadCycle::send(std::vector<Part> parts) {
    for (Part& part : parts) {
        if (!may_be_sent(part)) {
            discard(std::move(parts));
            return false;
        }
        begin_upload();
        ++parts_under_way_;
        ++parts_being_prepared_;
        const Sending sending{part.number(), latest_sending_[part.number()] = ++sendings_};
        owner_.outbox().add([go_on = resumption(), &environment = environment_, group = group_, upload = upload_,
                             encoder = encoder_, part = std::move(part), sending] {
            prepare(environment, *group, encoder, part, kMinPartSize,
                    [go_on, group, upload, sending](Result<Part> ready) {
                        const bool current =
                            go_on([&](UploadCycle& cycle) { cycle.prepared(upload, std::move(ready), sending); });
                        if (!current) {
                            group->relieve();
                        }
                    });
        });
    }
    return true;
}

bool UploadCycle::may_be_sent(const Part& part) {
    if (part.number() <= kMaxPartNumber) {
        return true;
    }
    owner_.fail(
        failure(EFBIG, format("write {}: more than {} parts at offset {}; use a larger --part-size or --max-memory",
                              owner_.shown_key(), kMaxPartNumber, part.begin()))
            .value());
    return false;
}

void UploadCycle::prepared(const std::shared_ptr<Upload>& upload, Result<Part>&& part, const Sending& sending) {
    // Nothing is noted of an upload that was given up meanwhile: the records are of another.
    if (upload != upload_) {
        look_for_waiters();
        return;
    }
    const auto latest = latest_sending_.find(sending.part);
    const bool is_outdated = latest != latest_sending_.end() && latest->second != sending.number;
    if (!part && !is_outdated) {
        fail_about_this_file(std::move(part.error()));
        return;
    }
    --parts_being_prepared_;
    if (is_outdated) {
        // The same part has been sent again meanwhile, or cut off; its preparation may have overtaken this one.
        if (part) {
            discard(std::move(*part));
        }
        part_sent(upload, Status());
        return;
    }
    note_records(*part);
    send_now(std::move(*part));
}

void UploadCycle::send_now(Part part) {
    owner_.outbox().add([go_on = resumption(), group = group_, upload = upload_, part = std::move(part)] {
        const std::uint64_t bytes = part.bytes_in_memory();
        group->begins_to_leave(bytes);
        upload->send_part(part.number(), part.body(), part.crc32c(),
                          [go_on, group, upload, bytes](const Status& status) {
                              group->has_left(bytes);
                              if (!go_on([&](UploadCycle& cycle) { cycle.part_sent(upload, status); })) {
                                  group->relieve();
                              }
                          });
    });
}

void UploadCycle::part_sent(const std::shared_ptr<Upload>& upload, const Status& status) {
    if (upload == upload_) {
        --parts_under_way_;
        if (!status) {
            owner_.fail(status.error());
        }
    }
    look_for_waiters();
}

void UploadCycle::forget_sent_parts() {
    parts_under_way_ = parts_being_prepared_ = 0;
    latest_sending_.clear();
}

void UploadCycle::copy_parts(int number, const std::vector<CopyPlan::Piece>& pieces) {
    for (const CopyPlan::Piece& piece : pieces) {
        CopySource source = owner_.committed_source();
        if (piece.length != source.size) {
            source.size = piece.length;
            source.range = ByteRange{piece.offset, piece.length, false};
        }
        ++parts_under_way_;
        owner_.outbox().add(
            [go_on = resumption(), group = group_, upload = upload_, part = number++, source = std::move(source)] {
                upload->copy_part(part, source, [go_on, group, upload](const Status& status) {
                    if (!go_on([&](UploadCycle& cycle) { cycle.part_sent(upload, status); })) {
                        group->relieve();
                    }
                });
            });
    }
}

bool UploadCycle::copy_run(const CopiedRun& run) {
    // What comes before the run has to be in its part, which ends here.
    if (!is_quiet() || parts_under_way_ >= environment_.config.max_parts_in_flight) {
        return false;
    }
    if (!send(assembler_->seal()) || !send(assembler_->drop_kept())) {
        return false;
    }
    begin_upload();
    const int pieces = static_cast<int>(run.copy.pieces.size());
    copy_parts(assembler_->pass_copied(pieces, run.range.end(), run.stored_size), run.copy.pieces);
    if (!run.records.empty()) {
        const auto first = static_cast<std::size_t>(run.range.offset / kFrameSize);
        records_.resize(std::max<std::size_t>(records_.size(), first + run.records.size()));
        std::copy(run.records.begin(), run.records.end(), records_.begin() + static_cast<std::ptrdiff_t>(first));
    }
    discard(sequencer_.restart(run.range.end(), {}));
    return true;
}

}  // namespace ckptfs
