// SPDX-License-Identifier: Apache-2.0
// Opening to read. What a handle then sees is in file_reads.h.
#include <utility>

#include "fs/files/open_files.h"
#include "read/block_cache.h"

namespace ckptfs::fs {

void OpenFiles::give_up_tables() {
    {
        // Freed without the lock.
        std::vector<std::shared_ptr<FileReader>> idle;
        const NodeTable::Lock lock = state_.nodes.lock();
        idle = state_.nodes.take_idle_readers(lock);
    }
    state_.env.read.cache.forget_closed();
}

void OpenFiles::open_for_reading(const OpenRequestPtr& request) {
    std::optional<Result<OpenedFile>> answer;
    std::shared_ptr<FileReader> known;
    std::string key;
    std::string etag;
    bool known_empty = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr& node = request->node;
        request->asked = state_.env.clock.now();
        key = request->key = state_.key(lock, *node);
        request->etag = node->committed ? node->committed->etag : "";
        if (node->writer != nullptr && node->writer->dirty()) {
            if (node->writer->readable() && !node->writer->failed() && !node->version->fate.left_by_killed_writer()) {
                answer = add_handle(lock, *request, nullptr, nullptr);
            } else if (node->writer->pristine() && !node->writer->failed() &&
                       (!node->committed || node->committed->etag.empty())) {
                // A lock file: there is nothing to read yet.
                answer = add_handle(lock, *request, nullptr, nullptr);
            } else if (node->writer->pristine() && !node->writer->failed() && node->committed->size == 0) {
                known_empty = true;
                etag = node->committed->etag;
            } else if (!node->committed) {
                answer = failure(EBUSY, key + " is being written; it can be read once it is closed");
            }
            // Else the bucket's version is opened: another mount may have replaced the version that this writer
            // replaces.
        } else if (request->expected && node->reader != nullptr) {
            answer = add_handle(lock, *request, nullptr, node->reader);
        } else if (request->is_gone) {
            // Opens whichever version has the name.
        } else if (node->reader != nullptr) {
            known = node->reader;
            etag = known->object().etag;
        } else if (node->committed && node->committed->stored_size == 0) {
            known_empty = true;
            etag = node->committed->etag;
        }
    }
    if (answer) {
        request->reply(std::move(*answer));
    } else if (known != nullptr || known_empty) {
        // All its bytes are known or may be in memory: ask only whether this version still has the name.
        state_.env.store.head(key, [this, request, known, key, etag](Result<ObjectInfo> object) {
            if (!object) {
                reader_opened(request, failure(std::move(object.error())));
            } else if (known != nullptr && object->size == known->object().size &&
                       is_same_version(object->etag, object->last_modified, known->object())) {
                known->is_there();
                reader_opened(request, known);
            } else {
                const bool same_and_empty = known == nullptr && object->etag == etag && object->size == 0;
                FileReader::open(state_.env.read, key, same_and_empty ? etag : "", same_and_empty,
                                 [this, request](auto reader) { reader_opened(request, std::move(reader)); });
            }
        });
    } else {
        FileReader::open_latest(state_.env.read, key, request->etag,
                                [this, request](auto reader) { reader_opened(request, std::move(reader)); });
    }
}

