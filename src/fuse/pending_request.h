// SPDX-License-Identifier: Apache-2.0
// A request of the kernel that waits for its reply.
//
// A request is answered exactly once, by the first of the two: the filesystem's reply, or the kernel's INTERRUPT when
// the caller is dying. INTERRUPT comes for every signal that the caller handles; answering EINTR then makes close()
// raise in programs that only have a timer running, so it is honoured only when ProcessInspector::is_dying() says so.
// The kernel interrupts a request once: one that was interrupted by a harmless signal is checked again from time to
// time (InterruptWatch), so that a kill after it still lets the caller go.
//
// Every replying function returns false if the reply did not reach the kernel: it was answered before, or the kernel
// has dropped the request. What a successful reply would have handed over (a lookup, a handle) must then be given back
// by the caller.
//
// Ownership: shared by the filesystem's Reply. A request that is dropped unanswered replies EIO.
// Threads: all functions may be called from any thread. Nothing of ours is locked while replying.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/bytes.h"
#include "ckptfs/processes.h"
#include "ckptfs/status.h"
#include "fs/file_operations.h"

struct fuse_req;
struct fuse_file_info;

namespace ckptfs {

class PendingRequest;

// Requests that were interrupted while their caller was not dying, and closes, whose caller may die without an
// INTERRUPT. Threads: any.
class InterruptWatch {
public:
    void add(std::shared_ptr<PendingRequest> request);
    // Ends the requests whose caller is dying now, and forgets those that were answered. To be called every now and
    // then.
    void check();
    // Forgets all of them; those that have no other owner are answered by that.
    void clear();
    [[nodiscard]] std::size_t size() const;

private:
    mutable Mutex mutex_;
    // Bounded by what the kernel has in flight.
    std::vector<std::shared_ptr<PendingRequest>> requests_ GUARDED_BY(mutex_);
};

// Whether an INTERRUPT is honoured from the start, or only after honour_interrupts().
enum class Interrupts : std::uint8_t { kHonoured, kHeldBack };

class PendingRequest : public std::enable_shared_from_this<PendingRequest> {
public:
    // Null if the request was interrupted before it began; it has been answered then.
    static std::shared_ptr<PendingRequest> begin(fuse_req* request, const ProcessInspector& processes,
                                                 InterruptWatch& watch, Interrupts interrupts = Interrupts::kHonoured);
    ~PendingRequest();
    PendingRequest(const PendingRequest&) = delete;
    PendingRequest& operator=(const PendingRequest&) = delete;

    bool error(const Error& error);
    bool success();
    bool entry(const fs::Entry& entry);
    bool attributes(const fs::Attributes& attributes);
    bool opened(const fs::OpenedFile& file, fuse_file_info info);
    bool opened_directory(fs::HandleId handle, fuse_file_info info);
    bool created(const fs::CreatedFile& file, fuse_file_info info);
    bool written(std::size_t size);
    bool data(const Payload& payload);
    bool bytes(std::span<const char> bytes);
    // One extended attribute, or all their names; `size`: the room that the caller has, 0 to ask how much it needs.
    bool extended(const std::string& value, std::size_t size);
    bool statistics(const struct statvfs& statistics);

    // For a request that was begun with its interrupts held back; an INTERRUPT that has come is honoured at once.
    void honour_interrupts();
    [[nodiscard]] bool was_interrupted() const { return interrupted_.load(std::memory_order_acquire); }
    // Answers EINTR if interrupts are honoured and the caller is dying, or was killed without an INTERRUPT; true if the
    // request has been answered, by this call or before.
    bool give_up_if_dying();
    [[nodiscard]] bool answered() const { return answered_.load(std::memory_order_acquire); }
    // The same, for others to ask; keeps the request.
    [[nodiscard]] static std::shared_ptr<const std::atomic<bool>> answered_flag(
        const std::shared_ptr<PendingRequest>& request) {
        return {request, &request->answered_};
    }

private:
    PendingRequest(fuse_req* request, const ProcessInspector& processes, InterruptWatch& watch, Interrupts interrupts);
    static void on_interrupt(fuse_req* request, void* self);

    [[nodiscard]] bool may_be_given_up() const;
    bool claim() { return !answered_.exchange(true, std::memory_order_acq_rel); }
    bool claim_and_disarm();

    const ProcessInspector& processes_;
    InterruptWatch& watch_;
    fuse_req* const request_;
    const pid_t thread_;
    std::atomic<bool> answered_{false};
    std::atomic<bool> interruptible_;
    std::atomic<bool> interrupted_{false};
    // The thread that is inside begin(). fuse_req_interrupt_func() may call on_interrupt() on it and goes on using the
    // request afterwards, so that there it must not be answered.
    std::atomic<std::thread::id> arming_thread_;
    // Only used by that thread.
    bool interrupted_while_arming_ = false;
};

}  // namespace ckptfs
