// SPDX-License-Identifier: Apache-2.0
#include "fs/names/directory_listing.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "base/store_wait.h"
#include "fs/moves/directory_rename.h"
#include "fs/objects/directory_marker.h"
#include "fs/state/paths.h"

namespace ckptfs::fs {

namespace {

constexpr std::uint64_t kDotEntries = 2;
// A page of a thousand compressed files at 30 ms each: half a second.
constexpr std::size_t kContentsAtOnce = 64;
// A caller has read a page of names, and looked through it, by then.
constexpr Milliseconds kBelieved{std::chrono::seconds(10)};

// Not ENOENT, which glibc treats as the end of an empty directory.
Failure gone(const std::string& directory_key) {
    return failure(ESTALE, directory_key + " was removed or renamed while it was open");
}

}  // namespace

DirectoryListing::DirectoryListing(SharedState& state, Lookups& lookups, RenameRecords& records, NodePtr directory)
    : state_(state), lookups_(lookups), records_(records), directory_(std::move(directory)) {
    const NodeTable::Lock lock = state_.nodes.lock();
    ++directory_->open_handles;
}

DirectoryListing::~DirectoryListing() {
    const NodeTable::Lock lock = state_.nodes.lock();
    --directory_->open_handles;
    state_.nodes.drop_if_unused(lock, directory_);
}

Result<std::vector<DirectoryEntry>> DirectoryListing::read(std::uint64_t offset, std::size_t max_entries,
                                                           bool with_attributes) {
    MutexLock guard(mutex_);
    if (started_ == SteadyTime{} || offset == 0 || (offset >= kDotEntries && offset < page_offset_)) {
        restart();
    }
    while (offset + 1 >= kDotEntries && offset >= page_offset_ + page_.size() && !at_end_) {
        if (const Status listed = next_page(); !listed) {
            return failure(listed.error());
        }
    }
    if (!std::exchange(contents_found_, true)) {
        find_contents();
        note_page();
    }
    return entries_from(offset, max_entries, with_attributes);
}

void DirectoryListing::restart() {
    page_.clear();
    page_offset_ = kDotEntries;
    token_.clear();
    at_end_ = false;
    started_ = state_.env.clock.now();
    only_here_.clear();
    const NodeTable::Lock lock = state_.nodes.lock();
    for (const auto& [name, child] : directory_->directory().children) {
        if (child->type != FileType::kDirectory && child->has_its_name_here()) {
            only_here_.insert(name);
        }
    }
}

std::string DirectoryListing::key_now() const {
    const NodeTable::Lock lock = state_.nodes.lock();
    return state_.key(lock, *directory_);
}

Status DirectoryListing::next_page() {
    ListRequest request;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        request.prefix = state_.key(lock, *directory_);
        page_asked_ = state_.env.clock.now();
        page_removal_ = state_.nodes.last_removal(lock);
    }
    request.delimiter = "/";
    request.continuation_token = token_;
    if (token_.empty()) {
        key_ = request.prefix;
    } else if (key_ != request.prefix) {
        return gone(key_);
    }
    const Result<ListResponse> page = fetch_page(request);
    if (token_.empty() && key_now() != key_) {
        // This mount has renamed the directory: it is listed from the beginning, under its new name.
        return {};
    }
    if (!page) {
        return failure(page.error());
    }
    page_offset_ += page_.size();
    page_.clear();
    contents_found_ = false;
    take_page(request.prefix, *page);
    token_ = page->next_continuation_token;
    if (token_.empty()) {
        finish();
    }
    return {};
}

Result<ListResponse> DirectoryListing::fetch_page(const ListRequest& request) {
    using Records = std::shared_ptr<const RecordedRenames>;
    const auto ask_for_records = [this] { return ask<Records>([&](auto done) { records_.ask(done); }); };
    std::future<Result<Records>> answer = ask_for_records();
    Result<ListResponse> page = wait_for<ListResponse>([&](auto done) { state_.env.store.list(request, done); });
    const SteadyTime listed = state_.env.clock.now();
    const Result<Records> recorded = answer.get();
    if (!page || !recorded) {
        return failure(page ? recorded.error() : page.error());
    }
    if (const Status there = check_is_there(request, *page); !there) {
        return failure(there.error());
    }
    directories_known_ = std::max(listed, (*recorded)->answered) - (*recorded)->asked < kRecordLead;
    if (is_late(*page, listed, **recorded)) {
        const Result<Records> later = ask_for_records().get();
        if (!later) {
            return failure(later.error());
        }
        if (const Status dropped = drop_hidden(*page, **later); !dropped) {
            return failure(dropped.error());
        }
    }
    if (const Status dropped = drop_hidden(*page, **recorded); !dropped) {
        return failure(dropped.error());
    }
    return page;
}

