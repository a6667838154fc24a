// SPDX-License-Identifier: Apache-2.0
// Reads the object that a file being changed started from; opened when it is first needed.
//
// Ownership: shared; what is under way keeps it.
// Threads: read() may be called from any thread; callbacks run on any, without locks held, each exactly once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "read/file_reader.h"
#include "write/block_checksums.h"
#include "write/file_writer.h"

namespace ckptfs {

class BaseReader : public std::enable_shared_from_this<BaseReader> {
public:
    BaseReader(ReadEnvironment& environment, std::string key, const CommittedObject& object)
        : environment_(environment),
          key_(std::move(key)),
          etag_(object.etag),
          stored_size_(object.stored_size),
          size_(object.size) {}

    void read(std::uint64_t offset, std::size_t size, FileReader::ReadDone done);
    // For bytes that are to be written again: those of a plain object, for which nothing in it vouches, are compared
    // with the store's checksum of it, where there is one, and with what a second request brings.
    void read_to_write(std::uint64_t offset, std::size_t size, FileReader::ReadDone done);

private:
    struct Waiting {
        std::uint64_t offset = 0;
        std::size_t size = 0;
        FileReader::ReadDone done;
    };
    // Bytes of a plain object that are compared.
    struct Comparison {
        // Of the object: whole blocks where there are checksums of these.
        ByteRange range;
        // What is wanted of them.
        std::uint64_t skip = 0;
        std::uint64_t size = 0;
        // Null where the object is too large to be fetched for them: then what came so far, all of it different. The
        // first may have been fetched for a read, long ago.
        std::shared_ptr<const BlockChecksums> checksums;
        std::vector<Payload> seen;
        // They, and what they were compared with, were fetched once more.
        bool bytes_again = false;
        bool checksums_again = false;
        FileReader::ReadDone done;
    };
    using ComparisonPointer = std::shared_ptr<Comparison>;
    using ChecksumsDone = std::function<void(Result<std::shared_ptr<const BlockChecksums>>)>;

    [[nodiscard]] ComparisonPointer comparison_of(std::uint64_t offset, std::size_t size) const;
    // Other ones than `unless`.
    void with_checksums(const std::shared_ptr<const BlockChecksums>& unless, ChecksumsDone done);
    void checksums_here(const Result<std::shared_ptr<const BlockChecksums>>& checksums);
    void compare_with_checksums(const ComparisonPointer& comparison, const Payload& bytes);
    void compare_with_others(const ComparisonPointer& comparison, Payload bytes);
    void fetch_again(const ComparisonPointer& comparison);
    void open(bool again);
    void check_size(Result<std::shared_ptr<FileReader>> reader, bool again);
    void opened(Result<std::shared_ptr<FileReader>> reader);

    ReadEnvironment& environment_;
    const std::string key_;
    const std::string etag_;
    const std::uint64_t stored_size_;
    const std::uint64_t size_;

    Mutex mutex_;
    std::shared_ptr<FileReader> reader_ GUARDED_BY(mutex_);
    std::shared_ptr<ReadStream> stream_ GUARDED_BY(mutex_);
    // Until the object has been opened. Bounded by the requests of the kernel.
    std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
    std::shared_ptr<const BlockChecksums> checksums_ GUARDED_BY(mutex_);
    // Until they have been fetched; of the bytes that are read to be written, one after the other.
    std::vector<ChecksumsDone> awaiting_checksums_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
