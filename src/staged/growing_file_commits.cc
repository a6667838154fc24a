// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "staged/content_feed.h"
#include "staged/growing_file_impl.h"

namespace ckptfs {
namespace {

// At most this much of what is in the bucket is kept on the disk to be sent once more. More than this, of what
// compresses well, is fetched instead.
constexpr std::uint64_t kMostKept = std::uint64_t{64} << 20;
// The largest number of failed commits that are remembered: one whose reply was lost may still take effect.
constexpr std::size_t kMostFailed = 16;

// Errors that a retry does not resolve.
bool is_final(const Error& error) {
    switch (error.errno_value) {
        case ESTALE:
        case ENOENT:
        case EEXIST:
        case EFBIG:
            return true;
        default:
            return false;
    }
}

FeedSource staged_source(const std::shared_ptr<StagedBytes>& staged, ByteRun run) {
    StagedContent content(run.begin);
    content.write(run.begin, run.end);
    return FeedSource{std::move(content), {}, staged, nullptr};
}

}  // namespace

// --- what it starts from

std::uint64_t GrowingFile::copied_until() const {
    if (!committed_ || !frames_ || lacks_part_copy()) {
        return 0;
    }
    return plan_kept_copy(*frames_, kept_, group_->plan()).fetch_from;
}

std::uint64_t GrowingFile::prefix() const {
    return std::max(staged_from_, copied_until());
}

bool GrowingFile::names_no_version() const {
    return committed_ && !starts_over_ && prefix() == 0;
}

void GrowingFile::check_base(Done checked) {
    // A stream named the version when it began, and may have been under way for long.
    const bool is_old_stream = commit_ && commit_->streamed && committed_ && !starts_over_;
    const bool asks = is_old_stream || names_no_version() || !failed_commits_.empty();
    if (commit_) {
        commit_->has_asked = asks;
    }
    if (!asks) {
        outbox_.add([checked = std::move(checked)] { checked({}); });
        return;
    }
    outbox_.add([keep = self(), key = key_, checked = std::move(checked)] {
        keep->environment_.store.head(key, [keep, key, checked](const Result<ObjectInfo>& object) {
            MutexLock lock(keep->mutex_);
            if (keep->key_ != key) {
                // Renamed meanwhile.
                keep->check_base(checked);
                keep->deliver(lock);
                return;
            }
            const Status status = keep->check_version(object);
            lock.unlock();
            checked(status);
        });
    });
}

Status GrowingFile::check_version(const Result<ObjectInfo>& object) {
    const bool is_needed = committed_ && !starts_over_;
    if (!object) {
        return object.error().errno_value == ENOENT && !is_needed ? Status() : failure(object.error());
    }
    const auto id = object->metadata.find(kWriteIdMetadata);
    const auto ours = std::find_if(failed_commits_.begin(), failed_commits_.end(), [&](const FailedCommit& commit) {
        return id != object->metadata.end() && commit.write_id == id->second;
    });
    if (ours != failed_commits_.end()) {
        // Only its reply was lost.
        committed_ = CommittedObject{object->etag, object->size, ours->size, object->last_modified};
        frames_.reset();
        kept_ = ours->unchanged;
        // That version does not matter either if the file was cut to nothing since.
        starts_over_ = starts_over_ && ours->cut_to_nothing;
        overwrite_ = Overwrite::kAllowed;
        keep_recognised(std::string(ours->write_id));
        return {};
    }
    if (is_needed && object->etag != committed_->etag) {
        return failure(ESTALE,
                       format("write {}: another version is there now, by another program, mount or client; open the "
                              "file anew",
                              escaped(key_)));
    }
    return {};
}

void GrowingFile::keep_recognised(std::string write_id) {
    for (FailedCommit& commit : std::exchange(failed_commits_, {})) {
        if (commit.write_id != write_id) {
            recognised_.push_back(std::move(commit.write_id));
        }
    }
    // The last, and so the last to be dropped: it is the one that is there.
    recognised_.push_back(std::move(write_id));
    while (recognised_.size() > kMostFailed) {
        recognised_.erase(recognised_.begin());
    }
}

std::shared_ptr<StreamWriter> GrowingFile::make_writer(std::uint64_t begin) {
    std::shared_ptr<StreamWriter> writer;
    if (begin == 0) {
        writer = StreamWriter::create(environment_, key_, std::nullopt, overwrite_);
    } else if (frames_) {
        writer = StreamWriter::create(environment_, key_, *committed_, KeptContent{*frames_, begin, {}}, overwrite_);
    } else {
        writer = StreamWriter::create(environment_, key_, committed_, overwrite_);
        if (begin < committed_->size) {
            // Errors are reported by what follows.
            outbox_.add([writer, begin] { writer->truncate(begin, [](const Status&) {}); });
        }
    }
    writer->before_ending([weak = std::weak_ptr(self()), ending = writer.get()](std::function<void()> end) {
        if (const auto file = weak.lock()) {
            file->writer_ends(ending, std::move(end));
        } else {
            end();
        }
    });
    return writer;
}

void GrowingFile::feed_staged(const std::shared_ptr<StreamWriter>& writer, ByteRun run, Done done) {
    outbox_.add([keep = self(), source = staged_source(staged_, run), run, writer, done = std::move(done)] {
        feed(keep->environment_, source, run, writer, done);
    });
}

// --- one commit after the other

void GrowingFile::start_commit() {
    if (commit_ || waiting_.empty()) {
        return;
    }
    commit_ = std::make_shared<Commit>();
    commit_->waiting = std::exchange(waiting_, {});
    starts_over_next_ = false;
    covers_all(*commit_);
    if (stream_) {
        commit_->writer = std::exchange(stream_, nullptr);
        commit_->streamed = true;
        discard_staged(size_);
    }
    check_then_send();
}

void GrowingFile::check_then_send() {
    check_base([keep = self(), commit = commit_](const Status& checked) {
        MutexLock lock(keep->mutex_);
        if (commit == keep->commit_) {
            keep->base_checked(commit, checked);
        }
        keep->deliver(lock);
    });
}

void GrowingFile::covers_all(Commit& commit) const {
    commit.size = commit.unchanged = commit.reads_until = size_;
    commit.outdated = commit.cut_to_nothing = false;
}

void GrowingFile::base_checked(const CommitPointer& commit, const Status& checked) {
    if (!checked) {
        failed(commit, checked.error());
    } else if (commit->streamed) {
        publish(commit);
    } else {
        send(commit);
    }
}

void GrowingFile::send(const CommitPointer& commit) {
    if (names_no_version() && !commit->has_asked) {
        // What the previous commit has fetched came to the disk only now: none of it is fetched again, so the store has
        // to be asked.
        check_then_send();
        return;
    }
    if (commit->cut_to_nothing) {
        // The file was cut to nothing while the store was asked. Anything else that came meanwhile is not part of this
        // commit: its writer may be a process whose bytes are not published without a close.
        covers_all(*commit);
        starts_over_next_ = false;
    }
    const std::uint64_t begin = prefix();
    commit->writer = make_writer(begin);
    keep_fetched(*commit->writer, begin);
    feed_staged(commit->writer, {begin, commit->size}, [keep = self(), commit](const Status& sent) {
        MutexLock lock(keep->mutex_);
        if (commit == keep->commit_) {
            sent ? keep->publish(commit) : keep->failed(commit, sent.error());
        }
        keep->deliver(lock);
    });
}

void GrowingFile::publish(const CommitPointer& commit) {
    outbox_.add([keep = self(), commit, writer = commit->writer] {
        writer->commit(CommitReason::kClose, [keep, commit](Result<CommittedObject> object) {
            MutexLock lock(keep->mutex_);
            if (commit == keep->commit_) {
                object ? keep->succeeded(*commit, *object) : keep->failed(commit, object.error());
            }
            keep->deliver(lock);
        });
    });
}

void GrowingFile::succeeded(const Commit& commit, const CommittedObject& object) {
    committed_ = object;
    frames_ = commit.writer->committed_frames();
    // A write that was on its way to the disk when the commit began may have come too late for it.
    kept_ = commit.unchanged;
    starts_over_ = std::exchange(starts_over_next_, false);
    overwrite_ = Overwrite::kAllowed;
    failed_commits_.clear();
    recognised_.clear();
    publish_failed_ = false;
    staging_is_full_ = false;
    dirty_ = commit.outdated;
    for (const PendingCommit& waiting : commit.waiting) {
        outbox_.add([done = waiting.done, object] { done(object); });
    }
    release_staged();
    commit_.reset();
    if (!dirty_) {
        for (const PendingCommit& waiting : std::exchange(waiting_, {})) {
            outbox_.add([done = waiting.done, object] { done(object); });
        }
    }
    start_commit();
}

void GrowingFile::failed(const CommitPointer& commit, const Error& error) {
    if (commit->writer) {
        note_failed(*commit);
    }
    const bool is_waited_for =
        std::any_of(commit->waiting.begin(), commit->waiting.end(),
                    [](const PendingCommit& waiting) { return waiting.reason != CommitReason::kPublish; });
    if (is_waited_for || commit->streamed || is_final(error)) {
        // Not logged yet if what was staged could not be read, or if another version is there.
        const bool is_logged = commit->writer && commit->writer->failed();
        is_logged ? stop(error) : fail(error);
    } else if (commit->writer) {
        give_up(commit, error);
    } else {
        publish_later(commit, error);
    }
}

void GrowingFile::note_failed(const Commit& commit) {
    // A commit that goes on may be published before it is told that the file was given up.
    std::string id = commit.writer->failed() ? commit.writer->write_id() : commit.writer->next_commit();
    // This commit may have been noted before.
    if (id.empty() || (!failed_commits_.empty() && failed_commits_.back().write_id == id)) {
        return;
    }
    failed_commits_.push_back({std::move(id), commit.size, commit.unchanged, commit.cut_to_nothing});
    if (failed_commits_.size() > kMostFailed) {
        failed_commits_.erase(failed_commits_.begin());
    }
}

void GrowingFile::give_up(const CommitPointer& commit, const Error& error) {
    commit->is_given_up = true;
    end_.goes_on();
    outbox_.add([keep = self(), commit, error] {
        commit->writer->abort(error, [keep, commit, error](const Status&) {
            MutexLock lock(keep->mutex_);
            if (commit == keep->commit_) {
                keep->publish_later(commit, error);
            }
            keep->deliver(lock);
        });
    });
}

void GrowingFile::publish_later(const CommitPointer& commit, const Error& error) {
    outbox_.add([line = format("{} will be published later, with everything written to it by then: {}", escaped(key_),
                               escaped(error.message))] { log_warning(line); });
    for (const PendingCommit& waiting : commit->waiting) {
        outbox_.add([done = waiting.done, error] { done(failure(error)); });
    }
    publish_failed_ = true;
    commit_.reset();
    start_commit();
}

void GrowingFile::writer_ends(const FileWriter* writer, std::function<void()> end) {
    MutexLock lock(mutex_);
    if (end_.failure()) {
        end_.end_when_told(std::move(end));
    } else if (commit_ && writer == commit_->writer.get() && !commit_->is_given_up) {
        end_.end_when_decided(std::move(end));
    } else {
        outbox_.add(std::move(end));
    }
    deliver(lock);
}

// --- what is staged

void GrowingFile::release_staged() {
    if (busy_) {
        // A write on its way to the disk may be to bytes that would be released: the next commit sends them from there.
        return;
    }
    std::uint64_t begin = prefix();
    if (kept_ - begin > kMostKept) {
        begin = kept_;
    }
    if (begin > staged_from_ && begin == size_) {
        // All of it is released: even a disk without hole punching frees its space.
        discard_staged(begin);
    } else if (begin > staged_from_) {
        staged_from_ = begin;
        ++releasing_;
        outbox_.add([keep = self(), begin, staged = staged_] {
            keep->environment_.staging.post([keep, begin, staged] {
                staged->release_before(begin);
                const MutexLock lock(keep->mutex_);
                --keep->releasing_;
            });
        });
    }
}

void GrowingFile::keep_fetched(StreamWriter& writer, std::uint64_t end) {
    if (releasing_ > 0) {
        // What is fetched would be released as well.
        return;
    }
    const auto fetched = std::make_shared<Fetched>();
    fetched->staged = staged_;
    fetched->begin = fetched->end = end;
    writer.when_fetched([keep = self(), fetched](std::uint64_t offset, Slice bytes) {
        {
            const MutexLock lock(keep->mutex_);
            fetched->begin = std::min(fetched->begin, offset);
            if (fetched->end - fetched->begin > kMostKept) {
                return;
            }
        }
        keep->environment_.staging.post([keep, fetched, offset, bytes = std::move(bytes)] {
            const Status status = fetched->staged->write(offset, bytes.bytes);
            const MutexLock lock(keep->mutex_);
            keep->kept_fetched(*fetched, bytes.bytes.size(), status);
        });
    });
}

void GrowingFile::kept_fetched(Fetched& fetched, std::uint64_t size, const Status& status) {
    fetched.staged_bytes += status ? size : 0;
    const bool is_whole = fetched.staged_bytes == fetched.end - fetched.begin;
    if (is_whole && fetched.staged == staged_ && fetched.end == staged_from_) {
        staged_from_ = fetched.begin;
    }
}

}  // namespace ckptfs
