// SPDX-License-Identifier: Apache-2.0
#include "staged/base_reader.h"

#include <utility>

namespace ckptfs {

void BaseReader::read(std::uint64_t offset, std::size_t size, FileReader::ReadDone done) {
    std::shared_ptr<FileReader> reader;
    std::shared_ptr<ReadStream> stream;
    {
        const std::lock_guard lock(mutex_);
        reader = reader_;
        stream = stream_;
        if (reader == nullptr) {
            waiting_.push_back({offset, size, std::move(done)});
            if (waiting_.size() > 1) {
                return;
            }
        }
    }
    if (reader != nullptr) {
        reader->read(stream, offset, size, std::move(done));
        return;
    }
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