void OpenFiles::reader_opened(const OpenRequestPtr& request, Result<std::shared_ptr<FileReader>> reader) {
    if (reader && asks_for_backing(*request, *reader)) {
        ask_for_backing(request, *reader);
        return;
    }
    Result<OpenedFile> answer = failure(EIO, "not opened");
    bool ask_again = false;
    bool is_damaged = false;
    std::string commits_to;
    std::shared_ptr<FileWriter> settles;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr& node = request->node;
        if (is_outdated(lock, *request)) {
            ask_again = true;
        } else if (!reader && reader.error().errno_value == ESTALE && (node->linked || request->expected) &&
                   ++request->attempts < kMostAttempts) {
            // The kernel looks again once only, and that is needed for the node of the version that is there.
            ask_again = request->is_gone = true;
        } else if (!reader) {
            answer = not_found_or(lock, node, std::move(reader.error()));
        } else if (node->committed && node->committed->size == (*reader)->size() &&
                   is_same_version(node->committed->etag, node->committed->modified, (*reader)->object())) {
            node->reader = *reader;
            node->was_there(request->asked);
            const bool is_to_look_again = node->has_uncertain_size && node->linked && node->writer == nullptr;
            answer = is_to_look_again && !request->expected
                         ? give_new_node(lock, node, *node->committed, *reader, expectation(*request))
                         : Result<OpenedFile>(add_handle(lock, *request, nullptr, *reader));
        } else if (node->committed && !node->committed->etag.empty() &&
                   node->committed->etag == (*reader)->object().etag && !std::exchange(request->is_read_anew, true)) {
            // A version has one size: the node's, or the reader's, came damaged; or its metadata has changed.
            node->reader = nullptr;
            node->forget_pages();
            ask_again = is_damaged = true;
        } else if (node->linked && node->writer != nullptr && node->is_live_log && node->writer->may_have_committed() &&
                   !std::exchange(request->is_settled, true)) {
            settles = node->writer;
        } else if (node->linked && node->is_being_changed() && ++request->attempts < kMostAttempts) {
            // A version that this node's writer is committing just now; the reply is not here yet.
            commits_to = (*reader)->object().key;
        } else if (node->linked && node->is_being_changed()) {
            answer = add_handle_on_other_version(lock, *request, *reader);
        } else if (request->expected && !node->removed && node->reader != nullptr && node->open_handles > 0) {
            // Another caller was faster.
            answer = add_handle(lock, *request, nullptr, node->reader);
        } else if (may_take_version(lock, *request)) {
            answer = change_node(lock, *request, *reader);
        } else if (node->linked) {
            answer = give_new_node(lock, node, version_read_by(**reader), *reader, expectation(*request));
        } else {
            expect_again(lock, *request, (*reader)->object().etag);
            answer = failure(ESTALE, "the file is gone");
        }
    }
    if (is_damaged) {
        // The reader's table is not used again.
        reader = failure(EIO, "of another size");
        state_.env.read.cache.forget_closed();
    }
    if (settles != nullptr) {
        commits_.commit_in_order(request->node, settles, CommitReason::kPublish,
                                 [this, request](const Status& /*logged*/) { open_for_reading(request); });
    } else if (!commits_to.empty()) {
        const KeyOrder::Place place = state_.key_order.enter({commits_to});
        state_.key_order.when_first(place, [this, request, place] {
            state_.key_order.leave(place);
            open_for_reading(request);
        });
    } else if (ask_again) {
        open_for_reading(request);
    } else {
        request->reply(std::move(answer));
    }
}

ObjectVersion OpenFiles::version_read_by(const FileReader& reader) {
    const ObjectInfo& object = reader.object();
    const ObjectContent content = content_of(object, reader.size());
    state_.contents.remember(object.key, object.etag, content);
    return version_of(object, content);
}

Result<OpenedFile> OpenFiles::change_node(const NodeTable::Lock& lock, OpenRequest& request,
                                          const std::shared_ptr<FileReader>& reader) {
    const ObjectVersion version = version_read_by(*reader);
    if (version.type != request.node->type) {
        return give_new_node(lock, request.node, version, reader, expectation(request));
    }
    take_version(lock, request, version, reader);
    return add_handle(lock, request, nullptr, reader);
}

bool OpenFiles::is_outdated(const NodeTable::Lock& lock, OpenRequest& request) const {
    const Node& node = *request.node;
    const bool is_another =
        (node.committed && node.committed->etag != request.etag) || state_.key(lock, node) != request.key;
    return node.linked && is_another && ++request.attempts < kMostAttempts;
}

}  // namespace ckptfs::fs
