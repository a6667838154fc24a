// SPDX-License-Identifier: Apache-2.0
#include "read/keeping_behind.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {

namespace {

// Frames that are read before it waits for the disk: a quarter of what may wait to be written.
constexpr std::uint64_t kFramesAtOnce = 8;

// ESTALE: it was left out meanwhile; ECANCELED: the mount ends.
void tell_not_kept(const std::string& key, const Error& error) {
    if (error.errno_value != ESTALE && error.errno_value != ECANCELED) {
        log_warning(format("{}: cannot be kept in --cache-dir, and is fetched when it is read: {}", escaped(key),
                           error.message));
    }
}

}  // namespace

void KeepingBehind::acknowledged(const std::string& key, const std::string& etag, std::uint64_t bytes,
                                 std::shared_ptr<const void> body) {
    Bodies released;
    {
        const MutexLock lock(mutex_);
        if (stopped_) {
            return;
        }
        if (const auto same = by_etag_.find(etag); same != by_etag_.end()) {
            is_under(key, same->second, released);
        } else if (body != nullptr) {
            const std::uint64_t number = ++last_number_;
            by_etag_[etag] = number;
            versions_[number] = {key, etag, bytes, std::move(body), {}, {etag}, {}};
            bytes_ += bytes;
            is_under(key, number, released);
        } else {
            not_under(key, released);
        }
        while (bytes_ > environment_.limit || versions_.size() > kMostWaiting) {
            leave_out(versions_.begin()->first, released);
        }
    }
    release(std::move(released));
    next();
}

void KeepingBehind::removed(const std::string& key) {
    Bodies released;
    {
        const MutexLock lock(mutex_);
        not_under(key, released);
    }
    release(std::move(released));
}

bool KeepingBehind::make_room() {
    // The caller waits for the disk.
    if (released_->clear()) {
        return true;
    }
    Bodies released;
    {
        const MutexLock lock(mutex_);
        if (versions_.empty()) {
            return false;
        }
        leave_out(versions_.begin()->first, released);
    }
    released_->add(std::move(released));
    return released_->clear();
}

void KeepingBehind::release(Bodies bodies) const {
    if (!bodies.empty()) {
        released_->add(std::move(bodies));
        files_.when_written([released = released_] { static_cast<void>(released->clear()); });
    }
}

// The version that was under the key before is no longer there.
void KeepingBehind::is_under(const std::string& key, std::uint64_t number, Bodies& released) {
    if (const auto there = by_key_.find(key); there == by_key_.end() || there->second != number) {
        not_under(key, released);
        versions_.at(number).keys.insert(key);
        by_key_[key] = number;
    }
}

void KeepingBehind::not_under(const std::string& key, Bodies& released) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) {
        return;
    }
    const std::uint64_t number = found->second;
    by_key_.erase(found);
    std::set<std::string>& keys = versions_.at(number).keys;
    keys.erase(key);
    if (keys.empty()) {
        leave_out(number, released);
    }
}

void KeepingBehind::leave_out(std::uint64_t number, Bodies& released) {
    const auto found = versions_.find(number);
    if (found == versions_.end()) {
        return;
    }
    Version& version = found->second;
    for (const std::string& key : version.keys) {
        by_key_.erase(key);
    }
    for (const std::string& etag : version.etags) {
        by_etag_.erase(etag);
    }
    bytes_ -= version.bytes;
    released.push_back(std::move(version.body));
    versions_.erase(found);
}

KeepingBehind::Version* KeepingBehind::find(const std::string& etag) {
    const auto found = by_etag_.find(etag);
    return found == by_etag_.end() ? nullptr : &versions_.at(found->second);
}

void KeepingBehind::note_rename(Version& version, const std::string& etag, std::function<void()> rename) {
    if (by_etag_.emplace(etag, by_etag_.at(version.etag)).second) {
        version.etags.insert(etag);
    }
    version.renames.push_back(std::move(rename));
}

void KeepingBehind::renamed(const ObjectInfo& object, const ObjectInfo& copy) {
    Bodies released;
    {
        const MutexLock lock(mutex_);
        if (Version* const version = find(object.etag)) {
            note_rename(*version, copy.etag, [this, object, copy] { files_.renamed(object, copy); });
            is_under(copy.key, by_etag_.at(version->etag), released);
        }
    }
    release(std::move(released));
    files_.renamed(object, copy);
}

void KeepingBehind::renamed(std::vector<RenamedObject> objects) {
    {
        const MutexLock lock(mutex_);
        for (const RenamedObject& object : objects) {
            if (Version* const version = find(object.etag)) {
                note_rename(*version, object.copy_etag, [this, object] { files_.renamed({object}); });
                // The next checkpoint may be saved under the name that the version had.
                for (const std::string& key : std::exchange(version->keys, {})) {
                    by_key_.erase(key);
                }
            }
        }
    }
    files_.renamed(std::move(objects));
}

