// SPDX-License-Identifier: Apache-2.0
// Streaming: writes go through the writer of the next commit, if the file grows by much.
#include <algorithm>
#include <utility>

#include "staged/growing_file_impl.h"

namespace ckptfs {

void GrowingFile::start_stream() {
    busy_ = true;
    check_base([keep = self()](const Status& checked) {
        MutexLock lock(keep->mutex_);
        keep->open_stream(checked);
        keep->deliver(lock);
    });
}

void GrowingFile::open_stream(const Status& checked) {
    if (!checked || end_.failure()) {
        busy_ = false;
        if (!checked) {
            fail(checked.error());
        }
        return;
    }
    const std::uint64_t begin = prefix();
    stream_ = make_writer(begin);
    stream_->when_failed([weak = std::weak_ptr(self())](const Error& error) {
        if (const auto file = weak.lock()) {
            MutexLock lock(file->mutex_);
            file->stop(error);
            file->deliver(lock);
        }
    });
    feed_staged(stream_, {begin, size_}, [keep = self()](const Status& status) {
        MutexLock lock(keep->mutex_);
        keep->stream_started(status);
        keep->deliver(lock);
    });
}

void GrowingFile::stream_started(const Status& status) {
    busy_ = false;
    if (end_.failure()) {
        return;
    }
    if (!status) {
        fail(status.error());
    } else {
        discard_staged(size_);
    }
}

void GrowingFile::write_through(const PendingPointer& pending, std::uint64_t offset) {
    outbox_.add([keep = self(), pending, offset, stream = stream_] {
        auto& write = std::get<PendingWrite>(*pending);
        const std::uint64_t length = write.data.data.size();
        stream->write(offset, std::move(write.data), [keep, pending, offset, length](const Status& status) {
            MutexLock lock(keep->mutex_);
            keep->busy_ = false;
            if (!status) {
                keep->stop(status.error());
            } else if (!keep->end_.failure()) {
                keep->changed_from(offset);
                keep->size_ = std::max(keep->size_, offset + length);
                keep->staged_from_ = keep->size_;
                keep->bytes_acknowledged_ += length;
            }
            keep->answer<PendingWrite>(pending, status);
            keep->deliver(lock);
        });
    });
}

void GrowingFile::truncate_through(const PendingPointer& pending, std::uint64_t size) {
    outbox_.add([keep = self(), pending, size, stream = stream_] {
        stream->truncate(size, [keep, pending, size](const Status& status) {
            MutexLock lock(keep->mutex_);
            keep->busy_ = false;
            if (!status) {
                keep->stop(status.error());
            } else if (!keep->end_.failure() && size != keep->size_) {
                keep->changed_from(std::min(size, keep->size_));
                keep->starts_over_ = keep->starts_over_ || size == 0;
                keep->size_ = keep->staged_from_ = size;
            }
            keep->answer<PendingTruncate>(pending, status);
            keep->deliver(lock);
        });
    });
}

}  // namespace ckptfs
