// SPDX-License-Identifier: Apache-2.0
#include "fuse/pending_request.h"

#include <fuse_lowlevel.h>
#include <linux/fuse.h>

#include <utility>

#include "fuse/replies.h"

namespace ckptfs {
namespace {

// UIO_MAXIOV of linux/uio.h, less the header that libfuse puts first.
constexpr std::size_t kMaxSlices = 1023;
// FOPEN_PASSTHROUGH of linux/fuse.h, protocol 7.40.
constexpr std::uint32_t kPassthrough = std::uint32_t{1} << 7;

}  // namespace

void InterruptWatch::add(std::shared_ptr<PendingRequest> request) {
    const MutexLock lock(mutex_);
    requests_.push_back(std::move(request));
}

void InterruptWatch::check() {
    std::vector<std::shared_ptr<PendingRequest>> requests;
    {
        const MutexLock lock(mutex_);
        requests.swap(requests_);
    }
    // The last owner drops it here when the filesystem has released it without a reply.
    std::erase_if(requests, [](const std::shared_ptr<PendingRequest>& request) {
        return request.use_count() == 1 || request->give_up_if_dying();
    });
    const MutexLock lock(mutex_);
    requests_.insert(requests_.end(), requests.begin(), requests.end());
}

void InterruptWatch::clear() {
    // Destroyed after the lock is released.
    std::vector<std::shared_ptr<PendingRequest>> requests;
    const MutexLock lock(mutex_);
    requests.swap(requests_);
}

std::size_t InterruptWatch::size() const {
    const MutexLock lock(mutex_);
    return requests_.size();
}

PendingRequest::PendingRequest(fuse_req* request, const ProcessInspector& processes, InterruptWatch& watch,
                               Interrupts interrupts)
    : processes_(processes),
      watch_(watch),
      request_(request),
      thread_(fuse_req_ctx(request)->pid),
      interruptible_(interrupts == Interrupts::kHonoured) {}

std::shared_ptr<PendingRequest> PendingRequest::begin(fuse_req* request, const ProcessInspector& processes,
                                                      InterruptWatch& watch, Interrupts interrupts) {
    std::shared_ptr<PendingRequest> pending(new PendingRequest(request, processes, watch, interrupts));
    pending->arming_thread_.store(std::this_thread::get_id());
    fuse_req_interrupt_func(request, &PendingRequest::on_interrupt, pending.get());
    pending->arming_thread_.store(std::thread::id());
    if (pending->interrupted_while_arming_) {
        if (pending->give_up_if_dying()) {
            return nullptr;
        }
        watch.add(pending);
    }
    return pending;
}

PendingRequest::~PendingRequest() {
    if (claim_and_disarm()) {
        fuse_reply_err(request_, EIO);
    }
}

void PendingRequest::on_interrupt(fuse_req* /*request*/, void* self) {
    auto* pending = static_cast<PendingRequest*>(self);
    pending->interrupted_.store(true, std::memory_order_release);
    if (pending->arming_thread_.load() == std::this_thread::get_id()) {
        pending->interrupted_while_arming_ = true;
        return;
    }
    // The request is alive: a reply disarms first, which waits for this function. libfuse holds the request's lock
    // meanwhile, so that disarming from here would wait for itself.
    std::shared_ptr<PendingRequest> keep = pending->weak_from_this().lock();
    if (keep == nullptr || keep->answered()) {
        return;
    }
    if (!keep->may_be_given_up()) {
        InterruptWatch& watch = keep->watch_;
        watch.add(std::move(keep));
    } else if (keep->claim()) {
        fuse_reply_err(keep->request_, EINTR);
    }
}

void PendingRequest::honour_interrupts() {
    interruptible_ = true;
    if (interrupted_) {
        give_up_if_dying();
    }
}

bool PendingRequest::may_be_given_up() const {
    if (!interruptible_) {
        return false;
    }
    // A process that exits by itself waits for the closes of its exit.
    return interrupted_ ? processes_.is_dying(thread_) : processes_.exit_state(thread_) == ExitState::kKilledBySignal;
}

bool PendingRequest::give_up_if_dying() {
    if (answered()) {
        return true;
    }
    if (!may_be_given_up()) {
        return false;
    }
    if (claim_and_disarm()) {
        fuse_reply_err(request_, EINTR);
    }
    return true;
}

// libfuse may be about to call on_interrupt() on another thread; taking the function away waits for it.
bool PendingRequest::claim_and_disarm() {
    if (!claim()) {
        return false;
    }
    fuse_req_interrupt_func(request_, nullptr, nullptr);
    return true;
}

bool PendingRequest::error(const Error& error) {
    return claim_and_disarm() && fuse_reply_err(request_, to_errno(error)) == 0;
}

bool PendingRequest::success() {
    return claim_and_disarm() && fuse_reply_err(request_, 0) == 0;
}

bool PendingRequest::entry(const fs::Entry& entry) {
    const fuse_entry_param param = to_entry(entry);
    return claim_and_disarm() && fuse_reply_entry(request_, &param) == 0;
}

bool PendingRequest::attributes(const fs::Attributes& attributes) {
    const struct stat status = to_stat(attributes);
    return claim_and_disarm() && fuse_reply_attr(request_, &status, to_seconds(attributes.valid_for)) == 0;
}

bool PendingRequest::opened(const fs::OpenedFile& file, fuse_file_info info) {
    if (file.backing != 0) {
        // The number takes the place of the padding; libfuse 3.14 has no field for it.
        fuse_open_out out{};
        out.fh = file.handle;
        out.open_flags = kPassthrough | (info.noflush != 0 ? FOPEN_NOFLUSH : 0);
        out.padding = static_cast<std::uint32_t>(file.backing);
        const struct iovec part { &out, sizeof out };
        return claim_and_disarm() && fuse_reply_iov(request_, &part, 1) == 0;
    }
    info.fh = file.handle;
    info.direct_io = file.direct_io ? 1 : 0;
    info.keep_cache = file.keep_cache ? 1 : 0;
    return claim_and_disarm() && fuse_reply_open(request_, &info) == 0;
}

bool PendingRequest::opened_directory(fs::HandleId handle, fuse_file_info info) {
    info.fh = handle;
    return claim_and_disarm() && fuse_reply_open(request_, &info) == 0;
}

bool PendingRequest::created(const fs::CreatedFile& file, fuse_file_info info) {
    const fuse_entry_param param = to_entry(file.entry);
    info.fh = file.opened.handle;
    info.direct_io = file.opened.direct_io ? 1 : 0;
    info.keep_cache = file.opened.keep_cache ? 1 : 0;
    return claim_and_disarm() && fuse_reply_create(request_, &param, &info) == 0;
}

bool PendingRequest::written(std::size_t size) {
    return claim_and_disarm() && fuse_reply_write(request_, size) == 0;
}

bool PendingRequest::data(const Payload& payload) {
    const std::span<const Slice> slices = payload.slices();
    if (slices.size() > kMaxSlices) {
        const std::string joined = payload.to_string();
        return bytes(joined);
    }
    std::vector<struct iovec> parts;
    parts.reserve(slices.size());
    for (const Slice& slice : slices) {
        // writev() only reads; its interface has no const.
        parts.push_back({const_cast<std::byte*>(slice.bytes.data()), slice.bytes.size()});
    }
    return claim_and_disarm() && fuse_reply_iov(request_, parts.data(), static_cast<int>(parts.size())) == 0;
}

bool PendingRequest::bytes(std::span<const char> bytes) {
    return claim_and_disarm() && fuse_reply_buf(request_, bytes.data(), bytes.size()) == 0;
}

bool PendingRequest::extended(const std::string& value, std::size_t size) {
    if (!claim_and_disarm()) {
        return false;
    }
    if (size == 0) {
        return fuse_reply_xattr(request_, value.size()) == 0;
    }
    return value.size() > size ? fuse_reply_err(request_, ERANGE) == 0
                               : fuse_reply_buf(request_, value.data(), value.size()) == 0;
}

bool PendingRequest::statistics(const struct statvfs& statistics) {
    return claim_and_disarm() && fuse_reply_statfs(request_, &statistics) == 0;
}

}  // namespace ckptfs