Status DirectoryListing::check_is_there(const ListRequest& request, const ListResponse& page) {
    if (request.continuation_token.empty()) {
        const bool has_marker = !page.objects.empty() && page.objects.front().key == request.prefix;
        marker_ = has_marker ? std::optional(page.objects.front()) : std::nullopt;
        return is_gone(request.prefix, page) ? gone(request.prefix) : Status{};
    }
    const Result<bool> another = is_another(request.prefix);
    if (!another) {
        return failure(another.error());
    }
    return *another || key_now() != request.prefix ? gone(request.prefix) : Status{};
}

// To be called after the page was answered: a rename hides a directory before it deletes what is in it.
Result<bool> DirectoryListing::is_another(const std::string& directory_key) {
    if (directory_ == state_.nodes.root()) {
        return false;
    }
    ListRequest list;
    list.prefix = directory_key;
    list.max_keys = 1;
    const Result<ListResponse> first = wait_for<ListResponse>([&](auto done) { state_.env.store.list(list, done); });
    if (!first) {
        return failure(first.error());
    }
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (is_moving(lock)) {
            return false;
        }
    }
    const bool has_marker = !first->objects.empty() && first->objects.front().key == directory_key;
    if (has_marker && lookups_.hides(first->objects.front())) {
        return true;
    }
    if (!marker_) {
        return is_gone(directory_key, *first);
    }
    return has_marker ? is_made_anew(first->objects.front()) : true;
}

// A marker that has changed is not enough: a rename that was undone has written it, too.
Result<bool> DirectoryListing::is_made_anew(const ObjectInfo& marker) {
    if (marker.etag == marker_->etag && marker.last_modified == marker_->last_modified) {
        return false;
    }
    const Result<ObjectInfo> written =
        wait_for<ObjectInfo>([&](auto done) { state_.env.store.head(marker.key, done); });
    if (!written) {
        return written.error().errno_value == ENOENT ? Result<bool>(true) : failure(written.error());
    }
    return directory_made(*written) > marker_->last_modified;
}

// A rename that the page shows may have been recorded after the records were listed, if the request for the page was
// sent again or the page is large. Both requests were sent at once, and the times of their replies show better when
// they were listed than how long each took.
bool DirectoryListing::is_late(const ListResponse& page, SteadyTime listed, const RecordedRenames& recorded) {
    return !page.common_prefixes.empty() && recorded.asked != SteadyTime{} && listed - recorded.answered >= kRecordLead;
}

// Destinations come first: if one is shown by now, its source is hidden when it is checked. In the other order both may
// be shown.
Status DirectoryListing::drop_hidden(ListResponse& page, const RecordedRenames& recorded) {
    return drop_hidden(page, recorded.destinations).and_then([&] { return drop_hidden(page, recorded.sources); });
}

// Fails if that cannot be found out for one of them: it is neither left out nor shown.
Status DirectoryListing::drop_hidden(ListResponse& page, const std::unordered_set<std::uint64_t>& suspected) {
    std::vector<std::string> suspects;
    for (const std::string& key : page.common_prefixes) {
        if (suspected.contains(path_hash(key))) {
            suspects.push_back(key);
        }
    }
    Mutex mutex;
    std::set<std::string> hidden;
    const Status known = for_each_in_parallel(
        suspects.size(), kContentsAtOnce, [&](std::size_t index, std::function<void(Status)> done) {
            const std::string& key = suspects[index];
            lookups_.find(key.substr(0, key.size() - 1), [&, done = std::move(done)](const Result<FoundName>& found) {
                if (!found && found.error().errno_value != ENOENT) {
                    done(failure(found.error()));
                    return;
                }
                if (!found || !found->is_directory) {
                    const MutexLock lock(mutex);
                    hidden.insert(key);
                }
                done({});
            });
        });
    std::erase_if(page.common_prefixes, [&hidden](const std::string& key) { return hidden.contains(key); });
    return known;
}

