// SPDX-License-Identifier: Apache-2.0
#include "journal/upload_aborts.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// The store's client has tried for minutes before this.
constexpr Milliseconds kFirstPause{5'000};
constexpr Milliseconds kLongestPause{60'000};

}  // namespace

class UploadAborts::Tries : public std::enable_shared_from_this<Tries> {
public:
    Tries(ObjectStore& store, Timer& timer, MountJournal& journal) : store_(store), timer_(timer), journal_(journal) {}

    void abort(const UploadId& upload, StoreDone<void> done) {
        {
            const MutexLock lock(mutex_);
            ++under_way_;
            noted(upload);
        }
        send(upload, std::move(done));
    }

    [[nodiscard]] bool is_left(const UploadId& upload) const {
        const MutexLock lock(mutex_);
        const auto found = ending_.find(upload.id);
        return found != ending_.end() && found->second.is_left;
    }

    void saved(const std::string& key) {
        std::vector<UploadId> others;
        {
            const MutexLock lock(mutex_);
            for (const auto& [id, each] : ending_) {
                if (each.upload.key == key) {
                    others.push_back(each.upload);
                }
            }
        }
        for (const UploadId& upload : others) {
            journal_.made_good(upload);
        }
    }

    void stop(std::function<void()> ended) {
        std::vector<Timer::Id> waiting;
        std::vector<UploadId> again;
        {
            const MutexLock lock(mutex_);
            stopping_ = true;
            for (auto& [id, each] : ending_) {
                if (const Timer::Id timer = std::exchange(each.waiting, 0); timer != 0) {
                    waiting.push_back(timer);
                    again.push_back(each.upload);
                }
            }
            if (ended) {
                // And one for this call.
                under_way_ += again.size() + 1;
                ended_ = ended;
            }
        }
        for (const Timer::Id timer : waiting) {
            timer_.cancel(timer);
        }
        if (ended) {
            for (const UploadId& upload : again) {
                send(upload, [](const Status& /*told before*/) {});
            }
            one_less();
        }
    }

private:
    struct Ending {
        UploadId upload;
        Milliseconds pause{};
        // 0 while it is being tried, and where the store does not allow it.
        Timer::Id waiting = 0;
        // An abort of the upload has failed.
        bool is_left = false;
    };

    void send(const UploadId& upload, StoreDone<void> done) {
        store_.abort_upload(upload, [self = shared_from_this(), upload, done = std::move(done)](Status ended) {
            if (ended) {
                self->journal_.ended(upload);
            }
            if (ended) {
                self->forget(upload);
            } else if (is_refused_for_good(ended.error())) {
                log_info(format("{}: its upload is left to a lifecycle rule of the bucket: {}", escaped(upload.key),
                                escaped(ended.error().message)));
                self->leave(upload);
            } else {
                self->keep(upload, ended.error());
            }
            done(std::move(ended));
            self->one_less();
        });
    }

    // Another request for the upload may have succeeded before, and removed the entry.
    Ending& noted(const UploadId& upload) REQUIRES(mutex_) {
        return ending_.try_emplace(upload.id, Ending{upload, kFirstPause, 0, false}).first->second;
    }

    // The store does not allow the abort: no file comes of the upload all the same.
    void leave(const UploadId& upload) {
        Timer::Id waiting = 0;
        {
            const MutexLock lock(mutex_);
            Ending& refused = noted(upload);
            refused.is_left = true;
            waiting = std::exchange(refused.waiting, 0);
        }
        if (waiting != 0) {
            timer_.cancel(waiting);
        }
    }

    // Another request for the same upload, as there are while its parts are in flight, may have failed.
    void forget(const UploadId& upload) {
        Timer::Id waiting = 0;
        {
            const MutexLock lock(mutex_);
            if (const auto found = ending_.find(upload.id); found != ending_.end()) {
                waiting = found->second.waiting;
                ending_.erase(found);
            }
        }
        if (waiting != 0) {
            timer_.cancel(waiting);
        }
    }

    void keep(const UploadId& upload, const Error& error) {
        bool is_first = false;
        bool is_last = false;
        {
            const MutexLock lock(mutex_);
            Ending& failed = noted(upload);
            is_first = !std::exchange(failed.is_left, true);
            is_last = stopping_;
            if (!stopping_ && failed.waiting == 0) {
                failed.waiting =
                    timer_.after(failed.pause, [self = shared_from_this(), upload] { self->try_again(upload); });
                failed.pause = std::min(failed.pause * 2, kLongestPause);
            }
        }
        if (is_first) {
            log_warning(format("{}: its upload could not be aborted and stays for now; {}: {}", escaped(upload.key),
                               is_last ? "the next mount here ends it" : "it is tried again", escaped(error.message)));
        }
    }

    void try_again(const UploadId& upload) {
        {
            const MutexLock lock(mutex_);
            const auto found = ending_.find(upload.id);
            if (stopping_ || found == ending_.end()) {
                return;
            }
            found->second.waiting = 0;
            ++under_way_;
        }
        send(upload, [](const Status& /*told before*/) {});
    }

    void one_less() {
        std::function<void()> ended;
        {
            const MutexLock lock(mutex_);
            if (--under_way_ == 0) {
                ended = std::exchange(ended_, nullptr);
            }
        }
        if (ended) {
            ended();
        }
    }

    ObjectStore& store_;
    Timer& timer_;
    MountJournal& journal_;
    mutable Mutex mutex_;
    // Uploads by ID, until they have ended.
    std::map<std::string, Ending> ending_ GUARDED_BY(mutex_);
    std::size_t under_way_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::function<void()> ended_ GUARDED_BY(mutex_);
};

UploadAborts::UploadAborts(ObjectStore& store, Timer& timer, MountJournal& journal)
    : tries_(std::make_shared<Tries>(store, timer, journal)) {}

UploadAborts::~UploadAborts() {
    tries_->stop(nullptr);
}

void UploadAborts::abort(const UploadId& upload, StoreDone<void> done) {
    tries_->abort(upload, std::move(done));
}

bool UploadAborts::is_left(const UploadId& upload) const {
    return tries_->is_left(upload);
}

void UploadAborts::saved(const std::string& key) {
    tries_->saved(key);
}

void UploadAborts::stop(std::function<void()> ended) {
    tries_->stop(std::move(ended));
}

}  // namespace ckptfs
