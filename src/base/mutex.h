// SPDX-License-Identifier: Apache-2.0
// Mutexes whose use clang proves (-Wthread-safety): which fields a mutex guards and which functions expect it held is
// written where the compiler reads it, not in comments. g++ sees a plain std::mutex.
//
// A lambda is a function of its own to the analysis: one that runs under the lock says so,
// `[this]() REQUIRES(mutex_) { ... }`. Constructors and destructors are not analysed.
//
// Threads: as std::mutex and std::condition_variable. A MutexLock belongs to the thread that made it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#if defined(__clang__)
#define CKPTFS_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define CKPTFS_THREAD_SAFETY(attribute)
#endif

#define CAPABILITY(name) CKPTFS_THREAD_SAFETY(capability(name))
#define SCOPED_CAPABILITY CKPTFS_THREAD_SAFETY(scoped_lockable)
// For a field: it is read and written only with that mutex held.
#define GUARDED_BY(mutex) CKPTFS_THREAD_SAFETY(guarded_by(mutex))
// For a function: its caller holds these (REQUIRES), or holds none of these (EXCLUDES).
#define REQUIRES(...) CKPTFS_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) CKPTFS_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) CKPTFS_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define RELEASE(...) CKPTFS_THREAD_SAFETY(release_capability(__VA_ARGS__))
// A comment says why wherever this is used.
#define NO_THREAD_SAFETY_ANALYSIS CKPTFS_THREAD_SAFETY(no_thread_safety_analysis)

namespace ckptfs {

class CAPABILITY("mutex") Mutex {
public:
    Mutex() = default;
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    void lock() ACQUIRE() { mutex_.lock(); }
    void unlock() RELEASE() { mutex_.unlock(); }

private:
    friend class MutexLock;

    std::mutex mutex_;
};

// A capability itself, so that a function can say what becomes of the lock that it is given: RELEASE(lock).
class CAPABILITY("lock") SCOPED_CAPABILITY MutexLock {
public:
    explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : lock_(mutex.mutex_) {}
    ~MutexLock() RELEASE() = default;
    MutexLock(const MutexLock&) = delete;
    MutexLock& operator=(const MutexLock&) = delete;

    void lock() ACQUIRE() { lock_.lock(); }
    void unlock() RELEASE() { lock_.unlock(); }

private:
    friend class Condition;

    std::unique_lock<std::mutex> lock_;
};

// A wait releases the lock; the analysis treats it as held throughout, which it is before and after.
class Condition {
public:
    void wait(MutexLock& lock) { changed_.wait(lock.lock_); }
    // The analysis does not see that `lock` is the one that the predicate requires.
    template <typename Predicate>
    void wait(MutexLock& lock, Predicate holds) NO_THREAD_SAFETY_ANALYSIS {
        changed_.wait(lock.lock_, std::move(holds));
    }

    template <typename Clock, typename Duration>
    void wait_until(MutexLock& lock, std::chrono::time_point<Clock, Duration> time) {
        changed_.wait_until(lock.lock_, time);
    }
    template <typename Rep, typename Period>
    void wait_for(MutexLock& lock, std::chrono::duration<Rep, Period> time) {
        changed_.wait_for(lock.lock_, time);
    }
    // Returns whether the predicate holds. It is not analysed, as in wait().
    template <typename Rep, typename Period, typename Predicate>
    bool wait_for(MutexLock& lock, std::chrono::duration<Rep, Period> time, Predicate holds) NO_THREAD_SAFETY_ANALYSIS {
        return changed_.wait_for(lock.lock_, time, std::move(holds));
    }

    void notify_one() { changed_.notify_one(); }
    void notify_all() { changed_.notify_all(); }

private:
    std::condition_variable changed_;
};

}  // namespace ckptfs
