// SPDX-License-Identifier: Apache-2.0
#include "fs/names/lookups.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "base/utf8.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "fs/state/paths.h"

namespace ckptfs::fs {

namespace {

constexpr std::size_t kMaxReportedKeys = 1000;
constexpr std::chrono::minutes kBelievedInRun{1};
// After ESTALE the kernel looks up again at once.
constexpr std::chrono::seconds kLooksAgainWithin{1};
// A longer time gains next to nothing for saves of many files, and for this time a directory that another mount makes
// goes unnoticed.
constexpr std::chrono::seconds kListAnswersFor{1};
// In a directory of more than a thousand names each one is asked for, which costs less than a list of all of them.
constexpr std::chrono::minutes kTooLargeFor{1};

// Joins the two requests of one inquiry.
struct Inquiry {
    Inquiry(Reply<FoundName> its_reply, int answers) : reply(std::move(its_reply)), answers_due(answers) {}

    const Reply<FoundName> reply;

    Mutex mutex;
    FoundName found GUARDED_BY(mutex);
    std::optional<Error> failed GUARDED_BY(mutex);
    int answers_due GUARDED_BY(mutex);

    void answered(const std::function<void(Inquiry&)>& take) {
        Result<FoundName> answer;
        {
            const MutexLock lock(mutex);
            take(*this);
            if (--answers_due > 0) {
                return;
            }
            if (failed) {
                answer = failure(std::move(*failed));
            } else {
                answer = std::move(found);
            }
        }
        reply(std::move(answer));
    }
};

bool is_looked_up_again(const NodeTable::Lock& /*lock*/, const Node& node, SteadyTime now) REQUIRES(node_table) {
    return std::any_of(node.expected.begin(), node.expected.end(),
                       [now](const ExpectedOpen& open) { return now - open.since < kLooksAgainWithin; });
}

// Whether an open that looks again has begun, or asked the bucket, since the name was last known to hold the node.
bool is_known_for_too_long(const NodeTable::Lock& /*lock*/, const Node& node) REQUIRES(node_table) {
    return std::any_of(node.expected.begin(), node.expected.end(),
                       [&node](const ExpectedOpen& open) REQUIRES(node_table) { return open.asked > node.checked; });
}

// Whether the node was made for an open that truncates what others are writing, and of which the bucket has nothing
// yet.
bool is_yet_to_be_opened(const NodeTable::Lock& lock, const Node& node, SteadyTime now) REQUIRES(node_table) {
    return node.committed && node.committed->etag.empty() && is_looked_up_again(lock, node, now);
}

// Stores refuse keys that are not UTF-8: there is no such name.
bool is_no_name(const Error& error, const std::string& key) {
    return error.errno_value == EINVAL && !is_utf8(key);
}

void ask_for_object(ObjectStore& store, const std::string& key, const std::shared_ptr<Inquiry>& inquiry) {
    store.head(key, [inquiry, key](Result<ObjectInfo> object) {
        inquiry->answered([&](Inquiry& joined) REQUIRES(joined.mutex) {
            if (object) {
                joined.found.object = std::move(*object);
                joined.found.object->key = key;
            } else if (object.error().errno_value != ENOENT && !is_no_name(object.error(), key)) {
                joined.failed = std::move(object.error());
            }
        });
    });
}

// The names on a page of a directory's listing; `prefix`: length of the directory's key.
std::vector<std::string> names_of(const ListResponse& page, std::size_t prefix) {
    std::vector<std::string> names;
    names.reserve(page.objects.size() + page.common_prefixes.size());
    for (const ObjectInfo& object : page.objects) {
        names.push_back(object.key.substr(prefix));
    }
    for (const std::string& key : page.common_prefixes) {
        names.push_back(key.substr(prefix, key.size() - prefix - 1));
    }
    return names;
}

}  // namespace

void Lookups::lookup(const Question& question, Reply<Entry> reply) {
    const auto& [parent_id, name, thread, attempts] = question;
    Asked asked;
    {
        // Taken before it is asked whether the name is being removed.
        const NodeTable::Lock lock = state_.nodes.lock();
        asked.removal = state_.nodes.last_removal(lock);
    }
    if (batches_.removes(parent_id, name)) {
        batches_.when_settled(parent_id, [=, this] { lookup(question, reply); });
        return;
    }
    asked.when = state_.env.clock.now();
    if (std::optional<Result<Entry>> known = from_table(parent_id, name, asked)) {
        reply(std::move(*known));
        return;
    }
    // The store has nothing of a directory after its last names were deleted and before its marker is written.
    const std::optional<NodeId> emptied = batches_.removes_below(asked.key + "/");
    const bool is_absent = asked.is_unknown && believes_absent(parent_id, name);
    const bool by_listing = asked.is_unknown && (is_absent || may_list(parent_id));
    const bool makes_anew = by_listing && state_.env.processes.makes_anew(thread, name);
    if (makes_anew && is_absent) {
        reply(failure(ENOENT, name + ": no such file"));
        return;
    }
    const auto answer = [=, this](const FoundName& found, ObjectContent content) {
        if (emptied && !found.is_directory && !found.object && question.attempts > 1) {
            batches_.when_settled(*emptied, [=, this] { lookup(question.again(), reply); });
            return;
        }
        std::optional<Result<Entry>> entry =
            apply(question.parent, question.name, found, content, asked, question.attempts > 1);
        if (!entry && question.attempts > 1) {
            lookup(question.again(), reply);
        } else {
            reply(entry ? std::move(*entry) : failure(ENOENT, question.name + ": removed"));
        }
    };
    const auto take = [=, this](Result<FoundName> found) {
        if (!found) {
            reply(failure(std::move(found.error())));
            return;
        }
        if (found->is_directory || !found->object) {
            answer(*found, {});
            return;
        }
        const ObjectInfo object = *found->object;
        state_.contents.find_described(object, [=, this, found = std::move(*found)](Result<ObjectContent> content) {
            if (content) {
                answer(found, *content);
            } else if (question.attempts > 1 &&
                       (content.error().errno_value == ENOENT || content.error().errno_value == ESTALE)) {
                lookup(question.again(), reply);
            } else {
                reply(failure(std::move(content.error())));
            }
        });
    };
    if (makes_anew) {
        find_among(parent_id, asked.key, take);
    } else {
        find(asked.key, take);
    }
}

std::optional<Result<Entry>> Lookups::from_table(NodeId parent_id, const std::string& name, Asked& asked) {
    const SteadyTime now = state_.env.clock.now();
    const SteadyTime believed_since = batches_.is_running(parent_id) ? now - kBelievedInRun : SteadyTime::max();
    const NodeTable::Lock lock = state_.nodes.lock();
    const Result<NodePtr> parent = state_.directory(lock, parent_id);
    if (!parent) {
        return failure(parent.error());
    }
    const std::string parent_path = state_.nodes.path(lock, **parent);
    if (const Status valid = check_name(state_.env.prefix, parent_path, name); !valid) {
        const bool too_long = valid.error().errno_value == ENAMETOOLONG;
        return failure(too_long ? ENAMETOOLONG : ENOENT, valid.error().message);
    }
    if (const NodePtr child = state_.nodes.child(lock, *parent, name)) {
        if (child->has_its_name_here() || is_yet_to_be_opened(lock, *child, now)) {
            return state_.entry(lock, *child);
        }
        const bool is_believed = state_.is_fresh(lock, *child) || child->checked >= believed_since;
        if (is_believed && !is_known_for_too_long(lock, *child)) {
            // The kernel believes it no longer than this mount does.
            Entry entry = state_.entry(lock, *child);
            const auto age = std::chrono::duration_cast<Milliseconds>(now - child->checked);
            const Milliseconds left = std::max(Milliseconds(0), state_.env.names.metadata_ttl - age);
            entry.valid_for = std::min(entry.valid_for, left);
            entry.attributes.valid_for = std::min(entry.attributes.valid_for, left);
            return entry;
        }
    } else if (const auto version = batches_.listed().find(parent_id, name, believed_since)) {
        Entry entry = state_.entry(lock, *found_file(lock, *parent, name, *version, SteadyTime{}));
        entry.valid_for = entry.attributes.valid_for = Milliseconds(0);
        return entry;
    }
    asked.key = state_.env.prefix + parent_path + name;
    asked.is_unknown = state_.nodes.child(lock, *parent, name) == nullptr &&
                       !state_.failed.can_be_unlinked(asked.key) && !hidden_.has(asked.key, now);
    return std::nullopt;
}

bool Lookups::believes_absent(NodeId directory, const std::string& name) const {
    const Milliseconds believed = std::min<Milliseconds>(state_.env.names.metadata_ttl, kListAnswersFor);
    return absent_.has_not(directory, name, state_.env.clock.now() - believed);
}

bool Lookups::may_list(NodeId directory) const {
    return state_.env.names.metadata_ttl > Milliseconds(0) &&
           !absent_.was_too_large(directory, state_.env.clock.now() - kTooLargeFor);
}

void Lookups::find_among(NodeId directory, const std::string& key, Reply<FoundName> reply) {
    const SteadyTime asked = state_.env.clock.now();
    const auto inquiry = std::make_shared<Inquiry>(
        [this, key, asked, reply = std::move(reply)](Result<FoundName> found) {
            if (found && found->is_directory) {
                // The directory's marker says whether it is hidden.
                find(key, reply);
                return;
            }
            if (found) {
                hidden_.found(key, false, asked, state_.env.clock.now());
            }
            reply(std::move(found));
        },
        2);
    ask_for_object(state_.env.store, key, inquiry);
    ListRequest list;
    list.prefix = key.substr(0, key.rfind('/') + 1);
    list.delimiter = "/";
    const AbsentNames::ListingPointer listing = absent_.listing_begins(directory, asked);
    state_.env.store.list(list, [this, inquiry, key, list, listing](Result<ListResponse> page) {
        // The first page of a directory that is too large need not show the name.
        bool may_be_directory = false;
        if (page && !page->next_continuation_token.empty()) {
            absent_.is_too_large(listing);
            may_be_directory = true;
        } else if (page) {
            may_be_directory = std::ranges::find(page->common_prefixes, key + "/") != page->common_prefixes.end();
            absent_.listed(listing, names_of(*page, list.prefix.size()));
        }
        inquiry->answered([&](Inquiry& joined) REQUIRES(joined.mutex) {
            if (!page) {
                joined.failed = std::move(page.error());
            } else {
                joined.found.is_directory = may_be_directory;
            }
        });
    });
}

void Lookups::find(std::string key, Reply<FoundName> reply) {
    // A key of the greatest length has no room for the '/' of a directory.
    const bool may_be_directory = key.size() < kMaxKeyBytes;
    auto inquiry = std::make_shared<Inquiry>(
        [this, key, asked = state_.env.clock.now(), reply = std::move(reply)](Result<FoundName> found) {
            if (found) {
                hidden_.found(key, found->is_hidden, asked, state_.env.clock.now());
            }
            reply(std::move(found));
        },
        may_be_directory ? 2 : 1);
    ListRequest list;
    list.prefix = key + "/";
    list.max_keys = 1;
    ask_for_object(state_.env.store, key, inquiry);
    if (!may_be_directory) {
        return;
    }
    state_.env.store.list(list, [this, inquiry, marker = list.prefix](Result<ListResponse> below) {
        inquiry->answered([&](Inquiry& joined) REQUIRES(joined.mutex) {
            if (!below && !is_no_name(below.error(), marker)) {
                joined.failed = std::move(below.error());
            } else if (below && !below->objects.empty()) {
                const ObjectInfo& first = below->objects.front();
                joined.found.has_marker = first.key == marker;
                joined.found.is_hidden = joined.found.has_marker && repairs_.hides(first);
                joined.found.is_directory = !joined.found.is_hidden;
            }
        });
    });
}

std::optional<Result<Entry>> Lookups::apply(NodeId parent_id, const std::string& name, const FoundName& found,
                                            ObjectContent content, const Asked& asked, bool may_ask_again) {
    if (found.is_directory && found.object) {
        report_hidden(found.object->key);
    }
    const NodeTable::Lock lock = state_.nodes.lock();
    const Result<NodePtr> parent = state_.directory(lock, parent_id);
    if (!parent) {
        return failure(parent.error());
    }
    // What this mount learned or did since the question was sent is newer than the answer.
    const NodePtr child = state_.nodes.child(lock, *parent, name);
    if (child != nullptr && (child->has_its_name_here() || child->checked > asked.when)) {
        return state_.entry(lock, *child);
    }
    if (state_.key(lock, **parent) + name != asked.key) {
        // The directory was renamed meanwhile: the answer is about another name.
        return may_ask_again ? std::nullopt
                             : std::optional<Result<Entry>>(failure(ESTALE, name + ": its directory is being renamed"));
    }
    const bool is_there = found.is_directory || found.object;
    if (is_there && child == nullptr &&
        NodeTable::was_removed_since(lock, **parent, name, asked.removal, may_ask_again)) {
        return std::nullopt;
    }
    // The directory has files that are not in the bucket yet: it is there again when they are.
    if (!is_there && child != nullptr && NodeTable::holds_writer(lock, *child, asked.when)) {
        return state_.entry(lock, *child);
    }
    if (found.is_directory) {
        return state_.entry(lock, *found_directory(lock, *parent, name, found.has_marker, asked.when));
    }
    if (found.object) {
        const ObjectVersion version = version_of(*found.object, content);
        return state_.entry(lock, *found_file(lock, *parent, name, version, asked.when));
    }
    if (child != nullptr && is_looked_up_again(lock, *child, asked.when)) {
        // The kernel does not look a third time, and must not find the name of a file that failed.
        state_.failed.looked_at(state_.key(lock, **parent) + name);
    }
    found_nothing(lock, *parent, name);
    return nothing_there(lock, *parent, name);
}

// A program that failed to write a file removes it, and that must succeed: so the name is found. A process that does
// anything else with it gets ESTALE; the kernel then repeats the lookup, and the name is gone.
Result<Entry> Lookups::nothing_there(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name) {
    if (!state_.failed.can_be_unlinked(state_.key(lock, *parent) + name)) {
        return failure(ENOENT, name + ": no such file");
    }
    const NodePtr node = state_.nodes.link_new(lock, parent, name, FileType::kFile);
    node->is_failed_name = true;
    Entry entry = state_.entry(lock, *node);
    entry.valid_for = entry.attributes.valid_for = Milliseconds(0);
    return entry;
}

void Lookups::look_at_failed_name(const NodeTable::Lock& lock, const NodePtr& node) {
    state_.failed.looked_at(state_.key(lock, *node));
    state_.nodes.unlink(lock, node);
}

NodePtr Lookups::found_file(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name,
                            const ObjectVersion& version, SteadyTime checked) {
    NodePtr node = state_.nodes.child(lock, parent, name);
    const bool same = node != nullptr && node->type == version.type &&
                      (node->has_its_name_here() || (node->committed && is_same_version(*node->committed, version)));
    if (!same) {
        node = state_.nodes.link_new(lock, parent, name, version.type);
    }
    if (node->writer == nullptr) {
        if (node->committed &&
            (node->committed->stored_size != version.stored_size || node->committed->size != version.size)) {
            // Another version with the ETag of the one before, or the metadata that describes it has changed.
            node->forget_pages();
            node->reader = nullptr;
        }
        node->committed = version;
    }
    node->checked = checked;
    return node;
}

NodePtr Lookups::found_directory(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name,
                                 bool has_marker, SteadyTime checked) {
    NodePtr node = state_.nodes.child(lock, parent, name);
    if (node == nullptr || node->type != FileType::kDirectory) {
        node = state_.nodes.link_new(lock, parent, name, FileType::kDirectory);
    }
    node->has_marker = has_marker;
    node->checked = checked;
    absent_.taken(parent->id, name);
    return node;
}

void Lookups::found_nothing(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name) {
    state_.nodes.expect_no_more(lock, *parent, name);
    state_.nodes.note_removal(lock, *parent, name);
    batches_.listed().forget(parent->id, name);
    if (const NodePtr node = state_.nodes.child(lock, parent, name)) {
        state_.nodes.unlink(lock, node);
    }
}

Status Lookups::may_be_taken(const NodeTable::Lock& lock, const Node& parent, const std::string& name) const {
    const std::string key = state_.key(lock, parent) + name;
    if (hidden_.has(key, state_.env.clock.now())) {
        return failure(EBUSY, key + ": a rename of this directory is not finished");
    }
    return {};
}

Status Lookups::may_be_taken(NodeId parent, const std::string& name) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Result<NodePtr> directory = state_.directory(lock, parent);
    return directory ? may_be_taken(lock, **directory, name) : Status{};
}

void Lookups::forget_listed_below(const NodeTable::Lock& lock, const Node& directory) {
    for (const NodeId id : batches_.listed().directories()) {
        const NodePtr node = state_.nodes.find(lock, id);
        if (node != nullptr && (node.get() == &directory || state_.nodes.is_below(lock, *node, directory))) {
            batches_.listed().forget_all(id);
        }
    }
    for (const NodeId id : absent_.directories()) {
        const NodePtr node = state_.nodes.find(lock, id);
        if (node == nullptr || node.get() == &directory || state_.nodes.is_below(lock, *node, directory)) {
            absent_.forget(id);
        }
    }
}

void Lookups::report_hidden(const std::string& key) {
    {
        MutexLock lock(reported_mutex_);
        if (reported_.size() >= kMaxReportedKeys || !reported_.insert(key).second) {
            return;
        }
    }
    log_warning("hidden: the key \"" + escaped(key) +
                "\" cannot be shown as a file; rename it in the bucket to see it");
}

}  // namespace ckptfs::fs
