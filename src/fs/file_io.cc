// SPDX-License-Identifier: Apache-2.0
// What happens on an open handle: reads, writes, and commits. Which close is one is decided in closing.cc.
#include <fcntl.h>

#include <utility>

#include "ckptfs/log.h"
#include "fs/open_files.h"
#include "fs/paths.h"

namespace ckptfs {

namespace {

Failure bad_handle() {
    return failure(EBADF, "not an open file");
}

}  // namespace

// --- reading

void OpenFiles::read(HandleId id, std::uint64_t offset, std::size_t size, Reply<Payload> reply) {
    const HandlePtr handle = handles_.find(id);
    if (handle == nullptr) {
        reply(bad_handle());
        return;
    }
    if (handle->changing != nullptr) {
        handle->changing->read(offset, size, [this, reply = std::move(reply)](Result<Payload> data) {
            counters_.read(data ? data->size() : 0);
            reply(std::move(data));
        });
    } else {
        read_with(handle, offset, size, true, std::move(reply));
    }
}

void OpenFiles::read_with(const HandlePtr& handle, std::uint64_t offset, std::size_t size, bool may_reopen,
                          Reply<Payload> reply) {
    std::shared_ptr<FileReader> reader;
    std::shared_ptr<ReadStream> stream;
    {
        std::lock_guard lock(handle->mutex);
        reader = handle->reader;
        stream = handle->stream;
    }
    if (reader == nullptr || (may_reopen && offset + size > reader->size())) {
        if (reopen_and_read(handle, reader, offset, size, reply)) {
            return;
        }
        if (reader == nullptr) {
            reply(failure(EOPNOTSUPP, "what is being written cannot be read before it is closed or synced"));
            return;
        }
    }
    reader->read(stream, offset, size, [this, handle, reader, offset, size, may_reopen, reply](Result<Payload> data) {
        const bool gone = !data && data.error().errno_value == ESTALE;
        if (gone && may_reopen && reopen_and_read(handle, reader, offset, size, reply)) {
            return;
        }
        if (data) {
            counters_.read(data->size());
            handle->read_until = offset + data->size();
            handle->last_read = state_.env.clock.now();
        } else {
            log_error(escaped(data.error().message));
        }
        reply(std::move(data));
    });
}

// The same file may have got another key by a rename on this mount, or grown by a commit of this node's writer, since
// `reader` was opened. False where there is nothing newer, and then `reply` is not used.
bool OpenFiles::reopen_and_read(const HandlePtr& handle, const std::shared_ptr<FileReader>& reader,
                                std::uint64_t offset, std::size_t size, const Reply<Payload>& reply) {
    std::string key;
    std::string etag;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const Node& node = *handle->node;
        if (!node.linked || !node.committed) {
            return false;
        }
        key = state_.key(lock, node);
        etag = node.committed->etag;
    }
    if (reader != nullptr && reader->object().key == key && reader->object().etag == etag) {
        return false;
    }
    FileReader::open(state_.env.read, key, etag, false,
                     [this, handle, offset, size, reply](Result<std::shared_ptr<FileReader>> opened) {
                         if (!opened) {
                             reply(failure(std::move(opened.error())));
                             return;
                         }
                         {
                             std::lock_guard lock(handle->mutex);
                             handle->stream = (*opened)->open_stream();
                             handle->reader = std::move(*opened);
                         }
                         read_with(handle, offset, size, false, reply);
                     });
    return true;
}

// --- writing

void OpenFiles::write(HandleId id, std::uint64_t offset, WriteData data, Caller caller, Reply<void> reply) {
    const HandlePtr handle = handles_.find(id);
    if (handle == nullptr || handle->writer == nullptr) {
        reply(bad_handle());
        return;
    }
    if (handle->node->removed && (handle->writer->failed() || !handle->writer->readable())) {
        reply({});
        return;
    }
    note_writer(*handle, caller);
    counters_.written(data.data.size());
    const VersionFate::Generation noted = handle->version->fate.generation();
    if ((handle->flags & O_APPEND) != 0) {
        handle->writer->append(std::move(data), std::move(reply));
    } else {
        handle->writer->write(offset, std::move(data), std::move(reply));
    }
    if (handle->version->fate.generation() != noted) {
        note_writer(*handle, caller);
    }
}

void OpenFiles::commit_in_order(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, CommitReason reason,
                                Reply<void> reply) {
    const bool publishes = writer->dirty() && !(reason == CommitReason::kFsync && writer->pristine());
    if (publishes && gate_.is_marker(writer->key())) {
        commit_marker(node, writer, reason, std::move(reply));
    } else {
        commit_when_first(node, writer, reason, std::move(reply));
    }
}

