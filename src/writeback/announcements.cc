// SPDX-License-Identifier: Apache-2.0
#include "writeback/announcements.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <utility>

#include "base/text.h"
#include "base/uuid.h"
#include "ckptfs/format.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// Files that a program writes one after the other have one object.
constexpr Milliseconds kLinger{300};
constexpr Milliseconds kTryAgainAfter{5'000};

}  // namespace

Announcements::Announcements(Environment environment)
    : environment_(std::move(environment)), timers_(environment_.timer) {}

Announcements::~Announcements() {
    stop();
}

void Announcements::stop() {
    timers_.stop();
    std::vector<std::function<void()>> finishing;
    {
        MutexLock lock(mutex_);
        stopping_ = true;
        idle_.wait(lock, [this]() REQUIRES(mutex_) { return under_way_ == 0; });
        finishing.swap(finishing_);
    }
    for (const std::function<void()>& each : finishing) {
        each();
    }
}

bool Announcements::begin_request() {
    const MutexLock lock(mutex_);
    under_way_ += stopping_ ? 0 : 1;
    return !stopping_;
}

void Announcements::end_request() {
    std::vector<std::function<void()>> finishing;
    {
        const MutexLock lock(mutex_);
        if (--under_way_ == 0) {
            finishing.swap(finishing_);
        }
        idle_.notify_all();
    }
    for (const std::function<void()>& each : finishing) {
        each();
    }
}

std::string Announcements::directory_of(const std::string& key) const {
    const std::string below = key.substr(environment_.prefix.size());
    return below.substr(0, below.rfind('/') + 1);
}

std::string Announcements::new_object(const std::string& directory, WallTime since) const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since.time_since_epoch()).count();
    return format("{}{}{}{}-{}-{}", environment_.prefix, kUnsentPrefix, directory, environment_.id, seconds,
                  random_uuid());
}

void Announcements::begin(const std::string& key, StoreDone<std::string> done) {
    begin_in(directory_of(key), environment_.clock.wall_now(), false, std::move(done));
}

void Announcements::begin_in(const std::string& directory, WallTime since, bool is_new, StoreDone<std::string> done) {
    std::string object;
    std::string to_write;
    bool is_there = false;
    {
        const MutexLock lock(mutex_);
        if (!stopping_) {
            Latest& latest = latest_[directory];
            if (is_new || latest.object.empty()) {
                latest = {new_object(directory, since), environment_.clock.now() + kGeneration, ""};
                objects_[latest.object].directory = directory;
            }
            object = latest.object;
            Object& found = objects_[object];
            ++found.files;
            is_there = found.is_there;
            if (is_there) {
                to_write = begin_next(directory);
            } else {
                found.waiting.push_back(std::exchange(done, nullptr));
                to_write = std::exchange(found.is_being_written, true) ? "" : object;
            }
            under_way_ += to_write.empty() ? 0 : 1;
        }
    }
    if (!to_write.empty()) {
        write(to_write);
    }
    // Else it is told once the object is there.
    if (done) {
        done(is_there ? Result<std::string>(std::move(object)) : failure(ECANCELED, directory + ": the mount ends"));
    }
}

std::string Announcements::begin_next(const std::string& directory) {
    Latest& latest = latest_[directory];
    if (environment_.clock.now() < latest.until || !latest.next.empty()) {
        return "";
    }
    latest.next = new_object(directory, environment_.clock.wall_now());
    Object& next = objects_[latest.next];
    next.directory = directory;
    next.is_being_written = true;
    return latest.next;
}

void Announcements::take_next(const std::string& object, bool is_there) {
    const auto latest = latest_.find(objects_.at(object).directory);
    if (latest == latest_.end() || latest->second.next != object) {
        return;
    }
    latest->second.next.clear();
    latest->second.until = environment_.clock.now() + kGeneration;
    if (is_there) {
        latest->second.object = object;
    }
}

bool Announcements::begin_again(const std::string& announcement) {
    const MutexLock lock(mutex_);
    const auto found = objects_.find(announcement);
    if (found == objects_.end()) {
        return false;
    }
    ++found->second.files;
    return true;
}

// Under way, and noted as being written, since before.
void Announcements::write(const std::string& object) {
    PutRequest request;
    request.key = object;
    request.body = Payload::from_string(environment_.host);
    request.content_type = "text/plain";
    environment_.store.put(std::move(request), [this, object](const Result<PutResponse>& put) {
        written(object, put ? Status() : failure(put.error()));
        end_request();
    });
}

void Announcements::forget(const std::string& object) {
    const auto found = objects_.find(object);
    if (const auto latest = latest_.find(found->second.directory);
        latest != latest_.end() && latest->second.object == object) {
        latest_.erase(latest);
    }
    objects_.erase(found);
}

void Announcements::written(const std::string& object, const Status& status) {
    std::vector<StoreDone<std::string>> waiting;
    bool is_there = false;
    {
        const MutexLock lock(mutex_);
        Object& found = objects_.at(object);
        found.is_being_written = false;
        found.is_there = found.is_there || status.has_value();
        is_there = found.is_there;
        waiting.swap(found.waiting);
        take_next(object, is_there);
        if (!is_there) {
            forget(object);
        }
    }
    if (!is_there && status.error().outcome_unknown) {
        remove(object, true);
    } else if (is_there) {
        timers_.after(kUnsentToldEvery, [this, object] { write_again(object); });
        // Files may be about to come.
        timers_.after(kLinger, [this, object] { remove_unused(object); });
    }
    for (const StoreDone<std::string>& each : waiting) {
        each(is_there ? Result<std::string>(object) : failure(status.error()));
    }
}

