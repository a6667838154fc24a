// SPDX-License-Identifier: Apache-2.0
// The places on a disk where mounts acknowledge changes (--ack disk), and who has which.
//
// CACHE-DIR/unsent/HASH-N/ belongs to one mount at a time of one server, bucket and prefix (HASH): the one that holds
// its lock. Mounts signal each other by files beside the lock, because the mount that has it may be in another
// container.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/periodic.h"
#include "ckptfs/clock.h"
#include "ckptfs/status.h"

namespace ckptfs {

// A directory CACHE-DIR/unsent/HASH-N/ that is locked.
struct UnsentPlace {
    std::string directory;
    // Held until the last copy is gone.
    std::shared_ptr<const FileDescriptor> lock;
};
// Locks the places of a source: the first is for this mount, the others hold something that was left. It
// notes its mount point in all of them. Waits for places of mounts that are about to end. `source`:
// "https://HOST/BUCKET/PREFIX"
Result<std::vector<UnsentPlace>> lock_unsent_places(const std::string& cache_dir, const std::string& source,
                                                    const std::string& mount_point);

// By the mount that has the place: it is about to end, and asks for no place itself any more.
void tell_of_end(const UnsentPlace& place);
// Whether another mount waits for it. A mount that is killed while it waits wants nothing.
[[nodiscard]] bool is_wanted(const UnsentPlace& place);

// Looks every ten seconds for places of the same source that no mount has and that hold something: of a mount at the
// same mount point that still lived when this one began (umount -l), and has ended since without having sent all. The
// next mount sends it; this one only says so.
//
// Threads: looks on a detached thread, one at a time: the disk may not answer. The rest from any thread.
class LeftPlaces {
public:
    // `own`: the place of this mount.
    LeftPlaces(Timer& timer, const UnsentPlace& own);
    // Does not wait for a look.
    ~LeftPlaces();
    LeftPlaces(const LeftPlaces&) = delete;
    LeftPlaces& operator=(const LeftPlaces&) = delete;

    // How many there were at the last look.
    [[nodiscard]] std::uint64_t count() const;

private:
    struct Look;

    const std::shared_ptr<Look> look_;
    const std::unique_ptr<Periodic> periodic_;
};

}  // namespace ckptfs
