// SPDX-License-Identifier: Apache-2.0
#include "fs/files/file_reads.h"

#include <fcntl.h>

#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs::fs {

namespace {

// For a file that is committed again and again.
constexpr int kMostReopens = 20;

Failure cannot_read_back() {
    return failure(EOPNOTSUPP, "what is being written cannot be read before it is closed or synced");
}

}  // namespace

void FileReads::read(HandleId id, std::uint64_t offset, std::size_t size, Reply<Payload> reply) {
    const HandlePtr handle = handles_.find(id);
    if (handle == nullptr) {
        reply(failure(EBADF, "not an open file"));
        return;
    }
    if (handle->writer != nullptr && handle->node->has_dropped_writes) {
        reply(cannot_read_back());
    } else if (is_unreadable(*handle)) {
        handle->writer->size() == 0 ? reply(Payload()) : reply(cannot_read_back());
    } else {
        Reply<Payload> noted = pages_.noted_across_end(handle->node, offset + size, std::move(reply));
        read_what_is_seen(std::make_shared<Reading>(Reading{handle, offset, size, 0, std::move(noted)}));
    }
}

void FileReads::read_what_is_seen(const std::shared_ptr<Reading>& reading) {
    const std::shared_ptr<FileWriter> writer = changing(*reading->handle);
    if (writer == nullptr) {
        read_with(reading);
        return;
    }
    const auto answer = [this, reading, asked = writer.get()](Result<Payload> data) {
        const bool gone = !data && data.error().errno_value == ESTALE;
        // A writer that is saved and closed is not notified of a rename, which takes away the object that it reads.
        if (gone && reading->handle->writer == nullptr && reading->reopens < kMostReopens &&
            changing(*reading->handle).get() != asked) {
            ++reading->reopens;
            read_what_is_seen(reading);
            return;
        }
        counters_.read(data ? data->size() : 0);
        reading->reply(std::move(data));
    };
    writer->read(reading->offset, reading->size, answer);
}

// Whether the handle has joined a writer that keeps nothing to read. The version before would not show what was
// changed, and a mapping would show it at the size that the file has by now; what was only appended leaves that version
// as it is.
bool FileReads::is_unreadable(const Handle& handle) {
    if (handle.writer == nullptr || handle.writer->readable() || !handle.writer->dirty()) {
        return false;
    }
    const bool wrote = (handle.flags & O_APPEND) == 0 && handle.noted != VersionFate::kNever;
    const VersionState version = handle.version->fate.state(kUnseenProcess, handle.opener);
    return wrote || handle.truncated_at != 0 || version.resized || (version.unsaved && !version.only_appended);
}

std::shared_ptr<FileWriter> FileReads::changing(Handle& handle) {
    const NodeTable::Lock lock = state_.nodes.lock();
    if (handle.writer != nullptr) {
        if (handle.changing == nullptr) {
            // The handle reads from the bucket, where others, or this handle, may have saved since.
            forget_earlier_reader(lock, handle);
        }
        return handle.changing;
    }
    Node& node = *handle.node;
    if (!handle.has_read) {
        begin_reading(lock, handle);
    } else if (handle.may_change && handle.changing == nullptr && node.writer != nullptr && node.writer->readable() &&
               !node.version->fate.left_by_killed_writer()) {
        handle.changing = node.writer;
    }
    if (handle.changing == nullptr || node.removed) {
        return handle.changing;
    }
    if (handle.changing != node.writer && !handle.changing->dirty() && !handle.changing->failed()) {
        // All of it is saved and closed: the handle reads that version from the bucket, wherever a rename moves it.
        handle.changing = nullptr;
        handle.has_read_changes = false;
        handle.rewrites = node.rewrites;
        forget_earlier_reader(lock, handle);
        return nullptr;
    }
    // Before the first change, and after one that failed, the handle reads what it opened, with a window of its own.
    // Not if it has read changes: to its reader the file would end, or go on, as another one.
    const MutexLock guard(handle.mutex);
    const bool is_changed = handle.changing->dirty() && !handle.changing->failed();
    const bool as_opened = !is_changed && !handle.has_read_changes && handle.reader != nullptr && node.committed &&
                           handle.reader->object().etag == node.committed->etag;
    handle.has_read_changes = handle.has_read_changes || is_changed;
    return as_opened ? nullptr : handle.changing;
}

