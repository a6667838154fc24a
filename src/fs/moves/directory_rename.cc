// SPDX-License-Identifier: Apache-2.0
#include "fs/moves/directory_rename.h"

#include <memory>
#include <thread>
#include <utility>

#include "base/store_wait.h"
#include "base/uuid.h"
#include "ckptfs/log.h"
#include "fs/moves/repair_policy.h"
#include "fs/objects/marker_objects.h"
#include "fs/objects/pinned_removal.h"

namespace ckptfs::fs {

namespace {

DirectoryMarker new_rename(const DirectoryMove& move) {
    DirectoryMarker rename;
    rename.replaces_empty_directory = !move.replaced_marker.empty();
    rename.prefix = move.prefix;
    rename.source = move.source;
    rename.destination = move.destination;
    rename.rename_id = random_uuid();
    return rename;
}

// Reports a lost race with another process (a rename, a mkdir(2), a repair) as EBUSY.
Failure told(Error error, const std::string& key) {
    if (is_lost_race(error)) {
        error.errno_value = EBUSY;
        error.message = key + ": another mount is changing this directory; try again";
    }
    return failure(std::move(error));
}

}  // namespace

DirectoryRename::DirectoryRename(ObjectStore& store, const Clock& clock, Milliseconds repair_after, DirectoryMove move)
    : store_(store), clock_(clock), move_(std::move(move)), record_(store, clock, repair_after) {}

Status DirectoryRename::run(const DirectoryRenameSteps& steps) {
    find_pins_ = steps.find_pins;
    if (Status created = record_.create(new_rename(move_)); !created) {
        return created;
    }
    if (Status filled = fill_destination(steps); !filled) {
        return go_back(steps) ? filled : taken_over(move_.source);
    }
    if (Status decided = record_.change_state(MarkerState::kCommitted); !decided) {
        if (decided.error().outcome_unknown) {
            decided.error().message = move_.source +
                                      ": it is not known whether its rename was decided; the next mount "
                                      "that finds it goes on with it: " +
                                      decided.error().message;
        } else {
            go_back(steps);
        }
        return decided;
    }
    // If this process was held up, others may have moved the failures, and have resolved them since.
    const bool is_lost = record_.lost();
    if (is_lost) {
        steps.leave_failures();
    }
    const Result<bool> shown = is_lost ? look_at_destination() : show_destination(steps.move_failures());
    if (!shown) {
        return failure(shown.error());
    }
    steps.committed(own_.made);
    if (*shown) {
        remove_source();
    }
    return {};
}

Status DirectoryRename::fill_destination(const DirectoryRenameSteps& steps) {
    Status done = begin(steps);
    for (const auto step : {&DirectoryRename::hide_destination, &DirectoryRename::copy, &DirectoryRename::hide_source,
                            &DirectoryRename::copy_what_changed}) {
        if (done) {
            done = (this->*step)();
        }
    }
    return done ? steps.note_failures(sources_) : done;
}

Status DirectoryRename::begin(const DirectoryRenameSteps& steps) {
    if (Status prepared = steps.prepare(); !prepared) {
        return prepared;
    }
    if (Status looked = look_at_source(); !looked) {
        return looked;
    }
    if (Status allowed = steps.allow(sources_); !allowed) {
        return allowed;
    }
    const auto since = clock_.now() - record_.created();
    if (since < kRecordLead) {
        std::this_thread::sleep_for(kRecordLead - since);
    }
    return {};
}

Status DirectoryRename::look_at_source() {
    const auto head = [this](const std::string& key) {
        return ask<ObjectInfo>([&](auto done) { store_.head(key, done); });
    };
    // HEAD, because lists have no metadata. A marker that is replaced between the replies is noticed when it is written
    // over.
    std::future<Result<ObjectInfo>> source = head(move_.source);
    std::future<Result<ObjectInfo>> destination =
        move_.replaced_marker.empty() ? std::future<Result<ObjectInfo>>() : head(move_.destination);
    Status listed = list_source();
    const Result<ObjectInfo> source_marker = source.get();
    if (listed && !source_marker && source_marker.error().errno_value != ENOENT) {
        listed = failure(source_marker.error());
    }
    if (listed && !source_marker && sources_.empty()) {
        // Another mount has renamed or removed it since the caller looked it up.
        listed = failure(ENOENT, move_.source + " is gone");
    }
    source_made_ = source_marker ? directory_made(*source_marker) : WallTime{};
    if (destination.valid()) {
        const Result<ObjectInfo> destination_marker = destination.get();
        if (listed && !destination_marker) {
            return told(destination_marker.error(), move_.destination);
        }
        destination_made_ = destination_marker ? std::optional(directory_made(*destination_marker)) : std::nullopt;
    }
    return listed;
}

Status DirectoryRename::list_source() {
    Result<std::vector<ObjectInfo>> listed = list_all(store_, move_.source, &pages_);
    if (!listed) {
        return failure(std::move(listed.error()));
    }
    sources_.clear();
    for (ObjectInfo& object : *listed) {
        if (object.key == move_.source) {
            if (Status free = check_source_marker(object); !free) {
                return free;
            }
            source_marker_ = object.etag;
        } else if (object.key.ends_with('/') && may_hide_directory(object.size)) {
            return failure(EBUSY, object.key + ": a rename of this directory is not finished");
        } else {
            sources_.push_back(std::move(object));
        }
    }
    return {};
}

Status DirectoryRename::check_source_marker(const ObjectInfo& marker) {
    if (!may_hide_directory(marker.size) || marker.etag == source_marker_) {
        return {};
    }
    const Result<StoredMarker> stored = read_marker(store_, clock_, marker.key);
    if (!stored && stored.error().errno_value != ENOENT) {
        return failure(stored.error());
    }
    const bool is_free = stored && (!stored->marker || !marks(*stored->marker, marker.key) ||
                                    stored->marker->rename_id == record_.rename().rename_id);
    return is_free ? Status() : failure(EBUSY, marker.key + ": a rename of this directory is not finished");
}

Status DirectoryRename::hide_destination() {
    announced_ = names();
    std::future<Status> names_written =
        ask<void>([&](auto done) { write_names(store_, names_key(record_.rename()), announced_, done); });
    Result<std::string> hidden = noted(write_marker(store_, move_.destination, marker(MarkerState::kPending),
                                                    move_.replaced_marker, destination_made_));
    Status written = names_written.get();
    if (!hidden) {
        return told(std::move(hidden.error()), move_.destination);
    }
    destination_marker_ = std::move(*hidden);
    pending_may_come_again_ = own_.may_come_late;
    return written ? check_still_empty() : written;
}

// The hidden destination is not found any more to save a file in; this list has what was saved since it was checked.
Status DirectoryRename::check_still_empty() {
    ListRequest list;
    list.prefix = move_.destination;
    list.max_keys = 2;
    const Result<ListResponse> there = wait_for<ListResponse>([&](auto done) { store_.list(list, done); });
    if (!there) {
        return failure(there.error());
    }
    for (const ObjectInfo& object : there->objects) {
        if (object.key != move_.destination) {
            // What is not hidden is left alone when the rename is undone.
            const Status shown = show_as_before();
            return shown ? failure(ENOTEMPTY, move_.destination + " is not empty") : shown;
        }
    }
    return {};
}

Status DirectoryRename::show_as_before() {
    if (move_.replaced_marker.empty()) {
        RemoveRequest marker(move_.destination, destination_marker_);
        marker.may_send = while_held();
        return remove_version(store_, marker);
    }
    const Result<PutResponse> shown =
        write_empty_marker(store_, move_.destination, destination_marker_, destination_made_);
    return shown ? Status{} : told(shown.error(), move_.destination);
}

Status DirectoryRename::copy() {
    own_.none_begun = false;
    return copy_tree(store_, sources_, record_.rename(), while_held(), own_, move_.last_names);
}

Status DirectoryRename::hide_source() {
    if (record_.lost()) {
        return taken_over(move_.source);
    }
    source_was_implied_ = source_marker_.empty();
    Result<std::string> hidden =
        noted(write_marker(store_, move_.source, marker(MarkerState::kMoved), source_marker_, source_made_));
    if (!hidden) {
        return told(std::move(hidden.error()), move_.source);
    }
    source_marker_ = std::move(*hidden);
    return {};
}

Result<std::string> DirectoryRename::noted(Result<PutResponse> written) {
    const bool may_come_late = written ? written->may_come_again : written.error().outcome_unknown;
    own_.may_come_late = own_.may_come_late || may_come_late;
    return written ? Result<std::string>(std::move(written->etag)) : failure(std::move(written.error()));
}

// A marker younger than the records that were just written would resolve their failures: so the directory counts as
// made when it was hidden. The pending marker that replaced an empty one must not replace this one when it comes again:
// it would hide the directory.
Result<PutResponse> DirectoryRename::write_shown_marker(bool with_failures) {
    const bool is_unique = pending_may_come_again_ && !move_.replaced_marker.empty();
    const auto write_shown = is_unique ? write_unique_marker : write_empty_marker;
    if (!with_failures) {
        return write_shown(store_, move_.destination, destination_marker_, std::nullopt);
    }
    const Result<ObjectInfo> hidden = wait_for<ObjectInfo>([this](auto done) { store_.head(move_.destination, done); });
    if (!hidden) {
        return failure(hidden.error());
    }
    return write_shown(store_, move_.destination, destination_marker_, hidden->last_modified);
}

Result<bool> DirectoryRename::show_destination(bool with_failures) {
    const Result<PutResponse> shown = write_shown_marker(with_failures);
    if (shown) {
        return true;
    }
    if (is_lost_race(shown.error())) {
        // The rename is decided: a mount that has taken over can only go forward.
        return false;
    }
    return left_to_others(shown.error());
}

Result<bool> DirectoryRename::look_at_destination() {
    const Result<ObjectInfo> there = wait_for<ObjectInfo>([this](auto done) { store_.head(move_.destination, done); });
    if (there && there->etag == destination_marker_) {
        return left_to_others(taken_over(move_.source).value());
    }
    if (!there && there.error().errno_value != ENOENT) {
        return left_to_others(there.error());
    }
    return false;
}

Failure DirectoryRename::left_to_others(Error error) const {
    error.errno_value = EIO;
    error.message = move_.destination +
                    ": the rename is decided but could not be finished; the next mount that finds it "
                    "finishes it: " +
                    error.message;
    return failure(std::move(error));
}

Status DirectoryRename::undo(const DirectoryRenameSteps& steps) {
    const auto roll_back_now = [this] {
        return roll_back(store_, clock_, record_.rename(), announced_, {find_pins_(), while_held()}, own_);
    };
    Status back = roll_back_now();
    if (back && own_.may_come_late) {
        log_info(escaped(move_.source + ": its rename to " + move_.destination +
                         " failed, and the store did not answer a request of it: waiting a minute in which that may "
                         "still take effect"));
        steps.wait(kLastRequests);
        own_.may_come_late = false;
        back = roll_back_now();
    }
    return back ? record_.remove() : back;
}

bool DirectoryRename::go_back(const DirectoryRenameSteps& steps) {
    bool is_ours = true;
    Status back = record_.change_state(MarkerState::kRollingBack);
    if (back) {
        back = undo(steps);
    } else if (record_.lost()) {
        is_ours = false;
        back = go_back_when_lost(steps);
    }
    if (!back) {
        log_warning(escaped(move_.source + ": its rename to " + move_.destination +
                            " failed; the next mount that finds it undoes it: " + back.error().message));
    }
    return is_ours;
}

Status DirectoryRename::go_back_when_lost(const DirectoryRenameSteps& steps) {
    const DirectoryMarker& rename = record_.rename();
    const Result<StoredMarker> record = read_marker(store_, clock_, record_key(rename));
    if (!record && record.error().errno_value != ENOENT) {
        return failure(record.error());
    }
    if (record && record->marker && record->marker->state == MarkerState::kCommitted) {
        // The rename is decided after all: another mount goes forward with it.
        return taken_over(move_.source);
    }
    Status back = record ? Status(taken_over(move_.source)) : record_.make_anew(rename, MarkerState::kRollingBack);
    if (back) {
        // The rename was repaired, and this mount went on without knowing.
        back = undo(steps);
    } else if (record || is_lost_race(back.error())) {
        back = show_source(store_, clock_, rename);
    }
    return back ? remove_late_copies(store_, rename, own_.made, {find_pins_(), {}}) : back;
}

// What another mount writes meanwhile stays. For a store without conditional deletes, what is there is looked up once
// more.
Result<std::vector<RemoveRequest>> DirectoryRename::copied_sources(DeletePins pins) {
    std::vector<RemoveRequest> requests;
    if (pins == DeletePins::kHonoured) {
        for (const ObjectInfo& source : sources_) {
            requests.emplace_back(source.key, source.etag);
        }
        return requests;
    }
    const Result<std::vector<ObjectInfo>> listed = list_all(store_, move_.source);
    if (!listed) {
        return failure(listed.error());
    }
    for (const ObjectInfo& object : *listed) {
        const auto copied = own_.made.find(object.key);
        if (copied != own_.made.end() && copied->second.source_etag == object.etag) {
            requests.emplace_back(object.key, object.etag);
        }
    }
    return requests;
}

void DirectoryRename::remove_source() {
    const RemovalTerms terms{find_pins_(), while_held()};
    Result<std::vector<RemoveRequest>> requests = copied_sources(terms.pins);
    Status removed = requests ? remove_versions(store_, std::move(*requests), terms) : failure(requests.error());
    if (removed) {
        RemoveRequest marker(move_.source, source_marker_);
        marker.may_send = while_held();
        removed = remove_version(store_, marker);
    }
    if (removed) {
        removed = record_.remove();
    }
    if (!removed) {
        // The source is hidden, so that the rename has taken effect on every mount.
        log_warning(escaped(move_.source + " was renamed; the next mount that finds what is left of it deletes that: " +
                            removed.error().message));
    }
}

std::vector<MovedName> DirectoryRename::names() const {
    std::vector<MovedName> names;
    for (const ObjectInfo& source : sources_) {
        names.push_back({source.key.substr(move_.source.size()), source.etag});
    }
    return names;
}

DirectoryMarker DirectoryRename::marker(MarkerState state) const {
    DirectoryMarker marker = record_.rename();
    marker.state = state;
    marker.source_was_implied = state == MarkerState::kMoved && source_was_implied_;
    marker.written = clock_.wall_now();
    return marker;
}

}  // namespace ckptfs::fs
