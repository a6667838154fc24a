// SPDX-License-Identifier: Apache-2.0
#include "doctor/rules.h"

#include <array>

namespace ckptfs::doctor {
namespace {

using enum Severity;

constexpr auto kProbeRules = std::to_array<ProbeRule>({
    {Probe::kFuse, "fuse", "/dev/fuse can be opened, and fusermount3 is installed if it is needed", kProblem,
     "nothing can be mounted", "", "", "", kProblem},
    {Probe::kMountPoint, "mount_point", "is mounted, or can be", kProblem, "cannot be used",
     "a mount there does not work", "", "", kProblem},
    {Probe::kStaging, "staging_directory", "can be written", kProblem, "cannot be used",
     "files that are written in any order are kept there; without it a mount does not start", "staging-dir", "",
     kProblem},
    {Probe::kOpenFiles, "open_files", "enough files may be open", kLimit, "few files may be open",
     "a mount needs one for each connection and each file that is staged: raise the limit (ulimit -Hn, LimitNOFILE=), "
     "or use fewer connections",
     "max-connections", "", kUnknown},
    {Probe::kKilledWriters, "killed_writers", "killed writers can be distinguished from writers that exit", kLimit,
     "killed writers cannot be distinguished from writers that exit",
     "partial files of killed writers are published: run the mount as root or as the user who writes, in the PID "
     "namespace of the writers",
     "", "", kUnknown},
    {Probe::kControlSockets, "control_directory", "can be entered by this user alone", kLimit, "cannot be used",
     "ckptfs unmount and ckptfs status do not reach a mount of this user", "", "", kUnknown},
    {Probe::kStateDirectory, "state_directory", "can be written", kLimit, "cannot be used",
     "the uploads of a killed mount stay in the bucket until they are aborted with ckptfs gc: set a directory with "
     "--state-dir",
     "", "", kUnknown},
    {Probe::kCacheDirectory, "cache_directory", "can be used", kProblem, "cannot be used",
     "a mount with it does not start", "cache-dir", "", kProblem},
    {Probe::kPassthrough, "passthrough", "the kernel can read files in --cache-dir itself", kNote,
     "the kernel does not read files in --cache-dir itself",
     "ckptfs reads them, which takes processor time; the kernel does from 6.9 on, for mounts that root makes", "", "",
     kUnknown},

    {Probe::kEndpoint, "endpoint", "answers", kProblem, "does not answer", "", "", "", kProblem},
    {Probe::kClock, "clock", "the clocks agree", kLimit, "the clocks differ", "", "", "", kUnknown},
    {Probe::kCredentials, "credentials", "the store accepts them", kProblem, "not accepted", "", "", "", kProblem},
    {Probe::kRegion, "region", "", kProblem, "the bucket is in another region", "requests are signed for their region",
     "region", "", kUnknown},
    {Probe::kBucket, "bucket", "it exists", kProblem, "there is no such bucket", "check its name and the endpoint",
     "endpoint-url", "", kProblem},

    {Probe::kList, "list", "s3:ListBucket", kProblem, "the permission s3:ListBucket is missing",
     "a mount does not start, because it could not show the files", "", "", kProblem},
    {Probe::kPut, "put", "s3:PutObject", kProblem, "the permission s3:PutObject is missing",
     "nothing can be saved; a mount that only reads works", "read-only", "", kProblem},
    {Probe::kHead, "head", "s3:GetObject, asked by HEAD", kProblem, "the permission s3:GetObject is missing",
     "no file can be looked up", "", "", kProblem},
    {Probe::kGet, "get", "s3:GetObject", kProblem, "the permission s3:GetObject is missing", "no file can be read", "",
     "", kProblem},
    {Probe::kDelete, "delete", "s3:DeleteObject", kProblem, "the permission s3:DeleteObject is missing",
     "files can be neither removed nor renamed, and programs that save under a temporary name fail", "", "", kProblem},
    {Probe::kMultipart, "multipart", "multipart uploads are accepted (s3:PutObject)", kProblem,
     "multipart uploads are refused", "files that do not fit into one part cannot be saved, and a mount does not start",
     "", "", kProblem},
    {Probe::kAbort, "abort", "s3:AbortMultipartUpload", kProblem, "the permission s3:AbortMultipartUpload is missing",
     "a mount does not start: the parts of failed files would stay, and you would pay for them", "", "", kProblem},
    {Probe::kListUploads, "list_uploads", "s3:ListBucketMultipartUploads", kLimit, "the open uploads cannot be listed",
     "files that other mounts are still writing do not hold a commit marker back, and ckptfs gc finds nothing; the "
     "permission is s3:ListBucketMultipartUploads",
     "", "", kUnknown},
    {Probe::kListParts, "list_parts", "s3:ListMultipartUploadParts", kLimit, "the parts of an upload cannot be listed",
     "an upload of a request whose answer was lost counts as a file that is being written, and can hold a commit "
     "marker back; the permission is s3:ListMultipartUploadParts",
     "", "", kUnknown},

    {Probe::kChecksumHeaders, "checksum_headers", "CRC32C is taken with every request", kSet,
     "checksum headers are refused", "saving fails until they are left out", "checksum", "none", kUnknown},
    {Probe::kChecksumOfPut, "checksum_of_put", "an object with a wrong checksum is refused", kNote,
     "an object with a wrong checksum is accepted",
     "the store does not notice a byte that changes in transit: use https, or over plain HTTP omit "
     "--unsigned-payload",
     "", "", kUnknown},
    {Probe::kChecksumOfPart, "checksum_of_part", "a part with a wrong checksum is refused", kNote,
     "a part with a wrong checksum is accepted",
     "the store does not notice a byte of a part that changes in transit: use https, or over plain HTTP omit "
     "--unsigned-payload",
     "", "", kUnknown},
    {Probe::kMetadata, "metadata", "object metadata is kept, including by copies", kSet,
     "object metadata (x-amz-meta-…) is lost",
     "a compressed file would be read as it is stored. Without compression files are sound; symbolic links, and "
     "commits whose answer is lost, are not",
     "compress", "none", kUnknown},
    {Probe::kEtag, "etag", "an object has the ETag that its upload returned", kLimit,
     "the ETag changes after the upload",
     "a file that was just saved is treated as replaced: its readers get ESTALE once", "", "", kUnknown},
    {Probe::kListAfterWrite, "list_after_write", "what was written is listed at once", kProblem,
     "what was written is not listed at once", "other nodes may miss a checkpoint, or find half of it", "", "",
     kUnknown},
    {Probe::kListOrder, "list_order", "keys come in the order of their bytes", kNote,
     "keys do not come in the order of their bytes", "no mount relies on it", "", "", kUnknown},
    {Probe::kKeyNames, "key_names", "blanks, signs and letters of all scripts are kept", kLimit,
     "some keys do not come back", "files whose names hold such characters are lost or not found", "", "", kUnknown},
    {Probe::kRanges, "ranges", "any range is answered with its bytes", kProblem,
     "ranges are not answered with their bytes", "files cannot be read in pieces, which is how all are read", "", "",
     kProblem},
    {Probe::kIfMatch, "if_match", "a read is pinned to one version", kLimit, "If-Match of reads is ignored",
     "a file that is replaced while it is read may be read as a mixture of both", "", "", kUnknown},
    {Probe::kIfNoneMatch, "if_none_match", "a key that exists is not created again", kLimit,
     "If-None-Match of writes is ignored or not supported",
     "two nodes that create one name at once (O_EXCL, mkdir) do not notice each other; the later one wins", "", "",
     kUnknown},
    {Probe::kIfNoneMatchOfUploads, "if_none_match_of_uploads", "a multipart upload does not replace a key that exists",
     kLimit, "If-None-Match is ignored when an upload is completed",
     "two nodes that create one file at once do not notice each other, if it does not fit into one part", "", "",
     kUnknown},
    {Probe::kIfMatchOfPut, "if_match_of_put", "a write can be pinned to the version it replaces", kLimit,
     "If-Match of writes is ignored or not supported",
     "two mounts that rename one directory at once do not notice each other", "", "", kUnknown},
    {Probe::kCopy, "copy", "objects are copied within the store", kProblem, "objects are not copied within the store",
     "files that are saved under a temporary name cannot be renamed to their final name", "", "", kProblem},
    {Probe::kCopyConditions, "copy_conditions", "a copy is pinned to one version and does not replace", kLimit,
     "the conditions of copies are ignored",
     "a file that is replaced while it is renamed can be lost, and RENAME_NOREPLACE replaces what another node created",
     "", "", kUnknown},
    {Probe::kPartCopy, "part_copy", "parts are copied from objects", kProblem, "parts are not copied from objects",
     "files of 64 MiB and more cannot be renamed, and cannot be written further after an fsync", "", "", kUnknown},
    {Probe::kParts, "parts", "an object can be assembled from parts of 5 MiB and more", kProblem,
     "no object can be assembled from several parts", "files that do not fit into one part cannot be saved", "", "",
     kUnknown},
    {Probe::kUnequalParts, "unequal_parts", "parts of an upload may differ in size", kSet,
     "all parts but the last must be equal",
     "without this option multipart uploads fail; with it, files are stored uncompressed", "equal-parts", "", kUnknown},
    {Probe::kPartOrder, "part_order", "parts may be sent in any order", kProblem, "parts must be sent in their order",
     "parts are sent in parallel, so large files fail at random", "", "", kUnknown},
    {Probe::kPartAgain, "part_again", "a part may be sent again", kLimit, "a part that is sent again is not replaced",
     "files whose program goes back to their beginning or end fail, unless they are staged", "stage", "", kUnknown},
    {Probe::kDeleteBatch, "delete_batch", "many keys are removed with one request", kProblem,
     "DeleteObjects does not work", "many files cannot be removed at once, and directories cannot be renamed", "", "",
     kUnknown},
    {Probe::kDeleteConditions, "delete_conditions", "a removal is pinned to one version", kLimit,
     "the conditions of deletes are ignored",
     "names are removed one by one, each in a round trip (rm -r), and a removal that the network delivers late can "
     "remove what another node has written since",
     "", "", kUnknown},

    {Probe::kLatency, "latency", "", kUnknown, "", "", "", "", kUnknown},
    {Probe::kUpload, "upload", "", kUnknown, "", "", "", "", kUnknown},
    {Probe::kDownload, "download", "", kUnknown, "", "", "", "", kUnknown},
    {Probe::kSlowDown, "slow_down", "the store never asked to slow down", kNote,
     "the store asked to slow down (SlowDown)", "a mount temporarily sends fewer requests at a time", "max-connections",
     "", kUnknown},
    {Probe::kCleanup, "cleanup", "nothing is left of the probes (except old versions in a bucket with versioning)",
     kLimit, "something is left of the probes",
     "mounts do not show it; ckptfs gc lists it, and removes it if asked to once it is a day old", "", "", kLimit},
});

constexpr bool in_order() {
    for (std::size_t i = 0; i < kProbeRules.size(); ++i) {
        if (kProbeRules[i].probe != static_cast<Probe>(i)) {
            return false;
        }
    }
    return kProbeRules.size() == static_cast<std::size_t>(kLastProbe) + 1;
}
static_assert(in_order(), "one rule for each probe, in their order");

}  // namespace

const ProbeRule& rule_of(Probe probe) {
    return kProbeRules.at(static_cast<std::size_t>(probe));
}

std::string_view name_of(Probe probe) {
    return rule_of(probe).name;
}

}  // namespace ckptfs::doctor
