// SPDX-License-Identifier: Apache-2.0
#include "staged/base_reader.h"

#include <utility>

namespace ckptfs {

void BaseReader::read(std::uint64_t offset, std::size_t size, FileReader::ReadDone done) {
    std::unique_lock lock(mutex_);
    if (reader_ != nullptr) {
        const std::shared_ptr<FileReader> reader = reader_;
        const std::shared_ptr<ReadStream> stream = stream_;
        lock.unlock();
        reader->read(stream, offset, size, std::move(done));
        return;
    }
    waiting_.push_back({offset, size, std::move(done)});
    if (waiting_.size() > 1) {
        return;
    }
    lock.unlock();
    FileReader::open(
        environment_, key_, etag_, empty_,
        [self = shared_from_this()](Result<std::shared_ptr<FileReader>> result) { self->opened(std::move(result)); });
}

void BaseReader::opened(Result<std::shared_ptr<FileReader>> reader) {
    std::vector<Waiting> waiting;
    std::shared_ptr<ReadStream> stream;
    {
        const std::lock_guard lock(mutex_);
        waiting.swap(waiting_);
        if (reader) {
            reader_ = *reader;
            stream = stream_ = reader_->open_stream();
        }
    }
    for (Waiting& read : waiting) {
        if (reader) {
            (*reader)->read(stream, read.offset, read.size, std::move(read.done));
        } else {
            read.done(failure(reader.error()));
        }
    }
}

}  // namespace ckptfs
