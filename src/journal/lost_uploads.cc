// SPDX-License-Identifier: Apache-2.0
#include "journal/lost_uploads.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"

namespace ckptfs {
namespace {

// Time between the two looks at an upload without parts.
constexpr Milliseconds kPatience{3'000};
// No request is in flight for longer.
constexpr Milliseconds kLate{60'000};
// Keys beyond these are left to the next mount, except those of files of which others are to be told now.
constexpr std::size_t kMostKeys = 1000;

bool may_have_taken_effect(const Error& error) {
    return error.outcome_unknown || error.errno_value == ECANCELED;
}

void tell_none(const UploadIntent& /*last*/, const StoreDone<void>& done) {
    done(failure(ECANCELED, "the mount has ended"));
}

}  // namespace

bool may_be_lost(const OpenUpload& upload, const std::string& key, WallTime asked) {
    return upload.upload.key == key && upload.initiated >= asked - kMaxClockSkew;
}

void LostAnswers::asked(const std::string& key) {
    const MutexLock lock(mutex_);
    ++requests_[key].under_way;
}

bool LostAnswers::answered(const std::string& key) {
    const MutexLock lock(mutex_);
    const auto found = requests_.find(key);
    const bool lost = found->second.lost;
    if (--found->second.under_way == 0) {
        requests_.erase(found);
    }
    return lost;
}

bool LostAnswers::is_under_way(const std::string& key) const {
    const MutexLock lock(mutex_);
    return requests_.contains(key);
}

void LostAnswers::ended(const s3::Attempt& attempt) {
    if (!attempt.outcome_unknown || attempt.operation != "CreateMultipartUpload") {
        return;
    }
    const MutexLock lock(mutex_);
    if (const auto found = requests_.find(attempt.key); found != requests_.end()) {
        found->second.lost = true;
    }
}

class LostUploads::Search : public std::enable_shared_from_this<Search> {
public:
    explicit Search(const Environment& environment) : environment_(environment) {}

    void create_upload(CreateUploadRequest request, UploadedFile file, StoreDone<UploadId> done) {
        UploadIntent intent = environment_.journal.intend(request.key, environment_.clock.wall_now(), file);
        environment_.answers.asked(request.key);
        environment_.store.create_upload(std::move(request), [self = shared_from_this(), intent = std::move(intent),
                                                              file, done = std::move(done)](Result<UploadId> upload) {
            if (upload) {
                self->environment_.journal.begun(*upload, file);
            }
            const bool lost = self->environment_.answers.answered(intent.key);
            if (upload && lost) {
                self->environment_.journal.intent_answered(intent);
            }
            self->created(intent, lost || (!upload && may_have_taken_effect(upload.error())));
            done(std::move(upload));
        });
    }

    void note(const std::vector<UploadIntent>& intents) {
        const std::vector<UploadIntent> ours = environment_.journal.take_over(intents);
        const MutexLock lock(mutex_);
        is_noting_ = true;
        for (const UploadIntent& each : ours) {
            if (each.file_ended) {
                add(each);
                continue;
            }
            Key& key = add_always(each);
            key.untold = true;
            if (key.last.asked <= each.asked) {
                key.last = each;
            }
        }
    }

    void begin(TellOthers tell_others, std::function<void()> all_told) {
        {
            const MutexLock lock(mutex_);
            is_noting_ = false;
            if (!stopping_) {
                tell_others_ = std::move(tell_others);
                if (all_told) {
                    all_told_ = std::move(all_told);
                }
            }
        }
        tell_if_all_told();
        look();
    }

    void saved(const std::string& saved_key) {
        std::vector<UploadIntent> intents;
        {
            const MutexLock lock(mutex_);
            if (const auto found = keys_.find(saved_key); found != keys_.end()) {
                found->second.untold = false;
                intents = found->second.intents;
            }
        }
        tell_if_all_told();
        for (const UploadIntent& intent : intents) {
            environment_.journal.intent_answered(intent);
        }
    }

    void stop(std::function<void()> ended) {
        MutexLock lock(mutex_);
        stopping_ = true;
        is_noting_ = false;
        if (!ended) {
            tell_others_ = tell_none;
            all_told_ = nullptr;
        }
        const Timer::Id waiting = std::exchange(waiting_, 0);
        lock.unlock();
        if (waiting != 0) {
            environment_.timer.cancel(waiting);
        }
        lock.lock();
        if (keys_.empty() && !looking_) {
            lock.unlock();
            if (ended) {
                ended();
            }
            return;
        }
        const bool is_awaited = ended != nullptr;
        ended_ = std::move(ended);
        lock.unlock();
        if (is_awaited) {
            look();
        }
    }

private:
    struct Key {
        WallTime asked;
        SteadyTime lost;
        std::vector<UploadIntent> intents;
        // Whether some are of a killed mount and others have not been told of its file; the latest of those.
        bool untold = false;
        UploadIntent last{};
        bool looked_at = false;
        // The last look has failed.
        bool failed = false;
        // Since when uploads were seen without a part, by ID.
        std::map<std::string, SteadyTime> empty;

        [[nodiscard]] bool is_worth_a_look() const { return !failed && (!looked_at || !empty.empty()); }
    };
    // One look at every key, one request after the other.
    struct Round {
        std::vector<std::string> keys;
        std::vector<OpenUpload> uploads;
        std::size_t ended = 0;
        // Files of which others could not be told, for the first time.
        std::size_t untold = 0;
        std::string problem;
    };
    using SharedRound = std::shared_ptr<Round>;

    void created(const UploadIntent& intent, bool lost) {
        if (!lost) {
            environment_.journal.intent_ended(intent);
            return;
        }
        {
            const MutexLock lock(mutex_);
            add(intent);
        }
        look();
    }

    void tell_if_all_told() {
        std::function<void()> all_told;
        {
            const MutexLock lock(mutex_);
            if (std::none_of(keys_.begin(), keys_.end(), [](const auto& each) { return each.second.untold; })) {
                all_told = std::exchange(all_told_, nullptr);
            }
        }
        if (all_told) {
            all_told();
        }
    }

    // Does nothing if there are too many keys.
    void add(const UploadIntent& intent) REQUIRES(mutex_) {
        if (keys_.size() < kMostKeys || keys_.contains(intent.key)) {
            add_always(intent);
        }
    }

    Key& add_always(const UploadIntent& intent) REQUIRES(mutex_) {
        Key& key = keys_.try_emplace(intent.key, Key{intent.asked, {}, {}, false, {}, false, false, {}}).first->second;
        key.asked = std::min(key.asked, intent.asked);
        key.lost = environment_.clock.now();
        key.intents.push_back(intent);
        return key;
    }

    void look() {
        const auto round = std::make_shared<Round>();
        {
            const MutexLock lock(mutex_);
            if (looking_ || is_noting_ || keys_.empty()) {
                return;
            }
            looking_ = true;
            for (const auto& [key, state] : keys_) {
                round->keys.push_back(key);
            }
        }
        next_key(round);
    }

    void next_key(const SharedRound& round) {
        if (round->keys.empty()) {
            looked(*round);
            return;
        }
        const std::string key = round->keys.back();
        MutexLock lock(mutex_);
        const Key& state = keys_.at(key);
        if (!state.untold) {
            lock.unlock();
            list(round);
            return;
        }
        const TellOthers tell_others = tell_others_;
        // An earlier version may have been sent since the intent was taken over.
        const UploadIntent last = environment_.journal.outlived(state.last);
        lock.unlock();
        tell_others(last, [self = shared_from_this(), round](const Status& result) { self->told(round, result); });
    }

    void told(const SharedRound& round, const Status& result) {
        {
            const MutexLock lock(mutex_);
            Key& state = keys_.at(round->keys.back());
            // The file may have been saved meanwhile.
            state.untold = state.untold && !result;
            if (!result) {
                state.looked_at = false;
                round->untold += static_cast<std::size_t>(!std::exchange(state.failed, true));
                round->problem = result.error().message;
            }
        }
        if (result) {
            tell_if_all_told();
            list(round);
        } else if (result.error().errno_value == ECANCELED) {
            give_up(round);
        } else {
            round->keys.pop_back();
            next_key(round);
        }
    }

    // The mount ends: each of the other keys would fail at once, from within the one before it.
    void give_up(const SharedRound& round) {
        {
            const MutexLock lock(mutex_);
            for (const std::string& key : round->keys) {
                keys_.at(key).looked_at = false;
                keys_.at(key).failed = true;
            }
        }
        round->keys.clear();
        next_key(round);
    }

    void list(const SharedRound& round) {
        environment_.store.list_uploads(round->keys.back(),
                                        [self = shared_from_this(), round](Result<std::vector<OpenUpload>> uploads) {
                                            self->listed(round, std::move(uploads));
                                        });
    }

    void listed(const SharedRound& round, Result<std::vector<OpenUpload>> uploads) {
        const std::string& key = round->keys.back();
        if (!uploads && uploads.error().errno_value == ECANCELED) {
            give_up(round);
            return;
        }
        if (!uploads) {
            if (is_refused_for_good(uploads.error())) {
                log_info(
                    format("uploads whose creation was not confirmed are left to a lifecycle rule of the bucket: {}",
                           escaped(uploads.error().message)));
                forget(key);
            } else {
                const MutexLock lock(mutex_);
                keys_.at(key).looked_at = false;
                keys_.at(key).failed = true;
            }
            round->keys.pop_back();
            next_key(round);
            return;
        }
        {
            const MutexLock lock(mutex_);
            Key& state = keys_.at(key);
            // An upload whose reply is still to come looks the same.
            const bool creating = environment_.answers.is_under_way(key);
            state.looked_at = !creating;
            state.failed = false;
            std::erase_if(*uploads, [&](const OpenUpload& each) {
                return creating || !may_be_lost(each, key, state.asked) || environment_.journal.is_open(each.upload);
            });
            std::erase_if(state.empty, [&](const auto& seen) {
                return std::none_of(uploads->begin(), uploads->end(),
                                    [&](const OpenUpload& each) { return each.upload.id == seen.first; });
            });
        }
        round->uploads = std::move(*uploads);
        next_upload(round);
    }

    void next_upload(const SharedRound& round) {
        if (round->uploads.empty()) {
            round->keys.pop_back();
            next_key(round);
            return;
        }
        environment_.store.list_parts(
            round->uploads.back().upload,
            [self = shared_from_this(), round](const Result<std::vector<UploadedPart>>& parts) {
                const UploadId upload = std::move(round->uploads.back().upload);
                round->uploads.pop_back();
                if (self->has_been_empty(upload, parts && parts->empty())) {
                    self->end(round, upload);
                } else {
                    self->next_upload(round);
                }
            });
    }

    bool has_been_empty(const UploadId& upload, bool is_empty) {
        const MutexLock lock(mutex_);
        auto& empty = keys_.at(upload.key).empty;
        if (!is_empty) {
            empty.erase(upload.id);
            return false;
        }
        const SteadyTime now = environment_.clock.now();
        return now - empty.try_emplace(upload.id, now).first->second >= kPatience;
    }

    void end(const SharedRound& round, const UploadId& upload) {
        environment_.store.abort_upload(upload, [self = shared_from_this(), round, upload](const Status& ended) {
            if (ended) {
                const MutexLock lock(self->mutex_);
                ++round->ended;
                self->keys_.at(upload.key).empty.erase(upload.id);
            } else if (is_refused_for_good(ended.error())) {
                log_info(
                    format("an upload whose creation was not confirmed is left: {}", escaped(ended.error().message)));
                self->forget(upload.key);
                round->uploads.clear();
            }
            self->next_upload(round);
        });
    }

    void forget(const std::string& key) {
        const MutexLock lock(mutex_);
        Key& state = keys_.at(key);
        state.empty.clear();
        state.looked_at = true;
        state.lost -= kLate;
    }

    void looked(const Round& round) {
        if (round.ended > 0) {
            log_info(format("aborted {} {} whose creation was not confirmed", round.ended,
                            round.ended == 1 ? "upload" : "uploads"));
        }
        if (round.untold > 0) {
            log_warning(
                format("uploads that an earlier mount here had asked for stay until other mounts can be told "
                       "that {} {} not finished: {}",
                       round.untold, round.untold == 1 ? "file was" : "files were", escaped(round.problem)));
        }
        std::function<void()> ended;
        {
            const MutexLock lock(mutex_);
            looking_ = false;
            end_what_is_over();
            if (!keys_.empty() && (!stopping_ || (ended_ && another_look_may_help()))) {
                schedule();
            } else {
                ended = std::exchange(ended_, nullptr);
            }
        }
        if (ended) {
            ended();
        }
    }

    void end_what_is_over() REQUIRES(mutex_) {
        const SteadyTime now = environment_.clock.now();
        std::erase_if(keys_, [&](const auto& each) REQUIRES(mutex_) {
            const Key& key = each.second;
            const bool over = key.looked_at && key.empty.empty() && (stopping_ || now - key.lost >= kLate);
            for (const UploadIntent& intent : over ? key.intents : std::vector<UploadIntent>()) {
                environment_.journal.intent_ended(intent);
            }
            return over;
        });
    }

    [[nodiscard]] bool another_look_may_help() const REQUIRES(mutex_) {
        return std::any_of(keys_.begin(), keys_.end(), [](const auto& each) { return each.second.is_worth_a_look(); });
    }

    void schedule() REQUIRES(mutex_) {
        if (waiting_ != 0) {
            return;
        }
        const Milliseconds delay = another_look_may_help() ? kPatience : kLate;
        waiting_ = environment_.timer.after(delay, [self = shared_from_this()] {
            {
                const MutexLock lock(self->mutex_);
                self->waiting_ = 0;
            }
            self->look();
        });
    }

    const Environment environment_;
    Mutex mutex_;
    std::map<std::string, Key> keys_ GUARDED_BY(mutex_);
    Timer::Id waiting_ GUARDED_BY(mutex_) = 0;
    bool looking_ GUARDED_BY(mutex_) = false;
    // Between note() and begin(): others cannot be told yet, so that looks wait.
    bool is_noting_ GUARDED_BY(mutex_) = false;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::function<void()> ended_ GUARDED_BY(mutex_);
    TellOthers tell_others_ GUARDED_BY(mutex_) = tell_none;
    std::function<void()> all_told_ GUARDED_BY(mutex_);
};

LostUploads::LostUploads(const Environment& environment) : search_(std::make_shared<Search>(environment)) {}

LostUploads::~LostUploads() {
    search_->stop(nullptr);
}

void LostUploads::create_upload(CreateUploadRequest request, UploadedFile file, StoreDone<UploadId> done) {
    search_->create_upload(std::move(request), file, std::move(done));
}

void LostUploads::note(const std::vector<UploadIntent>& intents) {
    search_->note(intents);
}

void LostUploads::begin(TellOthers tell_others, std::function<void()> all_told) {
    search_->begin(std::move(tell_others), std::move(all_told));
}

void LostUploads::saved(const std::string& key) {
    search_->saved(key);
}

void LostUploads::stop(std::function<void()> ended) {
    search_->stop(std::move(ended));
}

}  // namespace ckptfs