void Announcements::write_again(const std::string& object) {
    {
        const MutexLock lock(mutex_);
        const auto found = objects_.find(object);
        if (stopping_ || found == objects_.end()) {
            return;
        }
        found->second.is_being_written = true;
        ++under_way_;
    }
    write(object);
}

void Announcements::end(const std::string& announcement) {
    {
        const MutexLock lock(mutex_);
        const auto found = objects_.find(announcement);
        if (found == objects_.end() || --found->second.files > 0) {
            return;
        }
    }
    timers_.after(kLinger, [this, announcement] { remove_unused(announcement); });
}

void Announcements::remove_unused(const std::string& object) {
    {
        const MutexLock lock(mutex_);
        const auto found = objects_.find(object);
        if (found == objects_.end() || found->second.files > 0 || found->second.is_being_written) {
            return;
        }
        forget(object);
    }
    remove(object, false);
}

// For as long as it takes: other mounts wait for it. And once more, for what the network delivers late.
void Announcements::remove(const std::string& object, bool is_last) {
    if (!begin_request()) {
        return;
    }
    environment_.store.remove(object, [this, object, is_last](const Status& removed) {
        if (!removed) {
            log_debug(escaped(object + " is left for now: " + removed.error().message));
            timers_.after(kTryAgainAfter, [this, object, is_last] { remove(object, is_last); });
        } else if (!is_last) {
            timers_.after(kUnsentToldEvery, [this, object] { remove(object, true); });
        }
        end_request();
    });
}

void Announcements::finish(std::function<void()> done) {
    std::vector<std::string> unused;
    if (!begin_request()) {
        done();
        return;
    }
    {
        const MutexLock lock(mutex_);
        finishing_.push_back(std::move(done));
        for (const auto& [object, state] : objects_) {
            if (state.files == 0 && !state.is_being_written) {
                unused.push_back(object);
            }
        }
        for (const std::string& object : unused) {
            forget(object);
        }
    }
    for (const std::string& object : unused) {
        remove(object, true);
    }
    end_request();
}

// --- what earlier mounts have left

void Announcements::take_over(const std::vector<Left>& left, std::function<void(std::vector<std::string>)> begun) {
    const auto all = std::make_shared<TakeOver>();
    all->begun.resize(left.size());
    all->done = std::move(begun);
    struct Place {
        WallTime since = WallTime::max();
        std::vector<std::size_t> files;
    };
    std::map<std::string, Place> places;
    for (std::size_t file = 0; file < left.size(); ++file) {
        Place& place = places[directory_of(left[file].key)];
        place.since = std::min(place.since, left[file].since);
        place.files.push_back(file);
    }
    all->left = places.size();
    if (places.empty()) {
        taken_over(*all);
    }
    for (const auto& [directory, place] : places) {
        begin_left(directory, place.since, all, place.files);
    }
}

void Announcements::taken_over(const TakeOver& all) {
    bool removes_left = false;
    {
        const MutexLock lock(mutex_);
        has_taken_over_ = true;
        removes_left = removes_left_;
    }
    all.done(all.begun);
    if (removes_left) {
        list_left("");
    }
}

// For all of these files: the first makes the object.
void Announcements::begin_left(const std::string& directory, WallTime since, const std::shared_ptr<TakeOver>& all,
                               const std::vector<std::size_t>& files) {
    begin_in(directory, since, true, [this, directory, since, all, files](const Result<std::string>& begun) {
        if (!begun) {
            timers_.after(kTryAgainAfter,
                          [this, directory, since, all, files] { begin_left(directory, since, all, files); });
            return;
        }
        bool is_last = false;
        {
            const MutexLock lock(mutex_);
            objects_.at(*begun).files += files.size() - 1;
            for (const std::size_t file : files) {
                all->begun[file] = *begun;
            }
            is_last = --all->left == 0;
        }
        if (is_last) {
            taken_over(*all);
        }
    });
}

void Announcements::remove_left() {
    {
        const MutexLock lock(mutex_);
        if (std::exchange(removes_left_, true) || !has_taken_over_) {
            return;
        }
    }
    list_left("");
}

void Announcements::list_left(const std::string& token) {
    if (!begin_request()) {
        return;
    }
    ListRequest request;
    request.prefix = environment_.prefix + std::string(kUnsentPrefix);
    request.continuation_token = token;
    environment_.store.list(std::move(request), [this](const Result<ListResponse>& page) {
        listed(page);
        end_request();
    });
}

void Announcements::listed(const Result<ListResponse>& page) {
    if (!page) {
        timers_.after(kTryAgainAfter, [this] { list_left(""); });
        return;
    }
    for (const ObjectInfo& object : page->objects) {
        const std::string name = object.key.substr(object.key.rfind('/') + 1);
        bool is_left = name.starts_with(environment_.id + "-");
        if (is_left) {
            const MutexLock lock(mutex_);
            is_left = !objects_.contains(object.key);
        }
        if (is_left) {
            remove(object.key, true);
        }
    }
    if (!page->next_continuation_token.empty()) {
        list_left(page->next_continuation_token);
    }
}

}  // namespace ckptfs