// Happens if the name was looked up before the directory was removed or its rename began.
bool DirectoryListing::is_gone(const std::string& directory_key, const ListResponse& page) const {
    const bool empty = page.objects.empty() && page.common_prefixes.empty();
    const bool has_marker = !page.objects.empty() && page.objects.front().key == directory_key;
    if (directory_ == state_.nodes.root() || !(empty || (has_marker && lookups_.hides(page.objects.front())))) {
        return false;
    }
    const NodeTable::Lock lock = state_.nodes.lock();
    const auto& children = directory_->directory().children;
    return !is_moving(lock) &&
           std::none_of(children.begin(), children.end(),
                        [](const auto& child) REQUIRES(node_table) { return child.second->writer != nullptr; });
}

// For this mount the directory is there until its rename is decided.
bool DirectoryListing::is_moving(const NodeTable::Lock& /*lock*/) const {
    for (const Node* at = directory_.get(); at != nullptr; at = at->parent.get()) {
        if (at->moving) {
            return true;
        }
    }
    return false;
}

void DirectoryListing::take_page(const std::string& directory_key, const ListResponse& page) {
    const bool at_root = directory_ == state_.nodes.root();
    std::unordered_set<std::string> directories;
    const auto add = [&](const std::string& key, const ObjectVersion& version) REQUIRES(mutex_) {
        if (key == directory_key) {
            return;
        }
        std::optional<ListedName> listed = listed_name(directory_key, key, at_root);
        if (!listed || directories.contains(listed->name)) {
            if (!key.starts_with(state_.env.prefix + ".ckptfs/")) {
                lookups_.report_hidden(key);
            }
            return;
        }
        if (listed->is_directory) {
            directories.insert(listed->name);
        }
        only_here_.erase(listed->name);
        page_.push_back(Listed{std::move(listed->name), listed->is_directory, version, key, true});
    };
    for (const std::string& prefix : page.common_prefixes) {
        add(prefix, {});
    }
    for (const ObjectInfo& object : page.objects) {
        add(object.key, version_of(object, {FileType::kFile, object.size}));
    }
}

void DirectoryListing::find_contents() {
    std::vector<Listed*> unknown;
    for (Listed& listed : page_) {
        if (!listed.is_directory && !listed.version.etag.empty()) {
            unknown.push_back(&listed);
        }
    }
    static_cast<void>(
        for_each_in_parallel(unknown.size(), kContentsAtOnce, [&](std::size_t index, std::function<void(Status)> done) {
            Listed& listed = *unknown[index];
            ObjectInfo object;
            object.key = listed.key;
            object.etag = listed.version.etag;
            object.size = listed.version.stored_size;
            state_.contents.find(object, [&listed, done = std::move(done)](Result<ObjectContent> content) {
                listed.content_is_known = content.has_value();
                if (content) {
                    listed.version.type = content->type;
                    listed.version.size = content->size;
                }
                done({});
            });
        }));
}

void DirectoryListing::note_page() {
    const NodeTable::Lock lock = state_.nodes.lock();
    const std::string directory_key = state_.key(lock, *directory_);
    for (const Listed& listed : page_) {
        const bool is_file = !listed.is_directory && listed.content_is_known && !listed.version.etag.empty();
        if (is_file && listed.key == directory_key + listed.name && !is_overtaken(lock, listed)) {
            lookups_.note_listed(directory_->id, listed.name, listed.version, started_);
        }
    }
}

bool DirectoryListing::is_newer(const NodeTable::Lock& /*lock*/, const NodePtr& present, SteadyTime asked) {
    return present != nullptr &&
           ((present->type != FileType::kDirectory && present->has_its_name_here()) || present->checked > asked);
}

bool DirectoryListing::is_overtaken(const NodeTable::Lock& lock, const Listed& listed) const {
    return NodeTable::was_removed_since(lock, *directory_, listed.name, page_removal_) ||
           is_newer(lock, state_.nodes.child(lock, directory_, listed.name), page_asked_);
}

