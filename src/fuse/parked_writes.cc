// SPDX-License-Identifier: Apache-2.0
#include "fuse/parked_writes.h"

#include <utility>

#include "base/digest.h"
#include "ckptfs/log.h"

namespace ckptfs {

ParkedWrites::ParkedWrites(BufferPool& pool, Executor& disk, const std::string& directory)
    : pool_(pool), disk_(disk), file_(StagingFile::create(directory)) {}

Status ParkedWrites::park(ByteSpan data, std::function<bool()> wanted, Deliver deliver) {
    Payload bytes;
    bytes.append(Slice{nullptr, data});
    auto place = file_->write(bytes);
    if (!place) {
        return failure(std::move(place.error()));
    }
    auto parked = std::make_shared<Parked>();
    parked->place = std::move(*place);
    parked->size = data.size();
    parked->crc32c = crc32c(data);
    parked->wanted = std::move(wanted);
    parked->deliver = std::move(deliver);
    pool_.take(MemoryUse::kReceive, [self = shared_from_this(), parked = std::move(parked)](Buffer buffer) {
        self->buffer_here(parked, std::move(buffer));
    });
    return {};
}

void ParkedWrites::buffer_here(const std::shared_ptr<Parked>& parked, Buffer buffer) {
    disk_.post([self = shared_from_this(), parked, shared = std::make_shared<Buffer>(std::move(buffer))] {
        if (!self->stopped_ && parked->wanted()) {
            parked->deliver(self->load(*parked, std::move(*shared)));
        }
        shared->reset();
        parked->place = nullptr;
        if (self->file_->trimmable()) {
            self->file_->trim();
        }
    });
}

Result<WriteData> ParkedWrites::load(Parked& parked, Buffer buffer) const {
    // As it was received: at the beginning of a page.
    const MutableByteSpan target = buffer.bytes().subspan(BufferPool::kHeaderSize, parked.size);
    Status read = parked.place->read(0, target);
    if (read && crc32c(target) != parked.crc32c) {
        read = failure(EIO, "data read back from --staging-dir is corrupted (checksum mismatch); check that disk");
    }
    if (!read) {
        log_error(read.error().message);
        return failure(std::move(read.error()));
    }
    return WriteData{std::move(buffer), target};
}

}  // namespace ckptfs
