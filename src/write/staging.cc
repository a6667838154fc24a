// SPDX-License-Identifier: Apache-2.0
#include "write/staging.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/digest.h"

namespace ckptfs {
namespace {

std::uint64_t bytes_of(const std::vector<FrameBytes>& frames) {
    std::uint64_t bytes = 0;
    for (const FrameBytes& frame : frames) {
        bytes += frame.bytes.size();
    }
    return bytes;
}

std::size_t buffers_for(const Part& part) {
    std::uint64_t bytes = 0;
    for (const PartFrame& frame : part.frames()) {
        bytes += frame.staged_bytes();
    }
    return static_cast<std::size_t>((bytes + BufferPool::kPayloadSize - 1) / BufferPool::kPayloadSize);
}

bool memory_is_short(const BufferPool& pool) {
    const PoolUsage usage = pool.usage();
    return usage.waiting[static_cast<std::size_t>(MemoryUse::kWrite)] > 0 ||
           usage.waiting[static_cast<std::size_t>(MemoryUse::kEncode)] > 0 ||
           usage.waiting[static_cast<std::size_t>(MemoryUse::kCommit)] > 0;
}

// Buffers that are filled one after the other.
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

Staging::Staging(BufferPool& pool, Executor& executor, Executor& compute, std::string directory)
    : pool_(pool), executor_(executor), compute_(compute), file_(StagingFile::create(std::move(directory))) {}

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
        auto range = file_->write(frame->bytes);
        if (!range) {
            frames.erase(frame, frames.end());
            return failure(std::move(range.error()));
        }
        frame->staged = std::move(*range);
        frame->crc32c = crc32c(frame->bytes);
        frame->bytes = Payload();
    }
    return {};
}

void Staging::store_rest(Job& job) {
    std::vector<FrameBytes> frames = job.part.frames_in_memory();
    Status stored = store_now(frames);
    for (const FrameBytes& frame : frames) {
        static_cast<void>(job.part.stage(frame));
    }
    job.to_load = buffers_for(job.part);
    job.unstored.reset();
    if (!stored) {
        job.unstored = std::move(stored.error());
    }
}

void Staging::tidy() {
    if (file_->trimmable()) {
        executor_.post([file = file_] { file->trim(); });
    }
}

// --- and back

void Staging::prepare(Part part, std::shared_ptr<const FrameEncoder> encoder, std::uint64_t least, Prepared done) {
    auto job = std::make_shared<Job>();
    job->part = std::move(part);
    job->encoder = std::move(encoder);
    job->least = least;
    job->done = std::move(done);
    job->to_load = buffers_for(job->part);
    job->to_encode = job->part.buffers_to_encode(*job->encoder);
    if (!memory_is_short(pool_) && enqueue(*job, true)) {
        return;
    }
    executor_.post([self = shared_from_this(), job] {
        self->store_rest(*job);
        self->enqueue(*job, false);
    });
}

bool Staging::enqueue(Job& job, bool first_only) {
    {
        const MutexLock lock(mutex_);
        if (first_only && !jobs_.empty()) {
            return false;
        }
        jobs_.push_back(std::move(job));
        if (jobs_.size() > 1) {
            return true;
        }
    }
    go_on();
    return true;
}

void Staging::go_on() {
    Job* job = nullptr;
    {
        const MutexLock lock(mutex_);
        job = &jobs_.front();
    }
    if (!job->done) {
        finish(failure(ECANCELED, "given up"));
    } else if (!std::exchange(job->begun, true) && !begin(*job)) {
        return;
    } else if (job->to_load > pool_.usage().cap[static_cast<std::size_t>(MemoryUse::kCommit)]) {
        // It would wait for ever, and hold up all others.
        finish(failure(ENOMEM, "what was changed of a part in --staging-dir does not fit into --max-memory"));
    } else if (job->loading.size() < job->to_load) {
        take(*job, MemoryUse::kCommit);
    } else if (job->to_load > 0) {
        job->to_load = 0;
        executor_.post([self = shared_from_this(), job] { self->load(*job); });
    } else if (job->encoding.size() < job->to_encode) {
        take(*job, MemoryUse::kEncode);
    } else {
        compute_.post([self = shared_from_this(), job] { self->encode(*job); });
    }
}

