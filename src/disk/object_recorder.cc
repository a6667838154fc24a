// SPDX-License-Identifier: Apache-2.0
#include "disk/object_recorder.h"

#include <cerrno>
#include <deque>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// Objects that may wait: some 30 MB.
constexpr std::size_t kMostWaiting = std::size_t{1} << 16;
// Bytes of these objects that may wait.
constexpr std::size_t kMostBytesWaiting = std::size_t{16} << 20;
// Attempts at the end, if another process writes to the database: each waits for it for two seconds.
constexpr int kLastAttempts = 3;

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

    // When waiting events must be written: now, if much waits; soon, if this is the first.
    enum class Due : std::uint8_t { kNothing, kSoon, kNow };

    Due add(Event event) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        const std::size_t count = objects_of(event);
        if (count_ + count > kMostWaiting) {
            // Without one page of a list, names are missing or too many. Without what is known of one object an older
            // version of it would stand beside what is newer.
            if (!std::holds_alternative<Listed>(event)) {
                clear();
                has_lost_some_ = true;
            }
            return Due::kNothing;
        }
        const std::size_t bytes = fit_bytes(event);
        const bool fills_it = bytes_ < kMostBytesWaiting / 2 && bytes_ + bytes >= kMostBytesWaiting / 2;
        bytes_ += bytes;
        count_ += count;
        waiting_.push_back(std::move(event));
        const bool was_due = std::exchange(is_due_, true);
        return fills_it ? Due::kNow : was_due ? Due::kNothing : Due::kSoon;
    }

    // `told` is called, with the mutex held, when events that could not be written wait again.
    void when_put_back(std::function<void()> told) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        put_back_ = std::move(told);
    }

    [[nodiscard]] bool waits() EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        return !waiting_.empty() || has_lost_some_;
    }

    // Called by one thread at a time.
    void write(WallTime now, SteadyTime steady) EXCLUDES(mutex_) {
        std::deque<Event> events;
        bool has_lost_some = false;
        {
            const MutexLock lock(mutex_);
            events.swap(waiting_);
            clear();
            is_due_ = false;
            if (steady < left_alone_until_) {
                // Another mount may have begun a new record meanwhile, or the old one could not be removed.
                has_lost_some_ = has_lost_some_ || !events.empty();
                return;
            }
            has_lost_some = std::exchange(has_lost_some_, false);
        }
        if (events.empty() && !has_lost_some) {
            return;
        }
        Status written = write_now(events, has_lost_some, {now, steady});
        if (!written && written.error().errno_value == EBUSY) {
            put_back(std::move(events), has_lost_some);
            return;
        }
        if (!written && written.error().damaged) {
            log_warning(format("starting the record of --cache-only over: {}", written.error().message));
            record_.reset();
            written = ObjectRecord::remove(config_.directory);
            written = written ? write_now(events, has_lost_some, {now, steady}) : written;
        }
        if (!written) {
            failed(written.error(), steady);
        }
    }

