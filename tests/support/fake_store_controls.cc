// SPDX-License-Identifier: Apache-2.0
// What a test does to the store and sees of it.
#include <utility>

#include "support/fake_store.h"

namespace ckptfs::testing {

void FakeStore::inject(Fault fault) {
    std::lock_guard lock(mutex_);
    faults_.push_back(std::move(fault));
}

void FakeStore::clear_faults() {
    std::lock_guard lock(mutex_);
    faults_.clear();
}

void FakeStore::hold(Operation operation) {
    std::lock_guard lock(mutex_);
    holding_.insert(operation);
}

void FakeStore::hold_answers(Operation operation) {
    std::lock_guard lock(mutex_);
    holding_answers_.insert(operation);
}

void FakeStore::release(Operation operation) {
    std::vector<Step> steps;
    {
        std::lock_guard lock(mutex_);
        holding_.erase(operation);
        holding_answers_.erase(operation);
        steps.swap(held_[operation]);
    }
    for (Step& step : steps) {
        dispatch(std::move(step));
    }
}

void FakeStore::release_one(Operation operation) {
    Step step;
    {
        std::lock_guard lock(mutex_);
        std::vector<Step>& steps = held_[operation];
        step = std::move(steps.front());
        steps.erase(steps.begin());
    }
    dispatch(std::move(step));
}

bool FakeStore::wait_until_held(Operation operation, int count) {
    std::unique_lock lock(mutex_);
    return held_changed_.wait_for(lock, std::chrono::seconds(10),
                                  [&] { return held_[operation].size() >= static_cast<std::size_t>(count); });
}

void FakeStore::answer_from_threads(int threads) {
    std::lock_guard lock(mutex_);
    for (int i = 0; i < threads; ++i) {
        threads_.emplace_back([this] { work(); });
    }
}

void FakeStore::require_equal_parts() {
    std::lock_guard lock(mutex_);
    equal_parts_required_ = true;
}

void FakeStore::lack_part_copy() {
    std::lock_guard lock(mutex_);
    part_copy_lacking_ = true;
}

bool FakeStore::lacks_part_copy(const std::string& source_key) const {
    std::lock_guard lock(mutex_);
    // As the S3 client.
    return source_key.find('%') != std::string::npos || (part_copy_lacking_ && part_copy_sought_);
}

void FakeStore::find_part_copy(std::string /*key*/, std::function<void()> found) {
    {
        std::lock_guard lock(mutex_);
        part_copy_sought_ = true;
    }
    found();
}

void FakeStore::make_etags_of_content() {
    std::lock_guard lock(mutex_);
    etags_of_content_ = true;
}

void FakeStore::ignore_delete_conditions() {
    std::lock_guard lock(mutex_);
    delete_conditions_ignored_ = true;
}

void FakeStore::change_removals(std::function<void(RemoveRequest&)> change) {
    std::lock_guard lock(mutex_);
    change_removal_ = std::move(change);
}

void FakeStore::set_body_piece(std::size_t bytes) {
    std::lock_guard lock(mutex_);
    body_piece_ = bytes;
}

void FakeStore::advance_clock(Milliseconds by) {
    std::lock_guard lock(mutex_);
    clock_offset_ += by;
}

void FakeStore::date_objects_ahead(Milliseconds by) {
    std::lock_guard lock(mutex_);
    objects_ahead_ = by;
}

void FakeStore::put_object(const std::string& key, std::string content, Metadata metadata) {
    std::lock_guard lock(mutex_);
    static_cast<void>(store_object(key, std::move(content), std::move(metadata), "", ""));
}

bool FakeStore::exists(const std::string& key) const {
    std::lock_guard lock(mutex_);
    return objects_.contains(key);
}

std::string FakeStore::content(const std::string& key) const {
    std::lock_guard lock(mutex_);
    const auto found = objects_.find(key);
    return found == objects_.end() ? std::string() : *found->second.content;
}

ObjectInfo FakeStore::info(const std::string& key) const {
    std::lock_guard lock(mutex_);
    const auto found = objects_.find(key);
    return found == objects_.end() ? ObjectInfo{} : found->second.info;
}

std::vector<std::string> FakeStore::keys() const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> keys;
    for (const auto& [key, object] : objects_) {
        keys.push_back(key);
    }
    return keys;
}

int FakeStore::open_uploads() const {
    std::lock_guard lock(mutex_);
    return static_cast<int>(uploads_.size());
}

int FakeStore::calls(Operation operation) const {
    std::lock_guard lock(mutex_);
    const auto found = calls_.find(operation);
    return found == calls_.end() ? 0 : found->second;
}

int FakeStore::calls() const {
    std::lock_guard lock(mutex_);
    int sum = 0;
    for (const auto& [operation, count] : calls_) {
        sum += count;
    }
    return sum;
}

void FakeStore::reset_calls() {
    std::lock_guard lock(mutex_);
    calls_.clear();
}

Result<PutResponse> FakeStore::store_object(const std::string& key, std::string content, Metadata metadata,
                                            const std::string& content_type, const std::string& content_encoding) {
    Object object;
    const WallTime answered = now();
    object.info.key = key;
    object.info.size = content.size();
    object.info.etag =
        etags_of_content_ ? "\"" + std::to_string(std::hash<std::string>()(content)) + "\"" : next_etag();
    object.info.last_modified = answered + objects_ahead_;
    object.info.metadata = std::move(metadata);
    object.info.content_type = content_type;
    object.info.content_encoding = content_encoding;
    object.content = std::make_shared<const std::string>(std::move(content));
    PutResponse response{object.info.etag, answered};
    objects_[key] = std::move(object);
    return response;
}

}  // namespace ckptfs::testing
