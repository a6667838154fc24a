// SPDX-License-Identifier: Apache-2.0
#include "fs/files/extended_attributes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace ckptfs::fs {
namespace {

constexpr std::string_view kCodec = "user.ckptfs.codec";
constexpr std::string_view kStoredSize = "user.ckptfs.stored_size";
constexpr std::string_view kEtag = "user.ckptfs.etag";
constexpr std::string_view kKept = "user.ckptfs.kept";
constexpr std::array kNames{kCodec, kStoredSize, kEtag};

Failure no_such_attribute() {
    return failure(ENODATA, "there is no such extended attribute");
}

}  // namespace

Result<ExtendedAttributes::Committed> ExtendedAttributes::committed(NodeId id) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const NodePtr node = state_.nodes.find(lock, id);
    if (node == nullptr) {
        return failure(ESTALE, "the file is gone");
    }
    if (!node->committed) {
        return no_such_attribute();
    }
    return Committed{state_.key(lock, *node), *node->committed};
}

void ExtendedAttributes::get(NodeId node, std::string_view name, Reply<std::string> reply) {
    // The kernel asks for security.capability before it writes.
    FileCache* const files = state_.env.read.files;
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end() && (name != kKept || files == nullptr)) {
        reply(no_such_attribute());
        return;
    }
    Result<Committed> object = committed(node);
    if (!object) {
        reply(failure(std::move(object.error())));
    } else if (name == kStoredSize) {
        reply(std::to_string(object->version.stored_size));
    } else if (name == kEtag) {
        reply(std::move(object->version.etag));
    } else if (name == kKept) {
        describe(*object, [files, reply = std::move(reply)](Result<ObjectInfo> info) {
            if (!info) {
                reply(failure(std::move(info.error())));
            } else {
                files->bytes_kept(*info, [reply](std::uint64_t bytes) { reply(std::to_string(bytes)); });
            }
        });
    } else {
        find_codec(std::move(*object), std::move(reply));
    }
}

void ExtendedAttributes::remove(NodeId node, std::string_view name, Reply<void> reply) {
    FileCache* const files = state_.env.read.files;
    if (name != kKept || files == nullptr) {
        reply(failure(EOPNOTSUPP, "cannot be changed"));
        return;
    }
    const Result<Committed> object = committed(node);
    if (!object) {
        reply(failure(object.error()));
        return;
    }
    describe(*object, [files, reply = std::move(reply)](Result<ObjectInfo> info) {
        if (!info) {
            reply(failure(std::move(info.error())));
            return;
        }
        files->drop(*info, [reply](bool is_dropped) {
            reply(is_dropped ? Status() : failure(EBUSY, "it is in use, or the disk does not answer"));
        });
    });
}

void ExtendedAttributes::describe(const Committed& object, Reply<ObjectInfo> reply) {
    state_.env.store.head(object.key, [etag = object.version.etag, reply = std::move(reply)](Result<ObjectInfo> head) {
        if (head && head->etag != etag) {
            reply(failure(ESTALE, "another version of the file is in the bucket by now"));
        } else {
            reply(std::move(head));
        }
    });
}

void ExtendedAttributes::find_codec(Committed object, Reply<std::string> reply) {
    const Codec& codec = state_.env.codec;
    if (!codec.may_be_encoded(object.version.stored_size)) {
        reply(codec.format_name(ObjectInfo{}));
        return;
    }
    describe(object, [&codec, reply = std::move(reply)](Result<ObjectInfo> head) {
        head ? reply(codec.format_name(*head)) : reply(failure(std::move(head.error())));
    });
}

void ExtendedAttributes::list(NodeId node, Reply<std::vector<std::string>> reply) {
    const Result<Committed> object = committed(node);
    if (!object && object.error().errno_value != ENODATA) {
        reply(failure(object.error()));
    } else {
        // Not what is kept: that belongs to this node, and a program that copies all attributes would wait for the
        // store and the disk.
        reply(object ? std::vector<std::string>(kNames.begin(), kNames.end()) : std::vector<std::string>());
    }
}

}  // namespace ckptfs::fs