void FileReads::forget_earlier_reader(const NodeTable::Lock& /*lock*/, Handle& handle) {
    const Node& node = *handle.node;
    const MutexLock guard(handle.mutex);
    if (handle.reader != nullptr && node.committed && handle.reader->object().etag != node.committed->etag) {
        handle.reader = nullptr;
        handle.stream = nullptr;
    }
}

void FileReads::begin_reading(const NodeTable::Lock& lock, Handle& handle) {
    Node& node = *handle.node;
    handle.has_read = true;
    handle.rewrites = node.rewrites;
    ++node.readers;
    // A mapping fills pages by a descriptor with direct_io, too.
    node.pages_were_read = true;
    const bool is_changed = node.writer != nullptr && node.writer->readable() && !node.writer->failed() &&
                            !node.version->fate.left_by_killed_writer();
    handle.changing = is_changed ? node.writer : nullptr;
    if (!is_changed) {
        // The file was changed and closed since the handle was opened; its name may have gone, or be a later version's,
        // since.
        forget_earlier_reader(lock, handle);
        const MutexLock guard(handle.mutex);
        node.has_only_its_pages = node.has_only_its_pages || (handle.dropped_pages && handle.reader != nullptr &&
                                                              handle.reader->object().etag == node.pages_etag);
    }
}

void FileReads::read_with(const std::shared_ptr<Reading>& reading) {
    const HandlePtr& handle = reading->handle;
    std::shared_ptr<FileReader> reader;
    std::shared_ptr<ReadStream> stream;
    {
        MutexLock lock(handle->mutex);
        reader = handle->reader;
        stream = handle->stream;
    }
    if (reader == nullptr || reading->offset + reading->size > reader->size()) {
        if (reopen_and_read(reading, reader)) {
            return;
        }
        if (reader == nullptr && is_pristine(*handle)) {
            reading->reply(Payload());
            return;
        }
        if (reader == nullptr) {
            reading->reply(nothing_to_read(*handle));
            return;
        }
        if (is_behind_the_end(*reading, *reader)) {
            reading->reply(failure(ESTALE, "the offset is beyond the end of the version that was opened"));
            return;
        }
        if (is_out_of_reach(*handle, *reader)) {
            // It may have grown between the two checks.
            if (reopen_and_read(reading, reader)) {
                return;
            }
            // The kernel would fill up with zeros what the file's size promises and this read lacks.
            reading->reply(
                failure(ESTALE, "the file has grown since it was opened, and was replaced or removed; open it again"));
            return;
        }
    }
    reader->read(stream, reading->offset, reading->size, [this, reading, reader](Result<Payload> data) {
        const bool gone = !data && data.error().errno_value == ESTALE;
        if (gone && reading->handle->writer == nullptr && reading->reopens < kMostReopens &&
            changing(*reading->handle) != nullptr) {
            // The writer beside it has made and saved its first change meanwhile.
            ++reading->reopens;
            read_what_is_seen(reading);
            return;
        }
        if (gone && reopen_and_read(reading, reader)) {
            return;
        }
        if (gone && reading->reopens < kMostReopens) {
            ++reading->reopens;
            read_after_commit(reading, reader, reader->object().key, std::move(data.error()));
            return;
        }
        if (data) {
            counters_.read(data->size());
            reading->handle->read_until = reading->offset + data->size();
            reading->handle->last_read = state_.env.clock.now();
        } else {
            log_error(escaped(data.error().message));
        }
        reading->reply(std::move(data));
    });
}

bool FileReads::is_pristine(const Handle& handle) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Node& node = *handle.node;
    if (node.lost_size) {
        return false;
    }
    // What was saved, or has grown, since the handle was opened may be out of reach: that is not empty.
    return node.writer != nullptr ? node.writer->pristine() : !node.committed || node.committed->size == 0;
}

