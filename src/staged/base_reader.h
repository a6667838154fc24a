// SPDX-License-Identifier: Apache-2.0
// Reads the object that a file being changed started from; opened when it is first needed.
//
// Ownership: shared; what is under way keeps it.
// Threads: read() may be called from any thread; callbacks run on any, without locks held, each exactly once.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "read/file_reader.h"
#include "write/file_writer.h"

namespace ckptfs {

class BaseReader : public std::enable_shared_from_this<BaseReader> {
public:
    BaseReader(ReadEnvironment& environment, std::string key, const CommittedObject& object)
        : environment_(environment), key_(std::move(key)), etag_(object.etag), empty_(object.stored_size == 0) {}

    void read(std::uint64_t offset, std::size_t size, FileReader::ReadDone done);
    // For bytes that are to be written again: those of a plain object, for which nothing vouches, are fetched until two
    // fetches agree. The first may have been one that a read made long ago.
    void read_twice(std::uint64_t offset, std::size_t size, FileReader::ReadDone done);

private:
    struct Waiting {
        std::uint64_t offset = 0;
        std::size_t size = 0;
        FileReader::ReadDone done;
    };
    struct Comparison {
        std::uint64_t offset = 0;
        // What came so far; all differ.
        std::vector<Payload> seen;
        int fetches = 0;
        FileReader::ReadDone done;
    };
    void compare(const std::shared_ptr<Comparison>& comparison);
    void opened(Result<std::shared_ptr<FileReader>> reader);

    ReadEnvironment& environment_;
    const std::string key_;
    const std::string etag_;
    const bool empty_;

    std::mutex mutex_;
    // Guarded by mutex_.
    std::shared_ptr<FileReader> reader_;
    std::shared_ptr<ReadStream> stream_;
    // Until the object has been opened. Bounded by the requests of the kernel.
    std::vector<Waiting> waiting_;
};

}  // namespace ckptfs
