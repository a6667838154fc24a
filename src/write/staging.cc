// SPDX-License-Identifier: Apache-2.0
#include "write/staging.h"

#include <algorithm>
#include <utility>

namespace ckptfs {
namespace {

std::uint64_t bytes_of(const std::vector<FrameBytes>& frames) {
    std::uint64_t bytes = 0;
    for (const FrameBytes& frame : frames) {
        bytes += frame.raw.size();
    }
    return bytes;
}

std::size_t buffers_for(const Part& part) {
    std::uint64_t bytes = 0;
    for (const PartFrame& frame : part.frames()) {
        bytes += frame.staged ? frame.size : 0;
    }
    return static_cast<std::size_t>((bytes + BufferPool::kPayloadSize - 1) / BufferPool::kPayloadSize);
}

bool memory_is_short(const BufferPool& pool) {
    const PoolUsage usage = pool.usage();
    return usage.waiting[static_cast<std::size_t>(MemoryUse::kWrite)] > 0 ||
           usage.waiting[static_cast<std::size_t>(MemoryUse::kCommit)] > 0;
}

// Buffers filled one behind the other.
class Filling {
public:
    explicit Filling(std::vector<Buffer> buffers) {
        for (Buffer& buffer : buffers) {
            std::byte* const data = buffer.data();
            rooms_.push_back({data, std::move(buffer).share()});
        }
    }

    Result<Payload> read(const StagedRange& range, std::uint64_t size) {
        Payload bytes;
        while (bytes.size() < size) {
            const Room& room = rooms_[next_ / BufferPool::kPayloadSize];
            const std::size_t begin = next_ % BufferPool::kPayloadSize;
            const auto length = static_cast<std::size_t>(
                std::min<std::uint64_t>(size - bytes.size(), BufferPool::kPayloadSize - begin));
            const MutableByteSpan target(room.data + begin, length);
            if (Status got = range.read(bytes.size(), target); !got) {
                return failure(std::move(got.error()));
            }
            bytes.append(Slice{room.owner, target});
            next_ += length;
        }
        return bytes;
    }

private:
    struct Room {
        std::byte* data = nullptr;
        std::shared_ptr<const void> owner;
    };
    std::vector<Room> rooms_;
    std::size_t next_ = 0;
};

}  // namespace

Staging::Staging(BufferPool& pool, Executor& executor, std::string directory)
    : pool_(pool), executor_(executor), file_(StagingFile::create(std::move(directory))) {}

// --- to the disk

void Staging::store(std::vector<FrameBytes> frames, Stored done) {
    storing_ += bytes_of(frames);
    executor_.post([self = shared_from_this(), frames = std::move(frames), done = std::move(done)]() mutable {
        const std::uint64_t bytes = bytes_of(frames);
        Status status = self->store_now(frames);
        self->storing_ -= bytes;
        done(std::move(frames), std::move(status));
    });
}

Status Staging::store_now(std::vector<FrameBytes>& frames) {
    for (auto frame = frames.begin(); frame != frames.end(); ++frame) {
        auto range = file_->write(frame->raw);
        if (!range) {
            frames.erase(frame, frames.end());
            return failure(std::move(range.error()));
        }
        frame->staged = std::move(*range);
        frame->raw = Payload();
    }
    return {};
}

void Staging::store_rest(Part& part) {
    std::vector<FrameBytes> frames = part.frames_in_memory();
    // What the disk does not take stays in memory.
    static_cast<void>(store_now(frames));
    for (const FrameBytes& frame : frames) {
        static_cast<void>(part.stage(frame));
    }
}

void Staging::tidy() {
    if (file_->trimmable()) {
        executor_.post([file = file_] { file->trim(); });
    }
}

// --- and back

void Staging::load(Part part, Loaded done) {
    if (waiting() == 0 && !memory_is_short(pool_)) {
        enqueue(std::move(part), std::move(done));
        return;
    }
    executor_.post([self = shared_from_this(), part = std::move(part), done = std::move(done)]() mutable {
        self->store_rest(part);
        self->enqueue(std::move(part), std::move(done));
    });
}

void Staging::enqueue(Part part, Loaded done) {
    Job job;
    job.wanted = buffers_for(part);
    job.part = std::move(part);
    job.done = std::move(done);
    {
        const std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
        if (jobs_.size() > 1) {
            return;
        }
    }
    take_for_first();
}

void Staging::take_for_first() {
    pool_.take(MemoryUse::kCommit, [self = shared_from_this()](Buffer buffer) { self->taken(std::move(buffer)); });
}

void Staging::taken(Buffer buffer) {
    bool more = true;
    {
        const std::lock_guard lock(mutex_);
        Job& first = jobs_.front();
        first.buffers.push_back(std::move(buffer));
        if (first.buffers.size() == first.wanted) {
            executor_.post([job = std::make_shared<Job>(std::move(first))] {
                Status status = read(job->part, std::move(job->buffers));
                if (status) {
                    job->done(std::move(job->part));
                } else {
                    job->done(failure(std::move(status.error())));
                }
            });
            jobs_.pop_front();
            more = !jobs_.empty();
        }
    }
    if (more) {
        take_for_first();
    }
}

Status Staging::read(Part& part, std::vector<Buffer> buffers) {
    Filling filling(std::move(buffers));
    for (PartFrame& frame : part.frames()) {
        if (frame.staged == nullptr) {
            continue;
        }
        Result<Payload> raw = filling.read(*frame.staged, frame.size);
        if (!raw) {
            return failure(std::move(raw.error()));
        }
        frame.raw = std::move(*raw);
        for (const auto& [offset, bytes] : frame.patches) {
            frame.raw = with_patch(frame.raw, offset, bytes);
        }
        if (!frame.stale) {
            frame.expected_crc32c = frame.encoded.crc32c;
        }
        frame.patches.clear();
        frame.staged = nullptr;
        frame.stale = true;
    }
    return {};
}

std::size_t Staging::waiting() const {
    const std::lock_guard lock(mutex_);
    return jobs_.size();
}

}  // namespace ckptfs
