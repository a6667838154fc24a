// SPDX-License-Identifier: Apache-2.0
#include "tools/verify_objects.h"

#include <cerrno>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/store_wait.h"
#include "base/text.h"
#include "base/thread.h"
#include "ckptfs/log.h"
#include "tools/object_frames.h"

namespace ckptfs {
namespace {

// Bytes of a directory's marker, at most: a UUID (ckptfs-format(5)).
constexpr std::uint64_t kLargestMarker = 36;

// Lists keys, one page after the other.
class KeyList {
public:
    KeyList(ObjectStore& store, std::string prefix) : store_(&store), prefix_(std::move(prefix)) {}
    // A list without keys.
    KeyList() = default;

    [[nodiscard]] const std::string& prefix() const { return prefix_; }
    [[nodiscard]] bool ended() const { return ended_; }
    Result<std::vector<std::string>> next_page() {
        ListRequest request;
        request.prefix = prefix_;
        request.continuation_token = token_;
        auto page = wait_for<ListResponse>([&](auto done) { store_->list(std::move(request), std::move(done)); });
        if (!page) {
            ended_ = true;
            return failure(std::move(page.error()));
        }
        token_ = page->next_continuation_token;
        ended_ = token_.empty();
        std::vector<std::string> keys;
        for (ObjectInfo& object : page->objects) {
            // An object of this size whose key ends in '/' is a directory.
            if (object.size > kLargestMarker || !object.key.ends_with('/')) {
                keys.push_back(std::move(object.key));
            }
        }
        return keys;
    }

private:
    ObjectStore* store_ = nullptr;
    std::string prefix_;
    std::string token_;
    bool ended_ = store_ == nullptr;
};

struct ObjectUnderCheck {
    explicit ObjectUnderCheck(OpenObject opened) : from(std::move(opened)), runs(from.layout) {}

    const OpenObject from;
    RunQueue runs;

    // Guarded by the verification's mutex.
    std::uint64_t runs_left = 0;
    ObjectProblem problem;
    bool given_up = false;
    bool removed = false;
};

// A read of a version fails with ESTALE whether it was removed or replaced. A store that has lost an object's data may
// answer that there is none, and still describe it.
bool was_removed(ObjectStore& store, const std::string& key, const Error& error) {
    if (error.errno_value != ESTALE && error.errno_value != ENOENT) {
        return false;
    }
    const auto head = wait_for<ObjectInfo>([&](auto done) { store.head(key, std::move(done)); });
    return !head && head.error().errno_value == ENOENT;
}

std::uint64_t runs_of(std::uint64_t size) {
    constexpr std::uint64_t kRun = kFramesPerRun * kFrameSize;
    return (size + kRun - 1) / kRun;
}

// The threads take what is nearest to its end first: runs of objects that are open, else keys to be opened, else the
// next page of keys. So no more objects are open than there are threads.
class Verification {
public:
    Verification(ObjectStore& store, const Codec& codec, const VerifyEvents& events, KeyList list,
                 std::deque<std::string> keys)
        : store_(store), codec_(codec), events_(events), list_(std::move(list)), keys_(std::move(keys)) {}

    void work() {
        RunReader reader(store_);
        while (auto task = next_task()) {
            if (task->object == nullptr) {
                open(task->key);
            } else {
                check(reader, *task->object, task->run);
            }
        }
    }

    // Called once all threads have ended. Damage counts for more than keys that could not be listed.
    [[nodiscard]] Result<VerifyTotals> result() {
        const MutexLock lock(mutex_);
        if (list_error_ && totals_.damaged == 0) {
            return failure(*list_error_);
        }
        if (list_error_) {
            report({list_.prefix(), false, std::nullopt, 0, list_error_->message});
        }
        return totals_;
    }

private:
    // A run of an object, or a key.
    struct Task {
        std::shared_ptr<ObjectUnderCheck> object;
        FrameRun run;
        std::string key;
    };

    std::optional<Task> next_task() {
        MutexLock lock(mutex_);
        for (;;) {
            if (auto task = run_of_open_object()) {
                return task;
            }
            if (!keys_.empty()) {
                Task task;
                task.key = std::move(keys_.front());
                keys_.pop_front();
                ++opening_;
                return task;
            }
            if (!listing_ && !list_.ended()) {
                listing_ = true;
                lock.unlock();
                auto page = list_.next_page();
                lock.lock();
                listed(std::move(page));
            } else if (!listing_ && opening_ == 0) {
                return std::nullopt;
            } else {
                changed_.wait(lock);
            }
        }
    }

    std::optional<Task> run_of_open_object() REQUIRES(mutex_) {
        while (!open_.empty()) {
            if (auto run = open_.front()->runs.next()) {
                return Task{open_.front(), std::move(*run), {}};
            }
            open_.pop_front();
        }
        return std::nullopt;
    }

    void listed(Result<std::vector<std::string>> page) REQUIRES(mutex_) {
        listing_ = false;
        if (page) {
            keys_.insert(keys_.end(), page->begin(), page->end());
        } else {
            list_error_ = std::move(page.error());
        }
        changed_.notify_all();
    }

