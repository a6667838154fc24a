// SPDX-License-Identifier: Apache-2.0
#include "staged/base_reader.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/range_fetch.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "read/block_cache.h"

namespace ckptfs {
namespace {

// The same bytes are fetched at most this often, until two fetches agree.
constexpr std::size_t kMostFetches = 5;
// An object up to this size is fetched for checksums, even if not all of it is written again. One of which the store
// has a checksum, because it was sent by one request, is smaller, and most of a larger one is copied.
constexpr std::uint64_t kMostChecksummed = std::uint64_t{16} << 20;

// `bytes`: whole blocks, the first of which begins at `offset`.
bool have_checksums(const BlockChecksums& checksums, std::uint64_t offset, const Payload& bytes) {
    for (std::uint64_t done = 0; done < bytes.size(); done += BufferPool::kPayloadSize) {
        if (!checksums.has(offset + done, crc32c(bytes.subrange(done, BufferPool::kPayloadSize)))) {
            return false;
        }
    }
    return true;
}

}  // namespace

void BaseReader::read(std::uint64_t offset, std::size_t size, FileReader::ReadDone done) {
    MutexLock lock(mutex_);
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
    open(false);
}

void BaseReader::open(bool again) {
    FileReader::open(environment_, key_, etag_, stored_size_ == 0,
                     [self = shared_from_this(), again](Result<std::shared_ptr<FileReader>> reader) {
                         self->check_size(std::move(reader), again);
                     });
}

// The file that is changed began with this size. If the object holds another, one of the two came damaged: what is
// read, or published, would be short.
void BaseReader::check_size(Result<std::shared_ptr<FileReader>> reader, bool again) {
    if (reader && (*reader)->size() != size_) {
        reader = damage(
            format("{}: its object holds a file of {} bytes, and not of {}", escaped(key_), (*reader)->size(), size_));
        if (!again) {
            // A table that came damaged is not used again.
            environment_.cache.forget_closed();
            open(true);
            return;
        }
    }
    opened(std::move(reader));
}

BaseReader::ComparisonPointer BaseReader::comparison_of(std::uint64_t offset, std::size_t size) const {
    auto comparison = std::make_shared<Comparison>();
    comparison->range = ByteRange{offset, size, false};
    comparison->size = size;
    if (stored_size_ <= kMostChecksummed) {
        const std::uint64_t begin = offset / BufferPool::kPayloadSize * BufferPool::kPayloadSize;
        const std::uint64_t blocks = (offset + size - begin + BufferPool::kPayloadSize - 1) / BufferPool::kPayloadSize;
        comparison->range = ByteRange{begin, blocks * BufferPool::kPayloadSize, false};
        comparison->skip = offset - begin;
    }
    return comparison;
}

void BaseReader::read_to_write(std::uint64_t offset, std::size_t size, FileReader::ReadDone done) {
    const ComparisonPointer wanted = comparison_of(offset, size);
    read(wanted->range.offset, wanted->range.length,
         [self = shared_from_this(), wanted, done = std::move(done)](Result<Payload> bytes) mutable {
             bool is_checked = false;
             {
                 const MutexLock lock(self->mutex_);
                 is_checked = self->reader_ != nullptr && self->reader_->checks_bytes();
             }
             if (!bytes || bytes->empty() || is_checked) {
                 done(bytes.map([&](const Payload& all) { return all.subrange(wanted->skip, wanted->size); }));
                 return;
             }
             wanted->range.length = bytes->size();
             wanted->done = std::move(done);
             if (self->stored_size_ > kMostChecksummed) {
                 self->compare_with_others(wanted, std::move(*bytes));
             } else {
                 self->compare_with_checksums(wanted, *bytes);
             }
         });
}

void BaseReader::with_checksums(const std::shared_ptr<const BlockChecksums>& unless, ChecksumsDone done) {
    MutexLock lock(mutex_);
    if (checksums_ != unless) {
        const auto checksums = checksums_;
        lock.unlock();
        done(checksums);
        return;
    }
    awaiting_checksums_.push_back(std::move(done));
    if (awaiting_checksums_.size() > 1) {
        return;
    }
    lock.unlock();
    fetch_checksums(environment_.store, key_, etag_, 0, stored_size_,
                    [self = shared_from_this()](const auto& checksums) { self->checksums_here(checksums); });
}

void BaseReader::checksums_here(const Result<std::shared_ptr<const BlockChecksums>>& checksums) {
    std::vector<ChecksumsDone> waiting;
    {
        const MutexLock lock(mutex_);
        waiting.swap(awaiting_checksums_);
        checksums_ = checksums.value_or(nullptr);
    }
    for (const ChecksumsDone& done : waiting) {
        done(checksums);
    }
}

void BaseReader::compare_with_checksums(const ComparisonPointer& comparison, const Payload& bytes) {
    const std::shared_ptr<const BlockChecksums> checksums = comparison->checksums;
    if (checksums != nullptr && have_checksums(*checksums, comparison->range.offset, bytes)) {
        comparison->done(bytes.subrange(comparison->skip, comparison->size));
    } else if (checksums != nullptr && !std::exchange(comparison->bytes_again, true)) {
        fetch_again(comparison);
    } else if (checksums != nullptr &&
               (checksums->are_vouched_for || std::exchange(comparison->checksums_again, true))) {
        comparison->done(failure(damaged_on_its_way(key_, comparison->range.offset)));
    } else {
        with_checksums(checksums, [self = shared_from_this(), comparison, bytes](auto here) {
            if (here) {
                comparison->checksums = std::move(*here);
                self->compare_with_checksums(comparison, bytes);
            } else {
                comparison->done(failure(std::move(here.error())));
            }
        });
    }
}

void BaseReader::compare_with_others(const ComparisonPointer& comparison, Payload bytes) {
    std::vector<Payload>& seen = comparison->seen;
    if (std::find(seen.begin(), seen.end(), bytes) != seen.end()) {
        comparison->done(std::move(bytes));
    } else if (seen.size() + 1 < kMostFetches) {
        seen.push_back(std::move(bytes));
        fetch_again(comparison);
    } else {
        comparison->done(failure(damaged_on_its_way(key_, comparison->range.offset)));
    }
}

void BaseReader::fetch_again(const ComparisonPointer& comparison) {
    fetch_range(environment_.store, key_, etag_, comparison->range,
                [self = shared_from_this(), comparison](Result<FetchedRange> fetched) {
                    if (!fetched) {
                        comparison->done(failure(std::move(fetched.error())));
                    } else if (comparison->checksums != nullptr) {
                        self->compare_with_checksums(comparison, fetched->bytes);
                    } else {
                        self->compare_with_others(comparison, std::move(fetched->bytes));
                    }
                });
}

void BaseReader::opened(Result<std::shared_ptr<FileReader>> reader) {
    std::vector<Waiting> waiting;
    std::shared_ptr<ReadStream> stream;
    {
        const MutexLock lock(mutex_);
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
