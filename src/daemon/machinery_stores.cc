// SPDX-License-Identifier: Apache-2.0
// Machinery's stores between the filesystem and the bucket: the journal's, and the one that acknowledges by a disk.
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <future>
#include <iterator>
#include <utility>

#include "base/environment.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "daemon/machinery.h"
#include "fs/gate/unsent_elsewhere.h"
#include "journal/journaled_store.h"

namespace ckptfs {
namespace {

// The place name of the journal in a disk's directory, which has no other.
constexpr const char* kOnDisk = "mount";

// Time for keep_the_rest(): enough for some GiB. What is left of the last files is fetched when it is read.
constexpr std::chrono::seconds kKeepsFor{10};
// Divides --cache-size: the limit of the record of names and small files.
constexpr std::uint64_t kRecordShare = 16;
// What it takes to read a disk at its full speed.
constexpr BlockCache::Limits kBodiesAhead{32, 8};

void take_all(std::vector<Leftovers>& all, std::vector<Leftovers> more) {
    std::move(more.begin(), more.end(), std::back_inserter(all));
}

}  // namespace

std::string this_host() {
    std::array<char, HOST_NAME_MAX + 1> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "a host without a name";
}

// A read-only mount has no journal, because it begins no upload.
Result<ObjectStore*> Machinery::make_store() {
    if (config_.disk.cache_only) {
        return recorded_.get();
    }
    if (config_.names.read_only) {
        return &recording(client_->store());
    }
    Result<std::vector<UnsentPlace>> disks = std::vector<UnsentPlace>();
    if (config_.disk.acknowledges) {
        const std::string source =
            format("{}/{}/{}", client_->store().server(), config_.store.bucket, config_.store.prefix);
        disks = lock_unsent_places(config_.disk.directory, source, config_.mount.mount_point);
    }
    if (!disks) {
        return failure(std::move(disks.error()));
    }
    for (const UnsentPlace& disk : *disks) {
        place_locks_.push_back(disk.lock);
    }
    open_journal(*disks);
    lost_.reset(new LostUploads({client_->store(), *timer_, client_->clock(), *journal_, lost_answers_}));
    aborts_ = std::make_unique<UploadAborts>(client_->store(), *timer_, *journal_);
    journaled_ = std::make_unique<JournaledStore>(client_->store(), *journal_, *lost_, *aborts_, config_.store.prefix,
                                                  config_.disk.acknowledges);
    ObjectStore& bucket = recording(*journaled_);
    return disks->empty() ? Result<ObjectStore*>(&bucket) : acknowledging_store(bucket, std::move(*disks));
}

std::string Machinery::store_name() const {
    return format("{}/{}", client_->store().server(), config_.store.bucket);
}

Status Machinery::open_record() {
    auto opened = RecordedStore::open(config_.disk.directory, store_name(), *timer_);
    if (!opened) {
        return failure(std::move(opened.error()));
    }
    recorded_ = std::move(*opened);
    return {};
}

ObjectStore& Machinery::recording(ObjectStore& bucket) {
    if (disk_ == nullptr) {
        return bucket;
    }
    recorder_ = std::make_unique<ObjectRecorder>(
        ObjectRecorder::Config{config_.disk.directory, store_name(), disk_->config().size / kRecordShare}, clock_,
        *timer_);
    recording_ = std::make_unique<RecordingStore>(bucket, *recorder_, format("{}.ckptfs/", config_.store.prefix));
    return *recording_;
}

// With --ack disk the journal lies beside what the disk acknowledges: the mount that sends that also ends the uploads.
void Machinery::open_journal(const std::vector<UnsentPlace>& disks) {
    const auto directory = state_directory(config_.mount.state_dir, getuid(), process_environment());
    // Homes, and a directory that the user names, may be shared by several machines.
    const bool is_local = getuid() == 0 && config_.mount.state_dir.empty();
    const std::string place = journal_place(is_local ? "" : this_host(), config_.mount.source,
                                            config_.mount.mount_point, client_->store().server());
    MountJournals journals = disks.empty() ? open_journals(directory, place)
                                           : open_journals(disks.front().directory, kOnDisk, JournalKept::kOnDisk);
    journal_ = std::move(journals.own);
    leftovers_ = std::move(journals.leftovers);
    if (!disks.empty() && directory) {
        // Leftovers of mounts without --ack disk.
        journals.another_lives = is_another_in_use(*directory, place, "");
        take_all(leftovers_, take_leftovers(*directory, place));
    }
    for (std::size_t number = 1; number < disks.size(); ++number) {
        take_all(leftovers_, take_leftovers(disks[number].directory, kOnDisk));
        other_disks_.push_back(disks[number].directory);
    }
    if (journals.another_lives && directory) {
        living_place_ = {*directory, place, journal_->path()};
    }
}

Result<std::uint64_t> Machinery::unsent_limit() const {
    if (config_.disk.unsent_limit > 0) {
        return config_.disk.unsent_limit;
    }
    struct statvfs disk {};
    if (::statvfs(config_.disk.directory.c_str(), &disk) != 0) {
        return failure(
            errno, format("cannot look at --cache-dir {}: {}", escaped(config_.disk.directory), std::strerror(errno)));
    }
    return std::uint64_t{disk.f_blocks} * disk.f_frsize / 4;
}

WritebackEnvironment Machinery::writeback_environment(ObjectStore& bucket, std::uint64_t limit) {
    WritebackEnvironment common{bucket, *pool_, *timer_, client_->clock(), *unsent_threads_, "", limit, nullptr};
    common.is_barrier = [this](const std::string& key) { return fs::is_commit_marker(key, config_.write); };
    common.prefix = config_.store.prefix;
    common.host = this_host();
    common.announced_as = [this](const std::string& key) {
        return fs::told_as_unsent(config_.store.prefix, key, config_.write);
    };
    common.is_direct = [this](const std::string& key) { return fs::is_told_at_once(config_.store.prefix, key); };
    common.lost = [this](const std::string& key, const Error& why) { fs_->change_lost(key, why); };
    common.made_good = [this](const std::string& key) { fs_->change_made_good(key); };
    given_up_ = std::make_unique<GivenUpMarkers>(clock_, config_.write.failed_sibling_ttl);
    common.given_up = given_up_.get();
    // Notes the bucket's ETag before a program of the next mount looks for the version.
    common.in_bucket = [this](const ObjectInfo& acknowledged, const std::string& etag, WallTime sent) {
        journal_->version_sent(acknowledged.key, acknowledged.last_modified, sent, etag);
        if (etag != acknowledged.etag) {
            disk_->sent(acknowledged, etag);
        }
    };
    common.make_room = [this] { return keeping_ != nullptr && keeping_->make_room(); };
    common.acknowledged = [this](const std::shared_ptr<const HeldChange>& held) {
        unsent_->acknowledged_here(held->key());
        keep_behind(held);
    };
    common.note_hidden = [this](const std::string& key, bool is_there) {
        if (is_there) {
            journal_->object_begun(key);
        } else {
            journal_->object_ended(key);
        }
    };
    common.patience = config_.store.retry_for;
    common.begin_file = [this](const std::string& key) -> std::function<void()> {
        return [this, intent = journal_->intend(key, client_->clock().wall_now())] { journal_->intent_ended(intent); };
    };
    return common;
}

// What is acknowledged is kept once the disk has time, and not beside the save, which would cost it as much again.
FileCache* Machinery::start_keeping() {
    if (unsent_ == nullptr) {
        return disk_.get();
    }
    bodies_ = std::make_unique<BodiesOnDisk>(unsent_->store());
    // A block cache of its own: a program that waits for a block must not wait for this disk, nor get its errors.
    body_cache_ = std::make_unique<BlockCache>(*pool_, clock_, kBodiesAhead, disk_.get());
    read_bodies_.reset(
        new ReadEnvironment{*bodies_, *pool_, *executor_, clock_, *codec_, *body_cache_, config_.read, disk_.get()});
    const WritebackStore& store = unsent_->store();
    keeping_.reset(
        new KeepingBehind({*read_bodies_, *timer_, unsent_->limit(), [&store] { return store.quiet_for(); }}));
    return keeping_.get();
}

void Machinery::keep_behind(const std::shared_ptr<const HeldChange>& held) {
    const ObjectInfo& object = held->change.object;
    if (held->removes()) {
        keeping_->removed(object.key);
        return;
    }
    std::uint64_t bytes = 0;
    for (const std::shared_ptr<BodyFile>& file : held->body.files) {
        bytes += file->size();
    }
    const bool is_kept = codec_->described_size(object).value_or(object.size) > kSmallestKept;
    const bool is_local = is_kept && bytes > 0 && held->body.is_local();
    if (is_local) {
        bodies_->add(held);
    }
    keeping_->acknowledged(object.key, object.etag, bytes, is_local ? held : nullptr);
}

void Machinery::keep_the_rest() {
    if (keeping_ == nullptr) {
        return;
    }
    const auto kept = std::make_shared<std::promise<void>>();
    keeping_->finish([kept] { kept->set_value(); });
    kept->get_future().wait_for(kKeepsFor);
    keeping_->stop();
}

Result<ObjectStore*> Machinery::acknowledging_store(ObjectStore& bucket, std::vector<UnsentPlace> disks) {
    const Result<std::uint64_t> limit = unsent_limit();
    if (!limit) {
        return failure(limit.error());
    }
    const UnsentDisks::Environment environment{
        writeback_environment(bucket, *limit),
        [this](const std::string& key, const std::string& disk, StoreDone<std::vector<std::uint64_t>> done) {
            fs_->announced_by_others(key, disk, std::move(done));
        },
        [this](const UnsentChange& marker, const std::string& disk, std::function<void(Status)> done) {
            fs_->may_mark(marker.object.key, {disk, marker.object.last_modified, marker.awaited}, std::move(done));
        }};
    Result<std::unique_ptr<UnsentDisks>> unsent = UnsentDisks::open(environment, std::move(disks));
    if (!unsent) {
        return failure(std::move(unsent.error()));
    }
    unsent_ = std::move(*unsent);
    const UnsentChanges& here = unsent_->store().unsent();
    acknowledging_.reset(new fs::DiskAcknowledgement{
        unsent_->bucket(), *marker_threads_, unsent_->id(),
        [this](const std::function<void(Status)>& sent) { unsent_->when_sent(sent); },
        [this] { return unsent_->left(is_handed_over()); },
        [&here](const std::string& key, const std::string& etag) { return here.etag_here(key, etag); },
        [&here](const std::string& key, const std::string& etag) { return here.etag_there(key, etag); },
        [this](const ObjectInfo& object) { return unsent_->acknowledged_at(object); },
        [this](const std::string& key) { return unsent_->write_id(key); }});
    return &unsent_->store();
}

}  // namespace ckptfs
