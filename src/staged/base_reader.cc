// SPDX-License-Identifier: Apache-2.0
#include "staged/base_reader.h"

#include <algorithm>
#include <utility>

#include "base/range_fetch.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// Until two agree.
constexpr int kMostFetches = 4;

bool are_equal(const Payload& one, const Payload& other) {
    return one.size() == other.size() && one.to_string() == other.to_string();
}

}  // namespace

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

void BaseReader::read_twice(std::uint64_t offset, std::size_t size, FileReader::ReadDone done) {
    read(offset, size, [self = shared_from_this(), offset, done = std::move(done)](Result<Payload> bytes) mutable {
        bool is_checked = false;
        {
            const std::lock_guard lock(self->mutex_);
            is_checked = self->reader_ != nullptr && self->reader_->checks_bytes();
        }
        if (!bytes || bytes->empty() || is_checked) {
            done(std::move(bytes));
            return;
        }
        auto comparison = std::make_shared<Comparison>();
        comparison->offset = offset;
        comparison->seen.push_back(std::move(*bytes));
        comparison->done = std::move(done);
        self->compare(comparison);
    });
}

void BaseReader::compare(const std::shared_ptr<Comparison>& comparison) {
    const ByteRange range{comparison->offset, comparison->seen.front().size(), false};
    fetch_range(
        environment_.store, key_, etag_, range, [self = shared_from_this(), comparison](Result<FetchedRange> fetched) {
            if (!fetched) {
                comparison->done(failure(std::move(fetched.error())));
                return;
            }
            std::vector<Payload>& seen = comparison->seen;
            const bool agrees = std::any_of(seen.begin(), seen.end(),
                                            [&](const Payload& before) { return are_equal(before, fetched->bytes); });
            if (agrees) {
                comparison->done(std::move(fetched->bytes));
            } else if (++comparison->fetches < kMostFetches) {
                seen.push_back(std::move(fetched->bytes));
                self->compare(comparison);
            } else {
                comparison->done(
                    failure(EIO, format("write {}: what is there is damaged on its way from the store at offset {}, "
                                        "also when fetched again",
                                        escaped(self->key_), comparison->offset)));
            }
        });
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
