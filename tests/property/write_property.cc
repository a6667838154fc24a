// SPDX-License-Identifier: Apache-2.0
// Whatever is written, patched, truncated, synced and moved to the disk, in whatever order: what is published is what a
// vector of bytes would hold, or the file has failed and what was published before stays.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/memory_file_cache.h"
#include "unit/write/writer_fixture.h"
#include "write/writer_group.h"

namespace ckptfs::testing {
namespace {

enum class Action : std::uint8_t {
    kWrite,
    kAppend,
    kPatchHead,
    kPatchTail,
    kPatchAnywhere,
    kJump,
    kTruncate,
    kSync,
    kSendEarly,
    kSpillKept,
    kSpillOpen,
};

struct Step {
    Action action = Action::kWrite;
    std::uint64_t size = 0;
    // Picks a place.
    std::uint64_t dice = 0;
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
    return out << "action " << static_cast<int>(step.action) << " size " << step.size << " dice " << step.dice;
}

rc::Gen<std::uint64_t> any_size() {
    return rc::gen::weightedOneOf<std::uint64_t>({{3, rc::gen::inRange<std::uint64_t>(1, 5'000)},
                                                  {2, rc::gen::inRange<std::uint64_t>(1, 700'000)},
                                                  {2, rc::gen::inRange<std::uint64_t>(1, 11 * kMiB)},
                                                  {1, rc::gen::element(kMiB, 5 * kMiB, 8 * kMiB)}});
}

rc::Gen<Step> any_step() {
    const auto action = rc::gen::weightedElement<Action>({{8, Action::kWrite},
                                                          {2, Action::kAppend},
                                                          {3, Action::kPatchHead},
                                                          {3, Action::kPatchTail},
                                                          {1, Action::kPatchAnywhere},
                                                          {1, Action::kJump},
                                                          {1, Action::kTruncate},
                                                          {2, Action::kSync},
                                                          {2, Action::kSendEarly},
                                                          {2, Action::kSpillKept},
                                                          {2, Action::kSpillOpen}});
    return rc::gen::map(rc::gen::tuple(action, any_size(), rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 40)),
                        [](const std::tuple<Action, std::uint64_t, std::uint64_t>& drawn) {
                            return Step{std::get<0>(drawn), std::get<1>(drawn), std::get<2>(drawn)};
                        });
}

// Bytes that no other step writes, so that a lost or misplaced one is seen. Some can be compressed, some cannot.
std::string bytes_of(std::size_t serial, std::uint64_t size) {
    std::string text(size, static_cast<char>('a' + serial % 26));
    if (serial % 3 != 0) {
        std::mt19937_64 random(serial);
        for (std::uint64_t at = 0; at + sizeof(std::uint64_t) <= size; at += sizeof(std::uint64_t)) {
            const std::uint64_t bits = random();
            std::memcpy(text.data() + at, &bits, sizeof bits);
        }
    }
    for (std::uint64_t at = 0; at + 16 <= size; at += 1000) {
        const std::string stamp = std::to_string(serial) + ':' + std::to_string(at);
        text.replace(at, stamp.size(), stamp);
    }
    return text;
}

// A writer beside the bytes that it should hold.
class Pair : private WriterFixture {
public:
    Pair(const std::string& compress, bool threads, std::uint64_t existing, bool existing_is_plain)
        : WriterFixture(64 * kMiB, {}, compress) {
        environment.files = &kept_;
        if (threads) {
            store.answer_from_threads(2);
        }
        std::optional<CommittedObject> base;
        if (existing > 0) {
            expected_ = published_ = bytes_of(existing, existing);
            if (existing_is_plain) {
                store.put_object("dir/file", expected_);
                base = CommittedObject{store.info("dir/file").etag, existing, existing, {}};
            } else {
                const auto earlier = open();
                RC_ASSERT(write(*earlier, 0, expected_).has_value());
                base = commit(*earlier).value();
            }
        }
        writer_ = open(base);
    }

    // False when the file has failed.
    bool perform(const Step& step, std::size_t serial) {
        const std::uint64_t end = expected_.size();
        switch (step.action) {
            case Action::kWrite:
                return put(end, bytes_of(serial, step.size));
            case Action::kAppend:
                return appended(bytes_of(serial, std::min<std::uint64_t>(step.size, kMiB)));
            case Action::kPatchHead:
                return put(std::min(end, step.dice % kMiB), bytes_of(serial, std::min<std::uint64_t>(step.size, kMiB)));
            case Action::kPatchTail:
                return put(end - std::min(end, step.dice % (2 * kMiB)),
                           bytes_of(serial, std::min<std::uint64_t>(step.size, kMiB)));
            case Action::kPatchAnywhere:
                return put(step.dice % (end + 1), bytes_of(serial, std::min<std::uint64_t>(step.size, kMiB)));
            case Action::kJump:
                return put(end + step.dice % (3 * kMiB), bytes_of(serial, std::min<std::uint64_t>(step.size, kMiB)));
            case Action::kTruncate:
                return truncated(step.dice % 4 == 0 ? 0 : end + step.size - std::min(end, step.dice % kMiB));
            case Action::kSync:
                return committed(CommitReason::kFsync);
            case Action::kSendEarly:
            case Action::kSpillKept:
            case Action::kSpillOpen:
                break;
        }
        dynamic_cast<MemoryHolder&>(*writer_).relieve(
            step.action == Action::kSendEarly
                ? Relief::kSendEarly
                : (step.action == Action::kSpillKept ? Relief::kSpillKept : Relief::kSpillOpen));
        return true;
    }

    void finish(bool alive, bool by_commit) {
        if (alive && by_commit) {
            RC_ASSERT(committed(CommitReason::kClose));
        } else {
            RC_ASSERT(abort(*writer_).has_value());
        }
        const bool visible = store.exists("dir/file");
        RC_ASSERT((visible ? file("dir/file") : "") == published_);
        writer_.reset();
        RC_ASSERT(no_upload_left());
        RC_ASSERT(all_buffers_returned());
    }

private:
    // Only a step back into what has left may be refused.
    static bool accepted(const Status& status) {
        if (!status) {
            RC_TAG("refused");
            RC_ASSERT(status.error().errno_value == EOPNOTSUPP);
        }
        return status.has_value();
    }
    bool put(std::uint64_t offset, const std::string& bytes) {
        const bool in_order = offset >= expected_.size();
        const Status status = write(*writer_, offset, bytes, 300'000 + bytes.size() % 748'576);
        RC_ASSERT(status.has_value() || !in_order);
        if (accepted(status)) {
            expected_.resize(std::max<std::size_t>(expected_.size(), offset + bytes.size()));
            expected_.replace(offset, bytes.size(), bytes);
        }
        return status.has_value();
    }
    bool appended(const std::string& bytes) {
        RC_ASSERT(append(*writer_, bytes).has_value());
        expected_ += bytes;
        return true;
    }
    bool truncated(std::uint64_t size) {
        const Status status = truncate(*writer_, size);
        RC_ASSERT(status.has_value() || size < expected_.size());
        if (accepted(status)) {
            expected_.resize(size);
        }
        return status.has_value();
    }
    bool committed(CommitReason reason) {
        const auto object = commit(*writer_, reason);
        RC_ASSERT(object.has_value());
        if (!object->etag.empty()) {
            RC_ASSERT(object->size == expected_.size());
            RC_ASSERT(object->stored_size == store.info("dir/file").size);
            published_ = expected_;
            RC_ASSERT(file("dir/file") == published_);
            const auto frames = kept_.frames(object->etag);
            for (const auto& [frame, bytes] : frames) {
                RC_ASSERT(bytes == published_.substr(frame * kFrameSize, kFrameSize));
            }
            RC_TAG(frames.empty() ? "nothing kept" : "kept");
        }
        RC_ASSERT(writer_->size() == expected_.size());
        return true;
    }

    MemoryFileCache kept_;
    std::shared_ptr<FileWriter> writer_;
    std::string expected_;
    std::string published_;
};

RC_GTEST_PROP(WriteProperty, WhatIsPublishedIsWhatWasWritten, ()) {
    const auto existing = *rc::gen::element<std::uint64_t>(0, 0, 1000, 3 * kMiB, 6 * kMiB + 1);
    const auto compress = *rc::gen::element<std::string>("none", "zstd:1", "auto");
    Pair pair(compress, *rc::gen::element(true, false), existing, *rc::gen::element(true, false));
    const auto count = *rc::gen::inRange<std::size_t>(0, 16);
    // All sizes from the first try on.
    const auto steps = *rc::gen::container<std::vector<Step>>(count, rc::gen::resize(rc::kNominalSize, any_step()));
    bool alive = true;
    for (std::size_t serial = 0; alive && serial < steps.size(); ++serial) {
        alive = pair.perform(steps[serial], serial);
    }
    pair.finish(alive, *rc::gen::element(true, true, true, false));
}

}  // namespace
}  // namespace ckptfs::testing
