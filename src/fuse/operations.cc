// SPDX-License-Identifier: Apache-2.0
#include "fuse/operations.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fuse/directory_reply.h"
#include "fuse/replies.h"

namespace ckptfs {
namespace {

Serving& serving(fuse_req_t req) {
    return *static_cast<Serving*>(fuse_req_userdata(req));
}

fs::Caller caller_of(fuse_req_t req) {
    const fuse_ctx* context = fuse_req_ctx(req);
    return fs::Caller{context->pid, context->uid, context->gid, false, nullptr};
}

// What an operation needs of its fuse_req_t, read before the request can be interrupted: from then on an INTERRUPT on
// another worker may answer it, and libfuse then frees it. So an operation that begins uses its fuse_req_t no more.
struct Begun {
    Serving& serving;
    fs::Caller caller;
    // Empty if it has been answered already.
    std::shared_ptr<PendingRequest> request;

    explicit operator bool() const { return request != nullptr; }
    [[nodiscard]] fs::FileOperations& files() const { return *serving.fs; }
};

Begun begin(fuse_req_t req, Interrupts interrupts = Interrupts::kHonoured) {
    Serving& s = serving(req);
    fs::Caller caller = caller_of(req);
    return Begun{s, std::move(caller), PendingRequest::begin(req, *s.processes, s.interrupts, interrupts)};
}

std::optional<fs::HandleId> handle_of(const fuse_file_info* info) {
    return info == nullptr ? std::nullopt : std::optional<fs::HandleId>(info->fh);
}

fs::Reply<void> status_reply(std::shared_ptr<PendingRequest> request) {
    return
        [request = std::move(request)](Status result) { result ? request->success() : request->error(result.error()); };
}

fs::Reply<fs::Attributes> attributes_reply(std::shared_ptr<PendingRequest> request) {
    return [request = std::move(request)](Result<fs::Attributes> result) {
        result ? request->attributes(*result) : request->error(result.error());
    };
}

// The kernel counts a lookup for every entry it is given.
fs::Reply<fs::Entry> entry_reply(fs::FileOperations& fs, std::shared_ptr<PendingRequest> request) {
    return [&fs, request = std::move(request)](Result<fs::Entry> result) {
        if (!result) {
            request->error(result.error());
        } else if (!request->entry(*result)) {
            fs.forget(result->node, 1);
        }
    };
}

void op_init(void* /*userdata*/, fuse_conn_info* connection) {
    // Requests in the background: read-ahead above all, which the default of 12 throttles.
    constexpr unsigned kMaxBackground = 256;
    constexpr unsigned kCongestionThreshold = 192;
    const auto want = [connection](unsigned capability) { connection->want |= connection->capable & capability; };
    connection->max_write = BufferPool::kPayloadSize;
    connection->max_background = kMaxBackground;
    connection->congestion_threshold = kCongestionThreshold;
    want(FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC);
    // Every page of a listing comes with its attributes (one list request brings both), so that no name needs a lookup
    // of its own; READDIRPLUS_AUTO would ask for them in the first page only.
    want(FUSE_CAP_READDIRPLUS);
    // A node is one version of an object: its pages are dropped when open says so and not when mtime moves, which it
    // does for a writer's own file.
    want(FUSE_CAP_EXPLICIT_INVAL_DATA);
    // Success reported before the data has left the kernel's cache is a lie; splice costs more than it saves. With
    // ASYNC_DIO the kernel sends all requests of one direct write at once, and several threads take them in any order:
    // what is appended would change places.
    connection->want &= ~static_cast<unsigned>(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_READDIRPLUS_AUTO |
                                               FUSE_CAP_ASYNC_DIO | FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_EXPORT_SUPPORT |
                                               FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
    if (Begun begun = begin(req)) {
        fs::FileOperations& fs = begun.files();
        fs.lookup(parent, name, begun.caller, entry_reply(fs, std::move(begun.request)));
    }
}

void op_forget(fuse_req_t req, fuse_ino_t node, std::uint64_t lookups) {
    serving(req).fs->forget(node, lookups);
    fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, std::size_t count, fuse_forget_data* forgets) {
    for (std::size_t i = 0; i < count; ++i) {
        serving(req).fs->forget(forgets[i].ino, forgets[i].nlookup);
    }
    fuse_reply_none(req);
}

void op_getattr(fuse_req_t req, fuse_ino_t node, fuse_file_info* info) {
    if (Begun begun = begin(req)) {
        begun.files().getattr(node, handle_of(info), begun.caller.thread, attributes_reply(std::move(begun.request)));
    }
}

void op_setattr(fuse_req_t req, fuse_ino_t node, struct stat* attributes, int to_set, fuse_file_info* info) {
    Begun begun = begin(req);
    if (!begun) {
        return;
    }
    fs::AttributeChange change;
    if ((to_set & FUSE_SET_ATTR_SIZE) != 0) {
        change.size = static_cast<std::uint64_t>(attributes->st_size);
    }
    if ((to_set & FUSE_SET_ATTR_MTIME_NOW) != 0) {
        change.modified = begun.serving.clock->wall_now();
    } else if ((to_set & FUSE_SET_ATTR_MTIME) != 0) {
        change.modified = WallTime(std::chrono::duration_cast<WallTime::duration>(
            std::chrono::seconds(attributes->st_mtim.tv_sec) + std::chrono::nanoseconds(attributes->st_mtim.tv_nsec)));
    }
    if ((to_set & FUSE_SET_ATTR_MODE) != 0) {
        change.mode = attributes->st_mode & 07777U;
    }
    if ((to_set & FUSE_SET_ATTR_UID) != 0) {
        change.uid = attributes->st_uid;
    }
    if ((to_set & FUSE_SET_ATTR_GID) != 0) {
        change.gid = attributes->st_gid;
    }
    begun.files().setattr(node, handle_of(info), change, attributes_reply(std::move(begun.request)));
}

void op_getxattr(fuse_req_t req, fuse_ino_t node, const char* name, std::size_t size) {
    if (Begun begun = begin(req)) {
        begun.files().get_extended(node, name, [size, request = std::move(begun.request)](Result<std::string> value) {
            value ? request->extended(*value, size) : request->error(value.error());
        });
    }
}

void op_listxattr(fuse_req_t req, fuse_ino_t node, std::size_t size) {
    Begun begun = begin(req);
    if (!begun) {
        return;
    }
    fs::FileOperations& fs = begun.files();
    fs.list_extended(node, [size, request = std::move(begun.request)](Result<std::vector<std::string>> result) {
        if (!result) {
            request->error(result.error());
            return;
        }
        std::string names;
        for (const std::string& name : *result) {
            names += name;
            names += '\0';
        }
        request->extended(names, size);
    });
}

// Not ENOSYS: the kernel would treat that as the reply of the whole filesystem and ask for no attribute any more.
void op_setxattr(fuse_req_t req, fuse_ino_t /*node*/, const char* /*name*/, const char* /*value*/, std::size_t /*size*/,
                 int /*flags*/) {
    fuse_reply_err(req, EOPNOTSUPP);
}

void op_removexattr(fuse_req_t req, fuse_ino_t node, const char* name) {
    if (Begun begun = begin(req)) {
        begun.files().remove_extended(node, name, status_reply(std::move(begun.request)));
    }
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t /*mode*/) {
    if (Begun begun = begin(req)) {
        fs::FileOperations& fs = begun.files();
        fs.mkdir(parent, name, entry_reply(fs, std::move(begun.request)));
    }
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char* name) {
    if (Begun begun = begin(req)) {
        begun.files().rmdir(parent, name, status_reply(std::move(begun.request)));
    }
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char* name) {
    if (Begun begun = begin(req)) {
        begun.files().unlink(parent, name, status_reply(std::move(begun.request)));
    }
}

void op_symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
    if (Begun begun = begin(req)) {
        fs::FileOperations& fs = begun.files();
        fs.symlink(parent, name, target, std::move(begun.caller), entry_reply(fs, std::move(begun.request)));
    }
}

void op_readlink(fuse_req_t req, fuse_ino_t node) {
    if (Begun begun = begin(req)) {
        begun.files().readlink(node, [request = std::move(begun.request)](Result<std::string> target) {
            target ? static_cast<void>(request->bytes(*target)) : static_cast<void>(request->error(target.error()));
        });
    }
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t new_parent, const char* new_name,
               unsigned flags) {
    if (Begun begun = begin(req)) {
        begun.caller.has_left = PendingRequest::answered_flag(begun.request);
        begun.files().rename(parent, name, new_parent, new_name, flags, std::move(begun.caller),
                             status_reply(std::move(begun.request)));
    }
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t /*mode*/, fuse_file_info* info) {
    Begun begun = begin(req);
    if (!begun) {
        return;
    }
    fs::FileOperations& fs = begun.files();
    fs.create_file(parent, name, info->flags, std::move(begun.caller),
                   [&fs, info = *info, request = std::move(begun.request)](Result<fs::CreatedFile> result) {
                       if (!result) {
                           request->error(result.error());
                       } else if (!request->created(*result, info)) {
                           fs.disown(result->opened.handle);
                           fs.forget(result->entry.node, 1);
                       }
                   });
}

void op_open(fuse_req_t req, fuse_ino_t node, fuse_file_info* info) {
    Begun begun = begin(req);
    if (!begun) {
        return;
    }
    fuse_file_info reply = *info;
    // Closing what cannot write has nothing to report: no FLUSH.
    reply.noflush = (info->flags & O_ACCMODE) == O_RDONLY && (info->flags & O_TRUNC) == 0 ? 1 : 0;
    fs::FileOperations& fs = begun.files();
    fs.open(node, info->flags, std::move(begun.caller),
            [&fs, reply, request = std::move(begun.request)](Result<fs::OpenedFile> result) {
                if (!result) {
                    request->error(result.error());
                } else if (!request->opened(*result, reply)) {
                    fs.disown(result->handle);
                }
            });
}

void op_read(fuse_req_t req, fuse_ino_t /*node*/, std::size_t size, off_t offset, fuse_file_info* info) {
    if (Begun begun = begin(req)) {
        begun.files().read(info->fh, static_cast<std::uint64_t>(offset), size,
                           [request = std::move(begun.request)](Result<Payload> result) {
                               result ? request->data(*result) : request->error(result.error());
                           });
    }
}

void op_write_buf(fuse_req_t req, fuse_ino_t /*node*/, fuse_bufvec* received, off_t offset, fuse_file_info* info) {
    Begun begun = begin(req);
    if (!begun) {
        return;
    }
    // Without splice the data is one piece in the buffer that the request was received into, and stays there.
    const ByteSpan data(static_cast<const std::byte*>(received->buf[0].mem), received->buf[0].size);
    fs::FileOperations& fs = begun.files();
    const std::shared_ptr<PendingRequest> request = std::move(begun.request);
    fs::Caller caller = std::move(begun.caller);
    caller.is_page_cache = info->writepage != 0;
    caller.has_left = PendingRequest::answered_flag(request);
    // The flags that the descriptor has by now, and those of this write: direct I/O leaves it to the daemon to sync.
    caller.in_place = (info->flags & O_APPEND) == 0;
    const bool is_synchronous = (info->flags & O_DSYNC) != 0 && !caller.is_page_cache;
    begun.serving.hand_over(
        data, [request] { return !request->answered(); },
        [&fs, handle = info->fh, offset, caller = std::move(caller), size = data.size(), is_synchronous,
         request](Result<WriteData> write) {
            if (!write) {
                request->error(write.error());
                return;
            }
            // Its data may have waited on the disk until now.
            if (request->answered()) {
                return;
            }
            const auto answer = [size, request](const Status& result) {
                result ? request->written(size) : request->error(result.error());
            };
            fs.write(handle, static_cast<std::uint64_t>(offset), std::move(*write), caller,
                     [&fs, handle, is_synchronous, answer](const Status& result) {
                         const bool is_to_be_synced = result && is_synchronous;
                         is_to_be_synced ? fs.fsync(handle, answer) : answer(result);
                     });
        });
}

// A killed writer's FLUSH arrives together with its INTERRUPT, and RELEASE follows the reply: the filesystem has to
// know first that the writer was killed, or it would publish what RELEASE leaves, or others sync.
void op_flush(fuse_req_t req, fuse_ino_t /*node*/, fuse_file_info* info) {
    if (Begun begun = begin(req, Interrupts::kHeldBack)) {
        const std::shared_ptr<PendingRequest> request = std::move(begun.request);
        fs::Caller caller = std::move(begun.caller);
        caller.interrupted = [request] { return request->was_interrupted(); };
        caller.settled = [request, &interrupts = begun.serving.interrupts] {
            request->honour_interrupts();
            // For a writer that died of a fault no INTERRUPT comes.
            if (!request->answered()) {
                interrupts.add(request);
            }
        };
        begun.files().flush(info->fh, std::move(caller), status_reply(request));
    }
}

void op_fsync(fuse_req_t req, fuse_ino_t /*node*/, int /*data_only*/, fuse_file_info* info) {
    if (Begun begun = begin(req)) {
        begun.files().fsync(info->fh, status_reply(std::move(begun.request)));
    }
}

// No process waits for the reply to RELEASE, but until it comes it takes one of the background slots.
void op_release(fuse_req_t req, fuse_ino_t /*node*/, fuse_file_info* info) {
    fs::FileOperations& fs = *serving(req).fs;
    const fs::HandleId handle = info->fh;
    fuse_reply_err(req, 0);
    fs.release(handle, [](const Status& /*logged*/) {});
}

void op_opendir(fuse_req_t req, fuse_ino_t node, fuse_file_info* info) {
    Begun begun = begin(req);
    if (!begun) {
        return;
    }
    fs::FileOperations& fs = begun.files();
    fs.open_directory(node, [&fs, info = *info, request = std::move(begun.request)](Result<fs::HandleId> result) {
        if (!result) {
            request->error(result.error());
        } else if (!request->opened_directory(*result, info)) {
            fs.release_directory(*result);
        }
    });
}

void read_directory(fuse_req_t req, std::size_t size, off_t offset, const fuse_file_info* info, bool with_attributes) {
    Begun begun = begin(req);
    if (!begun) {
        return;
    }
    fs::FileOperations& fs = begun.files();
    const std::shared_ptr<PendingRequest> request = std::move(begun.request);
    fs.read_directory(info->fh, static_cast<std::uint64_t>(offset), entries_that_fit(size, with_attributes),
                      with_attributes,
                      [&fs, size, with_attributes, request](Result<std::vector<fs::DirectoryEntry>> result) {
                          result ? reply_directory(fs, *request, *result, size, with_attributes)
                                 : static_cast<void>(request->error(result.error()));
                      });
}

void op_readdir(fuse_req_t req, fuse_ino_t /*node*/, std::size_t size, off_t offset, fuse_file_info* info) {
    read_directory(req, size, offset, info, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t /*node*/, std::size_t size, off_t offset, fuse_file_info* info) {
    read_directory(req, size, offset, info, true);
}

void op_releasedir(fuse_req_t req, fuse_ino_t /*node*/, fuse_file_info* info) {
    serving(req).fs->release_directory(info->fh);
    fuse_reply_err(req, 0);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t node, int /*data_only*/, fuse_file_info* /*info*/) {
    if (Begun begun = begin(req)) {
        begun.files().sync_directory(node, status_reply(std::move(begun.request)));
    }
}

void op_statfs(fuse_req_t req, fuse_ino_t /*node*/) {
    const struct statvfs statistics = serving(req).fs->statfs();
    fuse_reply_statfs(req, &statistics);
}

void op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t new_parent, const char* new_name) {
    if (Begun begun = begin(req)) {
        fs::FileOperations& fs = begun.files();
        fs.link(node, new_parent, new_name, std::move(begun.caller), entry_reply(fs, std::move(begun.request)));
    }
}

// EPERM is what mknod(2) names for a filesystem that does not support it.
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t /*device*/) {
    if (!S_ISSOCK(mode) && !S_ISFIFO(mode)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    if (Begun begun = begin(req)) {
        fs::FileOperations& fs = begun.files();
        fs.make_special(parent, name, S_ISSOCK(mode) ? fs::FileType::kSocket : fs::FileType::kFifo, mode & 07777U,
                        std::move(begun.caller), entry_reply(fs, std::move(begun.request)));
    }
}

void op_ioctl(fuse_req_t req, fuse_ino_t /*node*/, unsigned /*command*/, void* /*argument*/, fuse_file_info* /*info*/,
              unsigned /*flags*/, const void* /*input*/, std::size_t /*input_size*/, std::size_t /*output_size*/) {
    fuse_reply_err(req, ENOTTY);
}

fuse_lowlevel_ops make_operations() {
    fuse_lowlevel_ops ops{};
    ops.init = op_init;
    ops.lookup = op_lookup;
    ops.forget = op_forget;
    ops.forget_multi = op_forget_multi;
    ops.getattr = op_getattr;
    ops.setattr = op_setattr;
    ops.getxattr = op_getxattr;
    ops.listxattr = op_listxattr;
    ops.setxattr = op_setxattr;
    ops.removexattr = op_removexattr;
    ops.mkdir = op_mkdir;
    ops.rmdir = op_rmdir;
    ops.unlink = op_unlink;
    ops.rename = op_rename;
    ops.create = op_create;
    ops.open = op_open;
    ops.read = op_read;
    ops.write_buf = op_write_buf;
    ops.flush = op_flush;
    ops.fsync = op_fsync;
    ops.release = op_release;
    ops.opendir = op_opendir;
    ops.readdir = op_readdir;
    ops.readdirplus = op_readdirplus;
    ops.releasedir = op_releasedir;
    ops.fsyncdir = op_fsyncdir;
    ops.statfs = op_statfs;
    ops.link = op_link;
    ops.symlink = op_symlink;
    ops.readlink = op_readlink;
    ops.mknod = op_mknod;
    ops.ioctl = op_ioctl;
    return ops;
}

}  // namespace

const fuse_lowlevel_ops& fuse_operations() {
    static const fuse_lowlevel_ops kOperations = make_operations();
    return kOperations;
}

}  // namespace ckptfs