// What is encoded again and the result may together be more than what is reserved for that, and no listener of the pool
// can free what the first job holds. So that job takes all its buffers at once, or waits with nothing in memory.
bool Staging::begin(Job& job) {
    if (job.to_encode == 0 || job.part.bytes_in_memory() == 0 || take_at_once(job)) {
        return true;
    }
    executor_.post([self = shared_from_this(), &job] {
        self->store_rest(job);
        self->go_on();
    });
    return false;
}

bool Staging::take_at_once(Job& job) {
    const auto take = [this](MemoryUse use, std::size_t count) {
        std::vector<Buffer> taken;
        while (taken.size() < count) {
            std::optional<Buffer> buffer = pool_.try_take(use);
            if (!buffer) {
                return std::vector<Buffer>();
            }
            taken.push_back(std::move(*buffer));
        }
        return taken;
    };
    std::vector<Buffer> encoding = take(MemoryUse::kEncode, job.to_encode);
    std::vector<Buffer> loading = take(MemoryUse::kCommit, job.to_load);
    if (encoding.size() < job.to_encode || loading.size() < job.to_load) {
        return false;
    }
    job.loading = std::move(loading);
    job.encoding = std::move(encoding);
    return true;
}

void Staging::take(Job& job, MemoryUse use) {
    {
        const MutexLock lock(mutex_);
        job.waits = true;
    }
    pool_.take(use, [self = shared_from_this()](Buffer buffer) { self->taken(std::move(buffer)); });
}

void Staging::taken(Buffer buffer) {
    {
        const MutexLock lock(mutex_);
        Job& first = jobs_.front();
        first.waits = false;
        (buffer.use() == MemoryUse::kCommit ? first.loading : first.encoding).push_back(std::move(buffer));
    }
    go_on();
}

void Staging::give_up_one() {
    Job job;
    {
        const MutexLock lock(mutex_);
        if (jobs_.empty() || !jobs_.front().waits) {
            return;
        }
        const auto last =
            std::find_if(jobs_.rbegin(), jobs_.rend(), [](const Job& each) { return each.unstored.has_value(); });
        if (last == jobs_.rend()) {
            return;
        }
        // Its place stays: a buffer may be on its way to it.
        job = std::exchange(*last, Job());
        last->waits = job.waits;
    }
    compute_.post([done = std::move(job.done), why = std::move(*job.unstored)] { done(failure(why)); });
}

void Staging::load(Job& job) {
    Status loaded = read(job.part, std::exchange(job.loading, {}));
    if (loaded) {
        go_on();
    } else {
        finish(failure(std::move(loaded.error())));
    }
}

void Staging::encode(Job& job) {
    Status encoded = job.part.encode(*job.encoder, std::exchange(job.encoding, {}), job.least);
    if (encoded) {
        finish(std::move(job.part));
    } else {
        finish(failure(std::move(encoded.error())));
    }
}

void Staging::finish(Result<Part> result) {
    bool more = false;
    {
        // Freed before the next looks for memory.
        Job job;
        {
            const MutexLock lock(mutex_);
            job = std::move(jobs_.front());
            jobs_.pop_front();
            more = !jobs_.empty();
        }
        if (job.done) {
            job.done(std::move(result));
        }
    }
    if (more) {
        go_on();
    }
}

Status Staging::read(Part& part, std::vector<Buffer> buffers) {
    Filling filling(std::move(buffers));
    Status status;
    // Of one frame: pieces of one patch share its bytes.
    std::map<std::shared_ptr<const StagedRange>, Payload> loaded;
    const auto load = [&](std::shared_ptr<const StagedRange>& staged, std::uint64_t size, Payload& target) {
        const auto found = loaded.find(staged);
        Result<Payload> bytes = found != loaded.end() ? found->second : filling.read(*staged, size);
        if (bytes) {
            loaded.try_emplace(staged, *bytes);
            target = std::move(*bytes);
            staged = nullptr;
        } else {
            status = failure(std::move(bytes.error()));
        }
    };
    for (PartFrame& frame : part.frames()) {
        loaded.clear();
        if (frame.staged != nullptr && status) {
            load(frame.staged, frame.staged_size, frame.bytes);
            frame.unverified = true;
        }
        for (auto& [offset, patch] : frame.patches) {
            if (patch.staged != nullptr && status) {
                load(patch.staged, patch.staged_size, patch.bytes);
            }
        }
    }
    return status;
}

std::size_t Staging::waiting() const {
    const MutexLock lock(mutex_);
    return jobs_.size();
}

}  // namespace ckptfs
