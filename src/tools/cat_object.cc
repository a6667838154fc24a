// SPDX-License-Identifier: Apache-2.0
#include "tools/cat_object.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "tools/object_frames.h"

namespace ckptfs {
namespace {

// Each thread fetches and decodes a run, then waits for its turn to write: no thread is further ahead than one run, so
// that memory is bounded.
class OrderedOutput {
public:
    OrderedOutput(ObjectStore& store, const OpenObject& from, const std::function<Status(ByteSpan)>& write)
        : store_(store), from_(from), write_(write), runs_(from.layout) {}

    void work() {
        RunReader reader(store_);
        std::vector<std::byte> decoded;
        while (const auto run = runs_.next()) {
            decoded.clear();
            Status whole = read(reader, *run, decoded);
            if (!write_in_turn(run->index, decoded, std::move(whole))) {
                return;
            }
        }
    }

    [[nodiscard]] Status result() const {
        const MutexLock lock(mutex_);
        return result_;
    }

private:
    Status read(RunReader& reader, const FrameRun& run, std::vector<std::byte>& decoded) {
        if (Status fetched = reader.fetch(from_, run); !fetched) {
            return fetched;
        }
        for (std::size_t frame = 0; frame < run.frames.size(); ++frame) {
            const Result<ByteSpan> bytes = reader.decode(from_, run, frame);
            if (!bytes) {
                return failure(bytes.error());
            }
            decoded.insert(decoded.end(), bytes->begin(), bytes->end());
        }
        return {};
    }

    // False where the output has ended.
    bool write_in_turn(std::uint64_t index, ByteSpan decoded, Status read) {
        MutexLock lock(mutex_);
        changed_.wait(lock, [&]() REQUIRES(mutex_) { return next_ == index || !result_; });
        if (!result_) {
            return false;
        }
        lock.unlock();
        Status written = write_(decoded);
        lock.lock();
        if (!read || !written) {
            result_ = written ? std::move(read) : std::move(written);
            runs_.stop();
        }
        ++next_;
        changed_.notify_all();
        return result_.has_value();
    }

    ObjectStore& store_;
    const OpenObject& from_;
    const std::function<Status(ByteSpan)>& write_;
    RunQueue runs_;

    mutable Mutex mutex_;
    Condition changed_;
    // The run to be written next; only its thread writes.
    std::uint64_t next_ GUARDED_BY(mutex_) = 0;
    Status result_ GUARDED_BY(mutex_);
};

}  // namespace

Status cat_object(ObjectStore& store, const Codec& codec, const std::string& key,
                  const std::function<Status(ByteSpan)>& write) {
    const Result<OpenObject> from = open_object(store, codec, key);
    if (!from) {
        return failure(from.error());
    }
    OrderedOutput output(store, *from, write);
    run_on_threads("ckptfs-tool", kToolThreads, [&] { output.work(); });
    return output.result();
}

}  // namespace ckptfs