Milliseconds KeepingBehind::pause() const {
    return is_ending_ ? Milliseconds(0) : std::max(kQuiet - environment_.quiet_for(), Milliseconds(0));
}

void KeepingBehind::next() {
    std::vector<std::function<void()>> finished;
    std::uint64_t number = 0;
    std::string key;
    std::string etag;
    Milliseconds pause{0};
    {
        const MutexLock lock(mutex_);
        if (stopped_ || is_busy_) {
            return;
        }
        if (versions_.empty()) {
            finished.swap(finished_);
        } else {
            is_busy_ = true;
            number = versions_.begin()->first;
            key = versions_.begin()->second.key;
            etag = versions_.begin()->second.etag;
            pause = this->pause();
        }
    }
    for (const std::function<void()>& each : finished) {
        each();
    }
    if (number == 0) {
        return;
    }
    if (pause == Milliseconds(0)) {
        open(number, key, etag);
        return;
    }
    // By then another version may be the first.
    timers_.after(pause, [this] {
        {
            const MutexLock lock(mutex_);
            is_busy_ = false;
        }
        next();
    });
}

void KeepingBehind::open(std::uint64_t number, const std::string& key, const std::string& etag) {
    FileReader::open(environment_.read, key, etag, false,
                     [this, number, key](Result<std::shared_ptr<FileReader>> reader) {
                         if (reader && (*reader)->size() > kSmallestKept) {
                             const auto reading = std::make_shared<Reading>();
                             reading->number = number;
                             reading->reader = std::move(*reader);
                             opened(reading);
                             return;
                         }
                         if (!reader) {
                             tell_not_kept(key, reader.error());
                         }
                         ended(number);
                     });
}

void KeepingBehind::opened(const ReadingPtr& reading) {
    files_.bytes_kept(reading->reader->object(), [this, reading](std::uint64_t bytes) {
        if (bytes >= reading->reader->size()) {
            ended(reading->number);
            return;
        }
        reading->stream = reading->reader->open_stream(ReadPace::kBackground);
        read_on(reading);
    });
}

void KeepingBehind::read_on(const ReadingPtr& reading) {
    const std::uint64_t size = reading->reader->size();
    Milliseconds pause{0};
    bool is_over = reading->offset >= size;
    {
        const MutexLock lock(mutex_);
        is_over = is_over || stopped_ || !versions_.contains(reading->number);
        pause = this->pause();
    }
    if (is_over) {
        ended(reading->number);
    } else if (pause > Milliseconds(0)) {
        timers_.after(pause, [this, reading] { read_on(reading); });
    } else {
        read_frames(reading, std::min(size, reading->offset + kFramesAtOnce * kFrameSize));
    }
}

void KeepingBehind::read_frames(const ReadingPtr& reading, std::uint64_t end) {
    if (reading->offset >= end) {
        files_.when_written([this, reading] { read_on(reading); });
        return;
    }
    reading->reader->read(reading->stream, reading->offset, kFrameSize,
                          [this, reading, end](const Result<Payload>& frame) {
                              if (!frame || frame->empty()) {
                                  if (!frame) {
                                      tell_not_kept(reading->reader->object().key, frame.error());
                                  }
                                  ended(reading->number);
                                  return;
                              }
                              reading->offset += frame->size();
                              read_frames(reading, end);
                          });
}

void KeepingBehind::ended(std::uint64_t number) {
    Bodies released;
    std::vector<std::function<void()>> renames;
    {
        const MutexLock lock(mutex_);
        if (const auto version = versions_.find(number); version != versions_.end()) {
            renames.swap(version->second.renames);
        }
        leave_out(number, released);
        is_busy_ = false;
    }
    for (const std::function<void()>& rename : renames) {
        rename();
    }
    release(std::move(released));
    next();
}

void KeepingBehind::finish(std::function<void()> done) {
    {
        const MutexLock lock(mutex_);
        is_ending_ = true;
        if (!stopped_) {
            finished_.push_back(std::exchange(done, nullptr));
        }
    }
    if (done) {
        done();
    } else {
        next();
    }
}

void KeepingBehind::stop() {
    std::vector<std::function<void()>> finished;
    Bodies released;
    {
        const MutexLock lock(mutex_);
        stopped_ = true;
        finished.swap(finished_);
        for (auto& [number, version] : versions_) {
            released.push_back(std::move(version.body));
        }
        versions_.clear();
        by_key_.clear();
        by_etag_.clear();
        bytes_ = 0;
    }
    release(std::move(released));
    timers_.stop();
    for (const std::function<void()>& each : finished) {
        each();
    }
}

std::uint64_t KeepingBehind::waiting() const {
    const MutexLock lock(mutex_);
    return versions_.size();
}

}  // namespace ckptfs
