// SPDX-License-Identifier: Apache-2.0
#include "daemon/machinery.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "base/environment.h"
#include "base/executors.h"
#include "base/memory_limit.h"
#include "base/memory_shares.h"
#include "base/random_numbers.h"
#include "base/text.h"
#include "base/uuid.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "codec/codecs.h"
#include "daemon/bucket_check.h"

namespace ckptfs {
namespace {

// Renames and listings wait for the store here; more of them queue.
constexpr int kBlockingThreads = 16;
// Commit markers wait here for other mounts' files, for minutes.
constexpr int kGateThreads = 16;
// Apart from the blocking threads, because what waits there may wait for staged bytes.
constexpr int kStagingThreads = 2;
// Each writes a part to the disk or reads one.
constexpr int kUnsentThreads = 4;
// Each disk sends one marker at a time.
constexpr int kMarkerThreads = 2;
// A restore that reads nothing for so long has ended. The job beside this mount needs the memory more.
constexpr Milliseconds kUnusedFor{std::chrono::seconds(30)};
// The heap is trimmed once it has this many more free bytes than after the last trim.
constexpr std::size_t kWorthATrim = std::size_t{8} << 20;
// glibc makes eight arenas a processor, and keeps the free end of each but the first. Data has buffers of its own.
constexpr int kHeapArenas = 4;
constexpr Milliseconds kLookForUnused{std::chrono::seconds(10)};
// The user waits at the terminal.
constexpr Milliseconds kCheckFor{std::chrono::seconds(10)};

// What the goodbye leaves behind is ended by the next mount here, and counts for nothing after a day.
constexpr Milliseconds kGoodbyeFor{std::chrono::seconds(8)};
// The recorder ends at once, as a rule, or never if the disk hangs.
constexpr Milliseconds kRecordedWithin{std::chrono::seconds(5)};
// The session ends at once, as a rule. What it serves after the goodbye is cancelled.
constexpr Milliseconds kSessionEndsWithin{std::chrono::seconds(1)};

}  // namespace

Result<std::unique_ptr<Machinery>> Machinery::create(const Config& config) {
    std::unique_ptr<Machinery> machinery(new Machinery(config));
    if (auto started = machinery->start(); !started) {
        return failure(started.error());
    }
    return machinery;
}

Status Machinery::start() {
    // Set before threads are started: those that have allocated keep their arenas.
    mallopt(M_ARENA_MAX, kHeapArenas);
    const std::uint64_t memory =
        config_.mount.max_memory == 0 ? default_max_memory(processor_count()) : config_.mount.max_memory;
    auto codec = make_codec(config_.codec, memory);
    if (!codec) {
        return failure(codec.error());
    }
    codec_ = std::move(*codec);
    timer_ = std::make_unique<TimerThread>(clock_);
    executor_ = make_executor();
    blocking_ = make_blocking_executor(kBlockingThreads);
    staging_ = make_blocking_executor(kStagingThreads);
    gate_threads_ = make_blocking_executor(kGateThreads);
    if (config_.disk.acknowledges) {
        unsent_threads_ = make_blocking_executor(kUnsentThreads);
        marker_threads_ = make_blocking_executor(kMarkerThreads);
    }
    auto pool = MemoryPool::create(memory_shares(memory, config_.mount.fuse_threads, config_.codec.compress != "none"),
                                   executor_.get(), timer_.get());
    if (!pool) {
        return failure(pool.error());
    }
    pool_ = std::move(*pool);
    auto client = StoreClient::create(config_.store, *timer_, clock_, *executor_, &lost_answers_);
    if (!client) {
        return failure(client.error());
    }
    client_ = std::move(*client);
    return {};
}

Status Machinery::check_bucket() {
    if (config_.disk.cache_only) {
        return open_record();
    }
    StoreConfig impatient = config_.store;
    impatient.retry_for = std::min(impatient.retry_for, kCheckFor);
    impatient.stall_timeout = std::min(impatient.stall_timeout, kCheckFor);
    const auto store = client_->make_store(impatient);
    if (!store) {
        return failure(store.error());
    }
    return ckptfs::check_bucket(**store, config_.store.prefix, config_.names.read_only, random_uuid());
}

// Where the connection lives on, as after umount -l, the session's end may wait for a lock in the kernel whose holder
// waits for the store: until the store's requests are cancelled.
void Machinery::end(Session& session) {
    // Runs in wait() if the system has no more threads.
    const auto stopped = std::async(std::launch::async | std::launch::deferred, [&session] { session.stop(); });
    stopped.wait_for(kSessionEndsWithin);
    say_goodbye();
    keep_the_rest();
    cancel();
    stopped.wait();
}

void Machinery::say_goodbye() {
    leftover_watch_.reset();
    if (heartbeat_ == nullptr || aborts_ == nullptr) {
        return;
    }
    const auto aborted = std::make_shared<std::promise<void>>();
    const auto ended = std::make_shared<std::promise<void>>();
    const auto gone = std::make_shared<std::promise<void>>();
    const auto deadline = std::chrono::steady_clock::now() + kGoodbyeFor;
    if (unsent_ != nullptr) {
        const auto withdrawn = std::make_shared<std::promise<void>>();
        unsent_->withdraw([withdrawn] { withdrawn->set_value(); });
        withdrawn->get_future().wait_until(deadline);
    }
    aborts_->stop([aborted] { aborted->set_value(); });
    lost_->stop([ended] { ended->set_value(); });
    aborted->get_future().wait_until(deadline);
    ended->get_future().wait_until(deadline);
    heartbeat_->stop([gone] { gone->set_value(); });
    gone->get_future().wait_for(kGoodbyeFor);
    heartbeat_.reset();
}

void Machinery::end_leftover_uploads() {
    end_leftovers_of_mounts(std::exchange(leftovers_, {}), [this] { others_know_all(); });
    if (!living_place_) {
        return;
    }
    leftover_watch_ = std::make_unique<LeftoverWatch>(*timer_, *living_place_, [this](std::vector<Leftovers> found) {
        const auto leftovers = std::make_shared<std::vector<Leftovers>>(std::move(found));
        blocking_->post([this, leftovers] { end_leftovers_of_mounts(std::move(*leftovers), nullptr); });
    });
}

// Called before the journals of those mounts are removed: this mount's journal has the failures from then on.
void Machinery::recall_failures(std::vector<Leftovers>& leftovers) {
    for (Leftovers& leftover : leftovers) {
        for (const UntoldFailure& each : std::exchange(leftover.begun.failures, {})) {
            fs_->recall_failure(each.key, each.record);
        }
    }
}

// As recall_failures(), called before the journals are removed.
bool Machinery::note_intents(std::vector<Leftovers>& leftovers) {
    std::vector<UploadIntent> intents;
    for (Leftovers& leftover : leftovers) {
        std::vector<UploadIntent> left = std::exchange(leftover.begun.intents, {});
        std::move(left.begin(), left.end(), std::back_inserter(intents));
    }
    if (!intents.empty()) {
        lost_->note(merge_intents(intents));
    }
    return !intents.empty();
}

void Machinery::end_leftovers_of_mounts(std::vector<Leftovers> leftovers, std::function<void()> others_know) {
    recall_failures(leftovers);
    const bool has_intents = note_intents(leftovers);
    const std::string records = config_.store.prefix + std::string(kRenamesPrefix);
    std::vector<std::string> renames;
    for (Leftovers& leftover : leftovers) {
        std::erase_if(leftover.begun.objects, [&](const std::string& key) {
            if (!key.starts_with(records)) {
                return false;
            }
            renames.push_back(key);
            // In case this mount ends before the rename does.
            journal_->object_begun(key);
            return true;
        });
    }
    fs_->end_renames(renames);
    // lost_ is null for a read-only mount, which has no leftovers.
    if (lost_ != nullptr && (has_intents || others_know)) {
        lost_->begin(
            [this](const UploadIntent& last, StoreDone<void> done) {
                fs_->record_unfinished({last.key, "", last.asked, last.earlier_sent, last.earlier_etag},
                                       std::move(done));
            },
            std::move(others_know));
    }
    std::map<std::string, std::vector<Leftovers>> by_disk;
    for (Leftovers& leftover : leftovers) {
        const std::string directory = std::filesystem::path(leftover.path).parent_path().string();
        const bool is_on_another = std::find(other_disks_.begin(), other_disks_.end(), directory) != other_disks_.end();
        by_disk[is_on_another ? directory : ""].push_back(std::move(leftover));
    }
    for (auto& [directory, on_disk] : by_disk) {
        if (directory.empty()) {
            end_leftovers_now(std::move(on_disk));
            continue;
        }
        end_leftovers_once_sent(directory, std::make_shared<std::vector<Leftovers>>(std::move(on_disk)));
    }
}

// Once the disk's changes are sent, the hidden objects are in the bucket, and so is what was made of them.
void Machinery::end_leftovers_once_sent(const std::string& directory,
                                        const std::shared_ptr<std::vector<Leftovers>>& leftovers) {
    unsent_->when_sent_from(directory, [this, directory, leftovers](const Status& sent) {
        if (sent) {
            end_leftovers_now(std::move(*leftovers));
        } else if (sent.error().errno_value != ECANCELED && sent.error().errno_value != ENOENT) {
            // Not sent yet: waits again. What the mount's end leaves (ECANCELED) is for the next mount.
            end_leftovers_once_sent(directory, leftovers);
        }
    });
}

void Machinery::end_leftovers_now(std::vector<Leftovers> leftovers) {
    // Through the store that acknowledges: an object to be removed may not have been sent yet.
    ObjectStore& store = unsent_ == nullptr ? static_cast<ObjectStore&>(client_->store()) : unsent_->store();
    end_leftovers(std::move(leftovers), store, *journal_,
                  [this](const std::string& key, const std::string& upload, StoreDone<void> done) {
                      fs_->record_unfinished({key, upload, {}}, std::move(done));
                  });
}

// Called once other mounts know of all files that the last mount here was writing.
void Machinery::others_know_all() {
    if (unsent_ != nullptr) {
        unsent_->withdraw_left();
    }
}

Status Machinery::start_disk_cache() {
    if (config_.disk.directory.empty()) {
        return {};
    }
    DiskCacheConfig disk;
    disk.directory = config_.disk.directory;
    disk.size = config_.disk.size;
    disk.is_alone = config_.disk.cache_only;
    disk.most_waiting = frames_waiting_for_disk(std::to_array(pool_->usage().cap));
    disk.store = store_name();
    disk.dropped = [this](const std::string& key) {
        if (recorder_ != nullptr) {
            recorder_->drop(key);
        }
    };
    auto cache = DiskCache::create(std::move(disk), clock_, *timer_);
    if (!cache) {
        return failure(std::move(cache.error()));
    }
    disk_ = std::move(*cache);
    return {};
}

void Machinery::begin_passthrough() {
    if (disk_ != nullptr) {
        disk_->begin_checks();
    }
}

Result<fs::FileSystem*> Machinery::start_file_system(fs::KernelCache& kernel_cache, fs::Passthrough& passthrough) {
    if (auto found = processes_.set_mount_point(config_.mount.mount_point); !found) {
        return failure(found.error());
    }
    if (Status kept = start_disk_cache(); !kept) {
        return failure(std::move(kept.error()));
    }
    cache_ = std::make_unique<BlockCache>(
        *pool_, clock_, BlockCache::Limits::for_requests(config_.read.max_requests_ahead), disk_.get());
    const Result<ObjectStore*> made = make_store();
    if (!made) {
        return failure(made.error());
    }
    ObjectStore& store = **made;
    FileCache* const files = start_keeping();
    write_.reset(new WriteEnvironment{store, *pool_, *executor_, *staging_, clock_, *codec_, config_.write,
                                      config_.store.retry_for, files});
    read_.reset(new ReadEnvironment{store, *pool_, *executor_, clock_, *codec_, *cache_, config_.read, files});
    fs::FailureNotes notes;
    if (journal_ != nullptr) {
        notes.begun = [this](const std::string& key, const std::string& record) {
            journal_->failure_begun(key, record);
        };
        notes.ended = [this](const std::string& key) { journal_->failure_ended(key); };
    }
    // The store's clock, because times that the store has set are compared with it.
    fs_ =
        fs::FileSystem::create({store, *blocking_, client_->clock(), *timer_, processes_, kernel_cache, *codec_,
                                *write_, *read_, config_.names, config_.store.prefix, this_host(), std::move(notes),
                                disk_ != nullptr ? &passthrough : nullptr, acknowledging_.get(), gate_threads_.get()});
    // Before any request can come: that could be the rename of a commit marker.
    recall_failures(leftovers_);
    // Before anything is sent: that may be an earlier version of a file that was being written.
    note_intents(leftovers_);
    if (unsent_ != nullptr) {
        unsent_->start();
    }
    if (!config_.names.read_only) {
        heartbeat_ = std::make_unique<Heartbeat>(
            Heartbeat::Environment{client_->store(), *timer_, client_->clock(), random_numbers()},
            format("{}.ckptfs/mounts/{}", config_.store.prefix, random_uuid()), this_host());
    }
    memory_watch_ = std::make_unique<Periodic>(*timer_, kLookForUnused,
                                               [this] { executor_->post([this] { release_unused_memory(); }); });
    return fs_.get();
}

// Blocks that are given up here go back to the system at the next call, unless they are used before.
void Machinery::release_unused_memory() {
    for (BlockCache* const cache : {cache_.get(), body_cache_.get()}) {
        if (cache != nullptr) {
            cache->forget_unused(clock_.now() - kUnusedFor);
        }
    }
    const std::size_t before = free_after_trim_;
    const std::size_t free_now = mallinfo2().fordblks;
    if (pool_->release_unused() > 0 || free_now >= before + kWorthATrim) {
        malloc_trim(0);
        // Memory returned to the system still counts as free for glibc.
        free_after_trim_ = mallinfo2().fordblks;
    } else {
        free_after_trim_ = std::min(before, free_now);
    }
}

void Machinery::hand_over() {
    if (unsent_ == nullptr || is_handed_over_) {
        return;
    }
    tell_of_end();
    const fs::FileStatistics files = fs_->statistics();
    const bool is_acknowledged = fs_->uploads().empty() && files.name_changes_under_way == 0 &&
                                 files.removals_under_way == 0 && !files.probes_store;
    if (is_acknowledged && unsent_->are_wanted()) {
        is_handed_over_ = true;
        log_info("the next mount sends what is left on the disk");
        unsent_->pause();
    }
}

bool Machinery::is_handed_over() const {
    return is_handed_over_ && unsent_->are_wanted();
}

std::string Machinery::left_behind() const {
    return is_handed_over_ && !unsent_->are_wanted() ? unsent_->left(false) : "";
}

void Machinery::tell_of_end() {
    if (unsent_ != nullptr && !std::exchange(has_told_of_end_, true)) {
        unsent_->tell_of_end();
    }
}

void Machinery::cancel() {
    if (keeping_ != nullptr) {
        keeping_->stop();
    }
    // lost_ calls the file system, which is destroyed before it.
    if (lost_ != nullptr) {
        lost_->stop(nullptr);
        aborts_->stop(nullptr);
    }
    if (unsent_ != nullptr) {
        // Otherwise changes would be sent one after the other, and each be cancelled.
        unsent_->pause();
    }
    if (recorded_ != nullptr) {
        static_cast<void>(recorded_->stop());
    }
    if (client_ != nullptr) {
        client_->stop();
    }
}

Machinery::~Machinery() {
    // The memory watch uses what is stopped below.
    memory_watch_.reset();
    // What is under way ends with ECANCELED, and what follows from it runs to its end, while everything still exists.
    cancel();
    if (unsent_ != nullptr) {
        unsent_->stop();
    }
    for (const auto& executor : {blocking_.get(), gate_threads_.get(), staging_.get(), unsent_threads_.get(),
                                 marker_threads_.get(), executor_.get()}) {
        if (executor != nullptr) {
            executor->stop();
        }
    }
    if (recorder_ != nullptr) {
        static_cast<void>(recorder_->stop(kRecordedWithin));
    }
    const bool is_record_there = recorded_ == nullptr || recorded_->stop();
    // Blocks that wait to be written belong to the block cache.
    if (disk_ != nullptr && (!disk_->stop() || !is_record_there)) {
        log_warning(format("--cache-dir {} does not answer; what was to be written to it is left out",
                           escaped(config_.disk.directory)));
        // A thread hangs in the disk for as long as the process lives, and may still use these: they are never
        // destroyed.
        static const auto* const kept =
            new std::tuple(std::move(recorded_), std::move(disk_), std::move(cache_), std::move(pool_),
                           std::move(keeping_), std::move(read_bodies_), std::move(bodies_), std::move(body_cache_));
        static_cast<void>(kept);
    }
}

}  // namespace ckptfs
