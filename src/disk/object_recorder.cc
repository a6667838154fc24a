// SPDX-License-Identifier: Apache-2.0
#include "disk/object_recorder.h"

#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// Objects that wait: some 30 MB.
constexpr std::size_t kMostWaiting = std::size_t{1} << 16;
// Of their bytes.
constexpr std::size_t kMostBytesWaiting = std::size_t{16} << 20;

template <class... Each>
struct Cases : Each... {
    using Each::operator()...;
};
template <class... Each>
Cases(Each...) -> Cases<Each...>;

}  // namespace

class ObjectRecorder::State {
public:
    explicit State(Config config) : config_(std::move(config)) {}

    // Whether it is the first that waits.
    bool add(Event event) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        std::size_t count = 1;
        if (auto* const seen = std::get_if<SeenObject>(&event); seen != nullptr && seen->body) {
            if (bytes_ + seen->body->size() > kMostBytesWaiting) {
                seen->body.reset();
            } else {
                bytes_ += seen->body->size();
            }
        } else if (const auto* const listed = std::get_if<Listed>(&event)) {
            count += listed->page.objects.size();
        }
        if (count_ + count > kMostWaiting) {
            waiting_.clear();
            bytes_ = count_ = 0;
            has_lost_some_ = true;
            return false;
        }
        count_ += count;
        waiting_.push_back(std::move(event));
        return waiting_.size() == 1;
    }

    // One thread at a time.
    void write(WallTime now, SteadyTime steady) EXCLUDES(mutex_) {
        std::deque<Event> events;
        bool has_lost_some = false;
        {
            const MutexLock lock(mutex_);
            events.swap(waiting_);
            bytes_ = count_ = 0;
            has_lost_some = std::exchange(has_lost_some_, false);
        }
        if (events.empty() && !has_lost_some) {
            return;
        }
        if (steady < left_alone_until_) {
            lose_some();
            return;
        }
        Status written = write_now(events, has_lost_some, now);
        if (!written && written.error().damaged) {
            log_warning(format("begun anew: {}", written.error().message));
            record_.reset();
            written = ObjectRecord::remove(config_.directory);
            written = written ? write_now(events, has_lost_some, now) : written;
        }
        if (!written) {
            failed(written.error(), steady);
        }
    }

private:
    void lose_some() EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        has_lost_some_ = true;
    }

    void failed(const Error& error, SteadyTime steady) {
        lose_some();
        record_.reset();
        left_alone_until_ = steady + kLeftAlone;
        if (std::exchange(failure_, error.message) != error.message) {
            log_warning(
                format("{}; what is seen of the bucket is not recorded for --cache-only for a while", error.message));
        }
    }

    Status write_now(const std::deque<Event>& events, bool forgets, WallTime now) {
        if (record_ == nullptr) {
            Result<std::unique_ptr<ObjectRecord>> opened = ObjectRecord::open(config_.directory, config_.store);
            if (!opened) {
                return failure(std::move(opened.error()));
            }
            record_ = std::move(*opened);
        }
        if (Status begun = record_->begin(); !begun) {
            return begun;
        }
        Status written = forgets ? record_->forget_all() : Status();
        for (const Event& event : events) {
            written = written ? write_one(event, now) : written;
        }
        written = written ? record_->trim(config_.limit) : written;
        written = written ? record_->commit() : written;
        if (!written) {
            record_->give_up();
        }
        return written;
    }

    Status write_one(const Event& event, WallTime now) {
        return std::visit(Cases{[&](const SeenObject& seen) { return record_->there(seen, now); },
                                [&](const Gone& gone) { return record_->gone(gone.key); },
                                [&](const Copied& copied) { return record_->copied(copied.copy, copied.written, now); },
                                [&](const Listed& listed) { return record_->listed(listed.request, listed.page, now); },
                                [&](const Dropped& dropped) { return record_->forget_body(dropped.key); }},
                          event);
    }

    const Config config_;
    // Those of the writing thread.
    std::unique_ptr<ObjectRecord> record_;
    SteadyTime left_alone_until_{};
    std::string failure_;

    Mutex mutex_;
    std::deque<Event> waiting_ GUARDED_BY(mutex_);
    std::size_t count_ GUARDED_BY(mutex_) = 0;
    std::size_t bytes_ GUARDED_BY(mutex_) = 0;
    bool has_lost_some_ GUARDED_BY(mutex_) = false;
};

ObjectRecorder::ObjectRecorder(Config config, const Clock& clock, Timer& timer)
    : clock_(clock), state_(std::make_shared<State>(std::move(config))), writes_(1, timer), timers_(timer) {}

ObjectRecorder::~ObjectRecorder() {
    static_cast<void>(stop(Milliseconds(0)));
}

void ObjectRecorder::there(SeenObject seen) {
    if (seen.body && seen.body->size() > kLargestRecorded) {
        seen.body.reset();
    }
    add(std::move(seen));
}

void ObjectRecorder::gone(std::string key) {
    add(Gone{std::move(key)});
}

void ObjectRecorder::copied(CopyRequest copy, PutResponse written) {
    copy.may_send = nullptr;
    add(Copied{std::move(copy), std::move(written)});
}

void ObjectRecorder::listed(ListRequest request, ListResponse page) {
    add(Listed{std::move(request), std::move(page)});
}

void ObjectRecorder::drop(std::string key) {
    add(Dropped{std::move(key)});
}

void ObjectRecorder::add(Event event) {
    if (state_->add(std::move(event))) {
        timers_.after(kWritesAfter, [this] { write_soon(); });
    }
}

void ObjectRecorder::write_soon() {
    writes_.post([state = state_, now = clock_.wall_now(), steady = clock_.now()] { state->write(now, steady); });
}

bool ObjectRecorder::stop(Milliseconds patience) {
    timers_.stop();
    write_soon();
    return writes_.stop(patience);
}

}  // namespace ckptfs
