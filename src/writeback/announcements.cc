// SPDX-License-Identifier: Apache-2.0
#include "writeback/announcements.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>

#include "base/text.h"
#include "base/uuid.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// An announcement without files stays this long, so that files written one after the other share it.
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

std::string Announcements::add_object(const std::string& directory) {
    const WallTime now = environment_.clock.wall_now();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
    std::string object = format("{}{}{}{}-{}-{}", environment_.prefix, kUnsentPrefix, directory, environment_.id,
                                seconds, random_uuid());
    Object& added = objects_[object];
    added.directory = directory;
    added.run = run_;
    return object;
}

void Announcements::begin(const std::string& key, StoreDone<std::string> done) {
    const std::string directory = directory_of(key);
    std::string object;
    std::string to_write;
    bool is_there = false;
    {
        const MutexLock lock(mutex_);
        if (!stopping_) {
            Latest& latest = latest_[directory];
            if (latest.object.empty() || objects_[latest.object].run != run_) {
                latest = {add_object(directory), environment_.clock.now() + kGeneration, ""};
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
    // Otherwise written() calls it back.
    if (done) {
        done(is_there ? Result<std::string>(std::move(object)) : failure(ECANCELED, directory + ": the mount ends"));
    }
}

std::string Announcements::begin_next(const std::string& directory) {
    Latest& latest = latest_[directory];
    if (environment_.clock.now() < latest.until || !latest.next.empty()) {
        return "";
    }
    latest.next = add_object(directory);
    objects_[latest.next].is_being_written = true;
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

void Announcements::begin_next_run() {
    const MutexLock lock(mutex_);
    ++run_;
}

bool Announcements::is_of_this_run(const std::string& announcement) const {
    const MutexLock lock(mutex_);
    const auto found = objects_.find(announcement);
    return found != objects_.end() && found->second.run == run_;
}

// The caller has counted the request in under_way_ and set is_being_written.
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
    bool is_left = false;
    bool is_unused = false;
    {
        const MutexLock lock(mutex_);
        Object& found = objects_.at(object);
        found.is_being_written = false;
        found.is_there = found.is_there || status.has_value();
        is_there = found.is_there;
        is_left = found.is_left;
        if (is_there || !is_left) {
            waiting.swap(found.waiting);
        }
        take_next(object, is_there);
        // finish() was called: no timer removes it any more.
        is_unused = is_there && found.files == 0 && !finishing_.empty();
        if (is_unused || (!is_there && !is_left)) {
            forget(object);
        }
    }
    if (!is_there && is_left) {
        if (environment_.left_failed) {
            environment_.left_failed(status.error());
        }
        timers_.after(kTryAgainAfter, [this, object] { write_again(object); });
    } else if (!is_there && status.error().outcome_unknown) {
        remove(object, true);
    } else if (is_unused) {
        remove(object, true);
    } else if (is_there) {
        timers_.after(kUnsentToldEvery, [this, object] { write_again(object); });
        // Not at once: more files may be about to begin.
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

// Retried until it succeeds, as other mounts wait for it. Unless `is_last`, removed once more later, in case the
// network delivered a PUT late.
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

// The announcements keep their keys: other mounts have seen these, and wait for them.
void Announcements::take_over(const std::vector<std::string>& left, std::function<void()> begun) {
    std::set<std::string> objects(left.begin(), left.end());
    const auto to_come = std::make_shared<std::atomic<std::size_t>>(objects.size());
    {
        const MutexLock lock(mutex_);
        // What is acknowledged from now on comes after the markers that were left.
        ++run_;
        const std::size_t place = environment_.prefix.size() + kUnsentPrefix.size();
        for (const std::string& object : left) {
            ++objects_[object].files;
        }
        for (const std::string& object : objects) {
            Object& found = objects_[object];
            found.directory = object.substr(place, object.rfind('/') + 1 - place);
            found.is_left = true;
            ++found.files;
            left_.push_back(object);
            found.is_being_written = true;
            found.waiting.emplace_back([this, to_come, begun](const Result<std::string>& /*there*/) {
                if (--*to_come == 0) {
                    taken_over(begun);
                }
            });
        }
        under_way_ += objects.size();
    }
    if (objects.empty()) {
        taken_over(begun);
    }
    for (const std::string& object : objects) {
        write(object);
    }
}

void Announcements::taken_over(const std::function<void()>& begun) {
    bool removes_left = false;
    {
        const MutexLock lock(mutex_);
        has_taken_over_ = true;
        removes_left = removes_left_;
    }
    begun();
    if (removes_left) {
        end_left();
    }
}

void Announcements::remove_left() {
    {
        const MutexLock lock(mutex_);
        if (std::exchange(removes_left_, true) || !has_taken_over_) {
            return;
        }
    }
    end_left();
}

void Announcements::end_left() {
    std::vector<std::string> left;
    {
        const MutexLock lock(mutex_);
        left.swap(left_);
    }
    for (const std::string& object : left) {
        end(object);
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
        return;
    }
    bool is_first = false;
    {
        const MutexLock lock(mutex_);
        is_first = !std::exchange(lists_again_, true);
    }
    if (is_first) {
        // The network may deliver a PUT of an earlier mount, which was killed, late.
        timers_.after(kUnsentToldEvery, [this] { list_left(""); });
    }
}

}  // namespace ckptfs