private:
    static std::size_t objects_of(const Event& event) {
        const auto* const listed = std::get_if<Listed>(&event);
        return 1 + (listed != nullptr ? listed->page.objects.size() : 0);
    }

    // The number of the object's bytes that wait; drops them if too many do.
    std::size_t fit_bytes(Event& event) const REQUIRES(mutex_) {
        auto* const there = std::get_if<There>(&event);
        if (there == nullptr || !there->seen.body) {
            return 0;
        }
        std::optional<std::string>& body = there->seen.body;
        if (bytes_ + body->size() > kMostBytesWaiting) {
            body.reset();
            return 0;
        }
        return body->size();
    }

    void clear() REQUIRES(mutex_) {
        waiting_.clear();
        bytes_ = count_ = 0;
    }

    // Another process writes to the database. Events that came meanwhile come after these; if some of those were lost,
    // all that was recorded is forgotten, and these are older.
    void put_back(std::deque<Event> events, bool has_lost_some) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        is_due_ = true;
        if (put_back_) {
            put_back_();
        }
        if (has_lost_some_) {
            return;
        }
        has_lost_some_ = has_lost_some;
        for (Event& event : events) {
            count_ += objects_of(event);
            bytes_ += fit_bytes(event);
        }
        if (count_ > kMostWaiting) {
            clear();
            has_lost_some_ = true;
            return;
        }
        waiting_.insert(waiting_.begin(), std::make_move_iterator(events.begin()),
                        std::make_move_iterator(events.end()));
    }

    // Removes the record, as a part of it would be outdated and another one newer. That needs no room.
    void failed(const Error& error, SteadyTime steady) EXCLUDES(mutex_) {
        record_.reset();
        {
            const MutexLock lock(mutex_);
            has_lost_some_ = true;
        }
        left_alone_until_ = steady + kLeftAlone;
        const Status removed = ObjectRecord::remove(config_.directory);
        if (std::exchange(failure_, error.message) != error.message) {
            log_warning(
                format("{}; what was seen of the bucket is forgotten for --cache-only, and not recorded for a "
                       "while{}",
                       error.message, removed ? "" : "; " + removed.error().message));
        }
    }

    struct Now {
        WallTime wall;
        SteadyTime steady;
    };

    Status write_now(const std::deque<Event>& events, bool forgets, const Now& now) {
        if (record_ == nullptr || !record_->is_current()) {
            record_.reset();
            Result<std::unique_ptr<ObjectRecord>> opened = ObjectRecord::open(config_.directory, config_.store);
            if (!opened) {
                return failure(std::move(opened.error()));
            }
            record_ = std::move(*opened);
        }
        if (Status begun = record_->begin(); !begun) {
            return begun;
        }
        Status written = record_->forget_changes_before(now.steady);
        written = written && forgets ? record_->forget_all() : written;
        for (const Event& event : events) {
            written = written ? write_one(event, now) : written;
        }
        written = written ? record_->trim(config_.limit) : written;
        written = written ? record_->commit() : written;
        if (!written) {
            record_->give_up();
            // The record may rely on what was rolled back.
            record_.reset();
        }
        return written;
    }

    Status write_one(const Event& event, const Now& now) {
        return std::visit(
            Cases{[&](const There& there) {
                      return write_object(there.seen.info.key, there.moment, now,
                                          [&] { return record_->there(there.seen, now.wall); });
                  },
                  [&](const Gone& gone) {
                      return write_object(gone.key, gone.moment, now, [&] { return record_->gone(gone.key); });
                  },
                  [&](const Copied& copied) {
                      return write_object(copied.copy.key, {copied.ended, true}, now,
                                          [&] { return record_->copied(copied.copy, copied.written, now.wall); });
                  },
                  [&](const Listed& listed) { return write_page(listed, now); },
                  [&](const Dropped& dropped) { return record_->forget_body(dropped.key); }},
            event);
    }

    // Changes from before are forgotten: what has come between is not known any more.
    static bool is_long_ago(SteadyTime at, const Now& now) {
        return now.steady - at > SharedChanges::kRemembered - SharedChanges::kWaits;
    }

    Status write_object(const std::string& key, const Moment& moment, const Now& now,
                        const std::function<Status()>& write) {
        if (!moment.is_change && is_long_ago(moment.at, now)) {
            return {};
        }
        const Result<bool> is_overtaken = record_->has_changed(key, moment.at);
        if (!is_overtaken) {
            return failure(is_overtaken.error());
        }
        if (*is_overtaken) {
            return {};
        }
        Status written = write();
        return written && moment.is_change ? record_->note_change(key, moment.at) : written;
    }

    Status write_page(const Listed& listed, const Now& now) {
        if (is_long_ago(listed.asked, now)) {
            return {};
        }
        Result<std::set<std::string>> left_alone = record_->changed_below(listed.request.prefix, listed.asked);
        if (!left_alone) {
            return failure(std::move(left_alone.error()));
        }
        left_alone->insert(listed.left_alone.begin(), listed.left_alone.end());
        return record_->listed(listed.request, listed.page, *left_alone, now.wall);
    }

    const Config config_;
    // Used by the writing thread.
    std::unique_ptr<ObjectRecord> record_;
    SteadyTime left_alone_until_{};
    std::string failure_;

    Mutex mutex_;
    std::deque<Event> waiting_ GUARDED_BY(mutex_);
    std::size_t count_ GUARDED_BY(mutex_) = 0;
    std::size_t bytes_ GUARDED_BY(mutex_) = 0;
    bool has_lost_some_ GUARDED_BY(mutex_) = false;
    bool is_due_ GUARDED_BY(mutex_) = false;
    std::function<void()> put_back_ GUARDED_BY(mutex_);
};

ObjectRecorder::ObjectRecorder(Config config, const Clock& clock, Timer& timer)
    : clock_(clock), state_(std::make_shared<State>(std::move(config))), writes_(1, timer), timers_(timer) {
    state_->when_put_back([this] { timers_.after(kWritesAfter, [this] { write_now(); }); });
}

ObjectRecorder::~ObjectRecorder() {
    static_cast<void>(stop(Milliseconds(0)));
}

void ObjectRecorder::there(SeenObject seen, Moment moment) {
    if (seen.body && seen.body->size() > kLargestRecorded) {
        seen.body.reset();
    }
    add(There{std::move(seen), moment});
}

void ObjectRecorder::gone(std::string key, Moment moment) {
    add(Gone{std::move(key), moment});
}

void ObjectRecorder::copied(CopyRequest copy, PutResponse written, SteadyTime ended) {
    copy.may_send = nullptr;
    add(Copied{std::move(copy), std::move(written), ended});
}

void ObjectRecorder::listed(ListRequest request, ListResponse page, std::set<std::string> left_alone,
                            SteadyTime asked) {
    add(Listed{std::move(request), std::move(page), std::move(left_alone), asked});
}

void ObjectRecorder::drop(std::string key) {
    add(Dropped{std::move(key)});
}

void ObjectRecorder::add(Event event) {
    switch (state_->add(std::move(event))) {
        case State::Due::kNothing:
            return;
        case State::Due::kSoon:
            timers_.after(kWritesAfter, [this] { write_now(); });
            return;
        case State::Due::kNow:
            write_now();
    }
}

void ObjectRecorder::write_now() {
    writes_.post([state = state_, now = clock_.wall_now(), steady = clock_.now()] { state->write(now, steady); });
}

bool ObjectRecorder::stop(Milliseconds patience) {
    state_->when_put_back(nullptr);
    timers_.stop();
    for (int attempt = 0; attempt < kLastAttempts; ++attempt) {
        writes_.post([state = state_, now = clock_.wall_now(), steady = clock_.now()] {
            if (state->waits()) {
                state->write(now, steady);
            }
        });
    }
    return writes_.stop(patience);
}

}  // namespace ckptfs
