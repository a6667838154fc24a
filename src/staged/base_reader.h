// SPDX-License-Identifier: Apache-2.0
// Reads the object that a file being changed started from; opens it when it is first needed.
//
// Ownership: shared; reads under way keep it alive.
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
    // For bytes that are to be written again: those of a plain object, which has no checksums in it, are compared with
    // the store's checksum of it, if there is one, and with what a second request fetches.
    void read_to_write(std::uint64_t offset, std::size_t size, FileReader::ReadDone done);

private:
    struct Waiting {
        std::uint64_t offset = 0;
        std::size_t size = 0;
        FileReader::ReadDone done;
    };
    // Bytes of a plain object that are compared.
    struct Comparison {
        // A range of the object: whole blocks if there are checksums of these.
        ByteRange range;
        // What is wanted of the range.
        std::uint64_t skip = 0;
        std::uint64_t size = 0;
        // `checksums` is null if the object is too large to be fetched for them: `seen` then has what came so far, all
        // of it different. The first bytes may have been fetched for a read, long ago.
        std::shared_ptr<const BlockChecksums> checksums;
        std::vector<Payload> seen;
        // The bytes, and the checksums that they were compared with, were fetched once more.
        bool bytes_again = false;
        bool checksums_again = false;
        FileReader::ReadDone done;
    };
    using ComparisonPointer = std::shared_ptr<Comparison>;
    using ChecksumsDone = std::function<void(Result<std::shared_ptr<const BlockChecksums>>)>;

    [[nodiscard]] ComparisonPointer comparison_of(std::uint64_t offset, std::size_t size) const;
    // `done` gets checksums other than `unless`, which are fetched if need be.
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
    // Reads that wait until the object has been opened. Bounded by the requests of the kernel.
    std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
    std::shared_ptr<const BlockChecksums> checksums_ GUARDED_BY(mutex_);
    // Wait until checksums have been fetched; few, because bytes are read to be written one range after the other.
    std::vector<ChecksumsDone> awaiting_checksums_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