    void open(const std::string& key) {
        auto opened = open_object(store_, codec_, key);
        const bool removed = !opened && was_removed(store_, key, opened.error());
        const MutexLock lock(mutex_);
        --opening_;
        changed_.notify_all();
        if (opened) {
            const auto object = std::make_shared<ObjectUnderCheck>(std::move(*opened));
            object->runs_left = runs_of(object->from.layout->size());
            if (object->from.may_have_lost_description) {
                object->problem = {key, true, std::nullopt, 0, format("{}: {}", key, kLostDescription)};
            }
            if (object->runs_left == 0) {
                finish(*object);
            } else {
                open_.push_back(object);
            }
        } else if (!removed) {
            ++totals_.objects;
            report({key, opened.error().errno_value == kDamaged, std::nullopt, 0, std::move(opened.error().message)});
        }
    }

    void check(RunReader& reader, ObjectUnderCheck& object, const FrameRun& run) {
        if (!is_given_up(object)) {
            if (Status fetched = reader.fetch(object.from, run); !fetched) {
                found(object, nullptr, std::move(fetched.error()));
            } else {
                check_frames(reader, object, run);
            }
        }
        const MutexLock lock(mutex_);
        if (--object.runs_left == 0) {
            finish(object);
        }
        events_.progress(totals_);
    }

    void check_frames(RunReader& reader, ObjectUnderCheck& object, const FrameRun& run) {
        std::uint64_t size = 0;
        for (std::size_t i = 0; i < run.frames.size(); ++i) {
            const auto bytes = reader.decode(object.from, run, i);
            if (!bytes) {
                found(object, &run.frames[i], bytes.error());
            }
            size += run.frames[i].size;
        }
        const MutexLock lock(mutex_);
        totals_.size += size;
    }

    bool is_given_up(const ObjectUnderCheck& object) {
        const MutexLock lock(mutex_);
        return object.given_up;
    }

    void found(ObjectUnderCheck& object, const Frame* frame, Error error) {
        const bool removed = was_removed(store_, object.from.object.key, error);
        const MutexLock lock(mutex_);
        ObjectProblem& problem = object.problem;
        if (error.errno_value != kDamaged) {
            object.given_up = true;
            object.removed = object.removed || removed;
            if (!problem.damaged) {
                problem.why = std::move(error.message);
            }
            return;
        }
        ++problem.damaged_frames;
        problem.damaged = true;
        if (!problem.frame || frame->index < *problem.frame) {
            problem.frame = frame->index;
            problem.why = std::move(error.message);
        }
    }

    void finish(ObjectUnderCheck& object) REQUIRES(mutex_) {
        if (object.removed && !object.problem.damaged) {
            return;
        }
        ++totals_.objects;
        if (!object.problem.why.empty()) {
            object.problem.key = object.from.object.key;
            report(object.problem);
        }
    }

    void report(const ObjectProblem& problem) REQUIRES(mutex_) {
        ++(problem.damaged ? totals_.damaged : totals_.not_checked);
        events_.problem(problem);
    }

    ObjectStore& store_;
    const Codec& codec_;
    const VerifyEvents& events_;

    mutable Mutex mutex_;
    Condition changed_;
    // Used by the thread that has set listing_; if none has, guarded by mutex_.
    KeyList list_;
    bool listing_ GUARDED_BY(mutex_) = false;
    std::deque<std::string> keys_ GUARDED_BY(mutex_);
    int opening_ GUARDED_BY(mutex_) = 0;
    // Objects with runs that no thread has taken.
    std::deque<std::shared_ptr<ObjectUnderCheck>> open_ GUARDED_BY(mutex_);
    VerifyTotals totals_ GUARDED_BY(mutex_);
    std::optional<Error> list_error_ GUARDED_BY(mutex_);
};

// Whether there is an object of this key, and the key does not ask for what lies below.
Result<bool> is_object(ObjectStore& store, const std::string& key) {
    if (key.empty() || key.ends_with('/')) {
        return false;
    }
    const auto head = wait_for<ObjectInfo>([&](auto done) { store.head(key, std::move(done)); });
    if (!head && head.error().errno_value != ENOENT) {
        return failure(head.error());
    }
    return head.has_value();
}

}  // namespace

Result<VerifyTotals> verify_objects(ObjectStore& store, const Codec& codec, const std::string& key,
                                    const VerifyEvents& events) {
    const Result<bool> one = is_object(store, key);
    if (!one) {
        return failure(one.error());
    }
    const bool is_prefix = key.empty() || key.ends_with('/');
    KeyList list = *one ? KeyList() : KeyList(store, is_prefix ? key : key + '/');
    Verification verification(store, codec, events, std::move(list),
                              *one ? std::deque{key} : std::deque<std::string>());
    run_on_threads("ckptfs-tool", kToolThreads, [&] { verification.work(); });
    Result<VerifyTotals> totals = verification.result();
    if (totals && totals->objects == 0) {
        return failure(ENOENT, format("\"{}\": there is no object of this key, and none below it", key));
    }
    return totals;
}

std::string describe(const ObjectProblem& problem) {
    std::string text = format("{}: {}", problem.damaged ? "damaged" : "not checked", escaped(problem.why));
    if (problem.damaged_frames > 1) {
        text += format(" ({} frames are damaged)", problem.damaged_frames);
    }
    return text;
}

std::string describe(const VerifyTotals& totals) {
    std::string text = format("{}, {} MiB", counted(totals.objects, "object"), mebibytes(totals.size));
    if (totals.damaged > 0) {
        text += format(", {} damaged", totals.damaged);
    }
    if (totals.not_checked > 0) {
        text += format(", {} not checked", totals.not_checked);
    }
    return text;
}

int exit_code(const VerifyTotals& totals) {
    if (totals.damaged > 0) {
        return 1;
    }
    return totals.not_checked > 0 ? 2 : 0;
}

}  // namespace ckptfs