// The kernel reads ahead to where it takes the end to be. It learns the end from the answer that reaches it, unless one
// from behind the end comes first: then it fills up with zeros. An error there concerns only a caller that asks for
// these bytes.
bool FileReads::is_behind_the_end(const Reading& reading, const FileReader& reader) {
    const NodeTable::Lock lock = state_.nodes.lock();
    return reading.handle->is_cached && reading.offset > reader.size();
}

// Whether what was opened has grown since, and has lost its name: what was added cannot be fetched any more.
bool FileReads::is_out_of_reach(Handle& handle, const FileReader& reader) {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Node& node = *handle.node;
    return !node.linked && node.committed && node.committed->size > reader.size() && !handle.is_of_another_mount &&
           !is_of_earlier_version(lock, handle);
}

Failure FileReads::nothing_to_read(const Handle& handle) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Node& node = *handle.node;
    if (node.lost_size || (node.writer != nullptr && node.writer->failed() && !node.committed)) {
        return failure(ESTALE, "the file was not saved");
    }
    // What was committed was removed with the name.
    if (node.removed) {
        return failure(ESTALE, "the file was removed");
    }
    return node.writer != nullptr
               ? cannot_read_back()
               : failure(ESTALE, "the version that was opened was replaced or removed; open the file again");
}

bool FileReads::is_of_earlier_version(const NodeTable::Lock& /*lock*/, Handle& handle) {
    if (handle.writer != nullptr || !handle.has_read || handle.rewrites == handle.node->rewrites) {
        return false;
    }
    const MutexLock guard(handle.mutex);
    // An empty one may grow.
    return handle.reader != nullptr && handle.reader->size() > 0;
}

// The same bytes may have got another key by a rename on this mount, and more behind them by appending, since `reader`
// was opened. False where there is nothing newer.
bool FileReads::reopen_and_read(const std::shared_ptr<Reading>& reading, const std::shared_ptr<FileReader>& reader) {
    std::string key;
    std::string etag;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const Node& own = *reading->handle->node;
        const Node& node = own.grows_as != nullptr ? *own.grows_as : own;
        const bool may_be_there = node.linked || node.has_moved || (reader == nullptr && !node.removed);
        // Without an ETag nothing is in the bucket: it was truncated before any commit.
        if (!may_be_there || is_of_earlier_version(lock, *reading->handle) || reading->handle->is_of_another_mount ||
            !node.committed || node.committed->etag.empty()) {
            return false;
        }
        key = state_.key(lock, node);
        etag = node.committed->etag;
        reading->rewrites = own.rewrites;
    }
    if (reading->reopens == kMostReopens ||
        (reader != nullptr && reader->object().key == key && reader->object().etag == etag)) {
        return false;
    }
    ++reading->reopens;
    FileReader::open(state_.env.read, key, etag, false,
                     [this, reading, key](auto opened) { reopened(reading, key, std::move(opened)); });
    return true;
}

void FileReads::reopened(const std::shared_ptr<Reading>& reading, const std::string& key,
                         Result<std::shared_ptr<FileReader>> opened) {
    if (opened) {
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            // A handle that found the file empty reads this version from now on, and follows what is appended to it.
            reading->handle->rewrites = reading->rewrites;
            const MutexLock guard(reading->handle->mutex);
            reading->handle->stream = (*opened)->open_stream(reading->handle->pace);
            reading->handle->reader = std::move(*opened);
        }
        read_with(reading);
    } else if (opened.error().errno_value != ESTALE || reading->reopens == kMostReopens) {
        reading->reply(failure(std::move(opened.error())));
    } else {
        read_after_commit(reading, nullptr, key, std::move(opened.error()));
    }
}

// The next commit or rename by this mount may have been made, and not be noted yet: tries again after it.
void FileReads::read_after_commit(const std::shared_ptr<Reading>& reading, const std::shared_ptr<FileReader>& reader,
                                  const std::string& key, Error error) {
    const KeyOrder::Place place = state_.key_order.enter({key});
    state_.key_order.when_first(place, [this, reading, reader, place, error = std::move(error)] {
        state_.key_order.leave(place);
        if (!reopen_and_read(reading, reader)) {
            log_error(escaped(error.message));
            reading->reply(failure(error));
        }
    });
}

}  // namespace ckptfs::fs