void OpenFiles::commit_when_first(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, CommitReason reason,
                                  Reply<void> reply) {
    const std::string key = writer->key();
    const KeyOrder::Place place = state_.key_order.enter({key});
    state_.key_order.when_first(place, [this, node, writer, reason, key, place, reply = std::move(reply)] {
        const auto leave = [this, place] { state_.key_order.leave(place); };
        if (writer->key() == key) {
            commit(node, writer, reason, reply, leave);
            return;
        }
        // Renamed meanwhile: there is another line to wait in.
        leave();
        commit_when_first(node, writer, reason, reply);
    });
}

void OpenFiles::commit(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, CommitReason reason,
                       Reply<void> reply, std::function<void()> ended) {
    const std::shared_ptr<WrittenVersion> version = written_version_of(node, writer);
    if (version != nullptr && version->fate.left_by_killed_writer()) {
        reply(failure(lost_error(*writer)));
        ended();
        return;
    }
    const VersionFate::Generation begun = version != nullptr ? version->fate.commit_begins() : 0;
    writer->commit(reason, [this, node, writer, version, begun, reply = std::move(reply),
                            ended = std::move(ended)](Result<CommittedObject> object) {
        if (object) {
            // fsync before the first write publishes nothing.
            if (version != nullptr && !object->etag.empty()) {
                version->fate.committed(begun);
            }
            state_.contents.remember(writer->key(), object->etag, {FileType::kFile, object->size});
            note_committed(node, *object);
            if (!object->etag.empty()) {
                state_.failed.clear(writer->key(), [] {});
            }
            reply({});
            ended();
            return;
        }
        reply(failure(object.error()));
        // It may have been given up while its last request was in flight.
        writer->abort(std::move(object.error()), [ended](const Status&) { ended(); });
    });
}

void OpenFiles::note_committed(const NodePtr& node, const CommittedObject& object) {
    // fsync before the first write publishes nothing.
    if (object.etag.empty()) {
        return;
    }
    bool pages_are_old = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (node->committed && node->committed->etag == object.etag) {
            return;
        }
        counters_.committed(object.size, object.stored_size);
        node->committed = ObjectVersion{object.etag, object.size, object.stored_size, object.modified};
        node->reader = nullptr;
        pages_are_old = !std::exchange(node->pages_etag, "").empty();
        const SteadyTime now = state_.env.clock.now();
        node->checked = node->linked ? now : SteadyTime{};
        if (!node->linked) {
            // The name has another node by now, and the bucket this commit: the next lookup has to ask.
            if (const NodePtr current = state_.nodes.child(lock, node->parent, node->name)) {
                current->checked = SteadyTime{};
            }
        }
    }
    if (pages_are_old) {
        state_.env.kernel_cache.invalidate_inode(node->id);
    }
}

void OpenFiles::truncate(NodeId id, std::optional<HandleId> handle_id, std::uint64_t size, Reply<Attributes> reply) {
    const HandlePtr handle = handle_id ? handles_.find(*handle_id) : nullptr;
    NodePtr node;
    std::shared_ptr<FileWriter> writer = handle != nullptr ? handle->writer : nullptr;
    bool temporary = false;
    Status possible = may_write();
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        node = state_.nodes.find(lock, id);
        if (node == nullptr || node->type != FileType::kFile) {
            possible = failure(node == nullptr ? ESTALE : EISDIR, "not a file that can be truncated");
        } else if (writer == nullptr) {
            writer = node->writer;
        }
        if (possible && writer != nullptr && node->writer == writer) {
            handle != nullptr ? node->version->fate.made(handle->opener) : node->version->fate.changed_by_mapping();
        }
        const ObjectVersion version = node != nullptr ? node->committed.value_or(ObjectVersion{}) : ObjectVersion{};
        if (possible && writer == nullptr && version.size != size) {
            // truncate(2) by name: published at once.
            temporary = true;
            writer = state_.make_writer(state_.key(lock, *node), O_RDWR, committed_object(version));
        }
    }
    const auto answer = [this, node, reply](const Status& done) {
        if (!done) {
            reply(failure(done.error()));
            return;
        }
        Attributes attributes;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            attributes = state_.attributes(lock, *node);
        }
        reply(attributes);
    };
    if (!possible || writer == nullptr) {
        answer(possible);
    } else if (temporary) {
        writer->truncate(size, [this, node, writer, answer](const Status& cut) {
            if (cut) {
                commit_in_order(node, writer, CommitReason::kClose, answer);
            } else {
                answer(cut);
            }
        });
    } else {
        writer->truncate(size, answer);
    }
}

}  // namespace ckptfs