void DirectoryListing::finish() {
    at_end_ = true;
    const NodeTable::Lock lock = state_.nodes.lock();
    for (const std::string& name : only_here_) {
        // The file is still only here, or it was saved since the page on which it would be was listed.
        if (is_newer(lock, state_.nodes.child(lock, directory_, name), started_)) {
            page_.push_back(Listed{name, false, {}, {}, true});
        }
    }
}

std::vector<DirectoryEntry> DirectoryListing::entries_from(std::uint64_t offset, std::size_t max_entries,
                                                           bool with_attributes) {
    std::vector<DirectoryEntry> entries;
    const NodeTable::Lock lock = state_.nodes.lock();
    for (; offset < kDotEntries && entries.size() < max_entries; ++offset) {
        entries.push_back(dot_entry(lock, offset));
    }
    for (; offset >= page_offset_ && offset < page_offset_ + page_.size() && entries.size() < max_entries; ++offset) {
        const Listed& listed = page_[offset - page_offset_];
        if (listed.key.empty() && state_.nodes.child(lock, directory_, listed.name) == nullptr) {
            // The file was only here, and has been removed since.
            continue;
        }
        entries.push_back(entry_of(lock, listed, with_attributes));
        entries.back().next_offset = offset + 1;
    }
    return entries;
}

DirectoryEntry DirectoryListing::dot_entry(const NodeTable::Lock& lock, std::uint64_t offset) const {
    const bool is_parent = offset == 1 && directory_->parent != nullptr;
    DirectoryEntry entry;
    entry.name = offset == 0 ? "." : "..";
    entry.next_offset = offset + 1;
    entry.entry.attributes = state_.attributes(lock, is_parent ? *directory_->parent : *directory_);
    return entry;
}

// The caller may have read the first names of a page long ago.
bool DirectoryListing::is_outdated(const NodeTable::Lock& lock, const Listed& listed) const {
    const auto believed = std::max<Milliseconds>(state_.env.names.metadata_ttl, kBelieved);
    return state_.env.clock.now() - page_asked_ > believed ||
           NodeTable::was_removed_since(lock, *directory_, listed.name, page_removal_);
}

DirectoryEntry DirectoryListing::entry_of(const NodeTable::Lock& lock, const Listed& listed, bool with_attributes) {
    DirectoryEntry entry;
    entry.name = listed.name;
    const NodePtr present = state_.nodes.child(lock, directory_, listed.name);
    // Without a node the kernel takes the name only, and looks it up when it is used.
    if (!with_attributes || (present == nullptr && (state_.nodes.is_full(lock) || is_outdated(lock, listed)))) {
        const bool is_special_here = present != nullptr && is_special(present->type);
        entry.entry.attributes.type = is_special_here       ? present->type
                                      : listed.is_directory ? FileType::kDirectory
                                                            : listed.version.type;
        entry.entry.attributes.inode =
            present != nullptr ? present->inode : inode_number(state_.nodes.path(lock, *directory_) + listed.name);
        return entry;
    }
    NodePtr node = present;
    // No page says anything of a file that was found only here.
    const bool newer = listed.key.empty() || is_newer(lock, node, page_asked_);
    // A size that cannot be looked up now has not changed: a reader may have the file open. It is known if the node's
    // version was ever checked.
    const bool is_known_here = !listed.is_directory && node != nullptr && node->committed &&
                               node->checked != SteadyTime{} && !listed.version.etag.empty() &&
                               is_same_version(*node->committed, listed.version);
    const bool is_known = listed.is_directory ? directories_known_ : listed.content_is_known || is_known_here;
    if (!newer && listed.is_directory) {
        node =
            lookups_.found_directory(lock, directory_, listed.name, node != nullptr && node->has_marker, page_asked_);
    } else if (!newer) {
        const ObjectVersion version = !listed.content_is_known && is_known_here ? *node->committed : listed.version;
        node = lookups_.found_file(lock, directory_, listed.name, version, page_asked_);
    }
    entry.entry = state_.entry(lock, *node);
    if (!newer && !is_known) {
        // A caller that needs it looks it up.
        node->checked = SteadyTime{};
        entry.entry.valid_for = entry.entry.attributes.valid_for = Milliseconds(0);
    }
    return entry;
}

}  // namespace ckptfs::fs
