// SPDX-License-Identifier: Apache-2.0
#include "config/options.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"
#include "config/near_match.h"
#include "config/values.h"

namespace ckptfs {
namespace {

template <class Parsed, class Target>
Status set(Target& target, Result<Parsed> parsed) {
    if (!parsed) {
        return failure(parsed.error());
    }
    target = static_cast<Target>(*parsed);
    return {};
}

Status set_text(std::string& target, std::string_view value) {
    target = value;
    return {};
}

Status one_of(std::string& target, std::string_view value, std::initializer_list<std::string_view> allowed) {
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
        std::string list;
        for (const std::string_view each : allowed) {
            list += (list.empty() ? "" : ", ") + std::string(each);
        }
        return failure(EINVAL, format("\"{}\" is not one of {}", escaped(value), list));
    }
    return set_text(target, value);
}

Status set_addressing(Config& config, std::string_view value) {
    std::string style;
    Status valid = one_of(style, value, {"auto", "path", "virtual"});
    config.store.addressing = style == "path"      ? AddressingStyle::kPath
                              : style == "virtual" ? AddressingStyle::kVirtualHost
                                                   : AddressingStyle::kAuto;
    return valid;
}

Status set_path_style(Config& config, std::string_view value) {
    bool path = false;
    Status valid = set(path, parse_switch(value));
    config.store.addressing = path ? AddressingStyle::kPath : AddressingStyle::kAuto;
    return valid;
}

Status set_direct_io(Config& config, std::string_view value) {
    std::string choice;
    Status valid = one_of(choice, value, {"auto", "always", "never"});
    config.read.direct_io = choice == "always"  ? DirectIo::kAlways
                            : choice == "never" ? DirectIo::kNever
                                                : DirectIo::kAuto;
    return valid;
}

Status set_passthrough(Config& config, std::string_view value) {
    std::string choice;
    Status valid = one_of(choice, value, {"auto", "never"});
    config.disk.passes_through = choice != "never";
    return valid;
}

Status set_ack(Config& config, std::string_view value) {
    std::string choice;
    Status valid = one_of(choice, value, {"store", "disk"});
    config.disk.acknowledges = choice == "disk";
    return valid;
}

constexpr std::string_view kVariablePrefix = "CKPTFS_";
constexpr std::uint64_t kMaxThreads = 64;
constexpr std::uint64_t kMaxConnections = 1024;
// Below this, the receive buffers, one part and one block to read cannot be had together.
constexpr std::uint64_t kSmallestMemory = std::uint64_t{64} << 20;

constexpr std::string_view kMounting = "Mounting";
constexpr std::string_view kFiles = "Files";
constexpr std::string_view kWriting = "Writing";
constexpr std::string_view kReading = "Reading";
constexpr std::string_view kResources = "Resources and logs";

constexpr auto kTable = std::to_array<OptionSpec>({
    {kMounting, "foreground", "f", "", "", "stay in the foreground",
     "Without it, the command returns when the mount is ready.",
     [](Config& c, std::string_view v) { return set(c.mount.foreground, parse_switch(v)); }},
    {kMounting, "allow-other", "", "", "", "let other users see the mount; modes are then enforced",
     "Without root, it needs user_allow_other in /etc/fuse.conf.",
     [](Config& c, std::string_view v) { return set(c.mount.allow_other, parse_switch(v)); }},
    {kMounting, "read-only", "", "", "", "refuse every change", "",
     [](Config& c, std::string_view v) { return set(c.names.read_only, parse_switch(v)); }},
    {kMounting, "noexec", "", "", "", "refuse to run programs in the mount",
     "Device files and set-user-ID bits never have an effect there.",
     [](Config& c, std::string_view v) { return set(c.mount.no_exec, parse_switch(v)); }},
    {kMounting, "drain-timeout", "", "TIME", "10m", "how long unmounting waits for the store",
     "It waits for uploads in flight, removals, and records of failed files. Whatever is not in the store by then is "
     "named, and the exit status is nonzero.",
     [](Config& c, std::string_view v) { return set(c.mount.drain_timeout, parse_duration(v)); }},

    {kStoreSection, "endpoint-url", "", "URL", "", "endpoint to use instead of Amazon's",
     "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL and the profile's endpoint_url are read, too.",
     [](Config& c, std::string_view v) { return set_text(c.store.endpoint_url, v); }},
    {kStoreSection, "region", "", "NAME", "", "region of the bucket",
     "AWS_REGION, AWS_DEFAULT_REGION and the profile's region are read, too. If none is set, it is us-east-1.",
     [](Config& c, std::string_view v) { return set_text(c.store.region, v); }},
    {kStoreSection, "profile", "", "NAME", "", "profile of the AWS files to take credentials from",
     "It has priority over the credentials in the environment, as with the AWS CLI. AWS_PROFILE is read, too.",
     [](Config& c, std::string_view v) { return set_text(c.store.profile, v); }},
    {kStoreSection, "credentials-file", "", "FILE", "~/.aws/credentials",
     "credentials file in the format of the AWS CLI",
     "Use it for mounts at boot, which have no environment. AWS_SHARED_CREDENTIALS_FILE is read, too.",
     [](Config& c, std::string_view v) { return set_text(c.store.credentials_file, v); }},
    {kStoreSection, "no-sign-request", "", "", "", "send unsigned requests, for public buckets", "",
     [](Config& c, std::string_view v) { return set(c.store.no_sign_request, parse_switch(v)); }},
    {kStoreSection, "force-path-style", "", "", "", "use path-style requests",
     "This is the same as --addressing-style path.", set_path_style},
    {kStoreSection, "addressing-style", "", "STYLE", "auto", "URL style of requests: auto, path or virtual",
     "path puts the bucket into the path of the URL; virtual (virtual-hosted style) puts it into the host name. auto "
     "is virtual for Amazon S3 and path for every other endpoint.",
     set_addressing},
    {kStoreSection, "ca-bundle", "", "FILE", "", "certificate authorities to trust, in PEM format",
     "AWS_CA_BUNDLE is read, too.", [](Config& c, std::string_view v) { return set_text(c.store.ca_bundle, v); }},
    {kStoreSection, "checksum", "", "NAME", "crc32c", "checksum of the data that is sent: crc32c or none",
     "Use none for stores that refuse checksum headers.",
     [](Config& c, std::string_view v) { return one_of(c.store.checksum, v, {"crc32c", "none"}); }},
    {kStoreSection, "unsigned-payload", "", "", "", "over plain HTTP, do not sign the hash of the payload",
     "This saves CPU time, but only --checksum then detects bytes that change in transit, and only if the store "
     "verifies it. With TLS the payload is never hashed.",
     [](Config& c, std::string_view v) { return set(c.store.unsigned_payload, parse_switch(v)); }},
    {kStoreSection, "access-log", "", "FILE", "", "write a line for every request to this file",
     "Each line has the operation, key, status, bytes, time, and the request ID to give to the store's support. The "
     "file is renamed at 64 MiB; three old ones are kept.",
     [](Config& c, std::string_view v) { return set_text(c.store.access_log, v); }},
    {kStoreSection, "storage-class", "", "NAME", "", "storage class of new objects", "",
     [](Config& c, std::string_view v) { return set_text(c.store.storage_class, v); }},
    {kStoreSection, "sse", "", "NAME", "the bucket's default encryption",
     "server-side encryption of new objects: AES256, aws:kms or aws:kms:dsse",
     "It also applies to objects that a rename creates.",
     [](Config& c,
        std::string_view v) { return one_of(c.store.encryption, v, {"AES256", "aws:kms", "aws:kms:dsse"}); }},
    {kStoreSection, "sse-kms-key-id", "", "KEY", "the AWS managed key (aws/s3)",
     "AWS KMS key that encrypts new objects, by ID, ARN or alias", "Without --sse, this option implies aws:kms.",
     [](Config& c, std::string_view v) { return set_text(c.store.kms_key_id, v); }},
    {kStoreSection, "requester-pays", "", "", "",
     "accept the charges for requests and data transfer of a Requester Pays bucket",
     "Such a bucket refuses requests without it.",
     [](Config& c, std::string_view v) { return set(c.store.requester_pays, parse_switch(v)); }},
    {kStoreSection, "retry-for", "", "TIME", "5m", "how long a request that makes no progress is retried",
     "Then the call fails with EIO; a file that is being written has failed.",
     [](Config& c, std::string_view v) { return set(c.store.retry_for, parse_duration(v)); }},
    {kStoreSection, "stall-timeout", "", "TIME", "20s", "how long an attempt may go without transferring a byte",
     "Then the attempt is abandoned. A transfer that crawls while others move is abandoned within seconds. A read that "
     "takes far longer than other reads of its size is sent again on another connection.",
     [](Config& c, std::string_view v) { return set(c.store.stall_timeout, parse_duration(v)); }},
    {kStoreSection, "max-connections", "", "N", "64 to 192, depending on the number of CPUs",
     "maximum number of connections to the store", "",
     [](Config& c, std::string_view v) { return set(c.store.max_connections, parse_number(v, 1, kMaxConnections)); }},

    {kFiles, "uid", "", "USER", "the caller", "owner of all files, a number or a name", "",
     [](Config& c, std::string_view v) { return set(c.names.uid, parse_user(v)); }},
    {kFiles, "gid", "", "GROUP", "the caller's group", "group of all files, a number or a name", "",
     [](Config& c, std::string_view v) { return set(c.names.gid, parse_group(v)); }},
    {kFiles, "file-mode", "", "MODE", "0600", "mode of all files", "",
     [](Config& c, std::string_view v) { return set(c.names.file_mode, parse_mode(v)); }},
    {kFiles, "dir-mode", "", "MODE", "0700", "mode of all directories", "",
     [](Config& c, std::string_view v) { return set(c.names.dir_mode, parse_mode(v)); }},
    {kFiles, "metadata-ttl", "", "TIME", "1s", "how long names and attributes are cached",
     "Opening a file for reading asks the store regardless. *Close-to-open* in ckptfs-semantics(7) has the exceptions.",
     [](Config& c, std::string_view v) { return set(c.names.metadata_ttl, parse_duration(v)); }},

    {kFiles, "rename-repair-after", "", "TIME", "10m",
     "how long after the last heartbeat of a directory rename another mount may repair it",
     "It must be at least 1s. Use the same value on all mounts of a prefix. See ckptfs-semantics(7).",
     [](Config& c, std::string_view v) { return set(c.names.rename_repair_after, parse_duration(v)); }},

    {kWriting, "part-size", "", "SIZE", "grows with the file, from about 8M",
     "size of a part of a multipart upload, 5M to 5G",
     "Without it, parts grow with the file, so that small files finish soon and large ones fit into 10,000 parts. A "
     "part can be at most a quarter of the memory that writes may use; a larger value is reduced to that, and the log "
     "says so.",
     [](Config& c, std::string_view v) { return set(c.write.part_size, parse_size(v)); }},
    {kWriting, "equal-parts", "", "", "",
     "make all parts of an upload but the last equal in size, for stores that require it",
     "Files are then stored uncompressed.",
     [](Config& c, std::string_view v) { return set(c.write.equal_parts, parse_switch(v)); }},
    {kWriting, "staging-dir", "", "DIR", "/var/tmp", "directory for data that does not fit into memory",
     "It also holds data that cannot be uploaded yet because the store does not respond and, until the file is closed "
     "or synced, changes to existing files and files written out of order. If it is full, the write fails with ENOSPC; "
     "what was saved before stays. It must be on a local disk. The files in it have no name, so only the mount can "
     "open them.",
     [](Config& c, std::string_view v) { return set_text(c.write.staging_dir, v); }},
    {kWriting, "stage", "", "GLOB,…", "", "files that are written in any order",
     "Use it for programs that open a new file write-only and then seek back. The file is kept in --staging-dir until "
     "it is closed or synced. Files opened for reading and writing, and files that exist, do not need this option. As "
     "in all lists of files, GLOB is compared with the file's name, without its directory. It may be given more than "
     "once; all patterns apply, including those of CKPTFS_STAGE.",
     [](Config& c, std::string_view v) -> Status {
         for (std::string& glob : parse_list(v)) {
             c.write.stage.push_back(std::move(glob));
         }
         return {};
     }},
    {kWriting, "keep-on-kill", "", "GLOB,…", "logs and events", "files that are kept when their writer is killed",
     "By default these are \\*.log, \\*.out, \\*.err, \\*.jsonl and events.out.tfevents.\\*. Such a file is published "
     "as far as it was written. So is any file that was only appended to (O_APPEND) since it was last saved. Every "
     "other file keeps its last good version, and so does a file that was truncated and not written since.",
     [](Config& c, std::string_view v) -> Status {
         c.write.keep_on_kill = parse_list(v);
         return {};
     }},
    {kWriting, "commit-marker", "", "NAME,…", ".metadata,.snapshot_metadata,commit_success.txt",
     "files that mark a checkpoint complete",
     "Such a file is held back while another file below its directory is known to have failed on any mount, or is "
     "still being uploaded by another mount. Renaming a file to the marker's name, and closing or syncing a file of "
     "that name, then fail with EIO, and the log names the failed file. See ckptfs-semantics(7). An empty list "
     "switches this off.",
     [](Config& c, std::string_view v) -> Status {
         c.write.commit_markers = parse_list(v);
         return {};
     }},
    {kWriting, "failed-sibling-ttl", "", "TIME", "1h",
     "how long a failed file, or an upload of another mount, holds a commit marker back",
     "Set it higher than the longest time that the upload of one file takes.",
     [](Config& c, std::string_view v) { return set(c.write.failed_sibling_ttl, parse_duration(v)); }},
    {kWriting, "publish-interval", "", "TIME", "30s", "how often logs are published while they grow",
     "This applies to files opened for appending and to files that match --keep-on-kill. With 0s they are published "
     "only when they are closed or synced.",
     [](Config& c, std::string_view v) { return set(c.write.publish_interval, parse_duration(v)); }},
    {kWriting, "ack", "", "BY", "store", "what close and fsync wait for: store or disk",
     "store: the file is in the bucket. disk: the file has been flushed to the disk of --cache-dir; it is uploaded "
     "afterwards, in the order of the acknowledgements. Until it is uploaded, it is lost if the disk is lost, and "
     "other mounts do not see it; ckptfs wait waits for the upload. See ckptfs-semantics(7).",
     set_ack},
    {kWriting, "ack-limit", "", "SIZE", "a quarter of the disk",
     "how much acknowledged data may wait for its upload with --ack disk", "At this limit, close waits for the store.",
     [](Config& c, std::string_view v) { return set(c.disk.unsent_limit, parse_size(v)); }},
    {kWriting, "compress", "", "HOW", "auto", "how files are stored: auto, none, zstd or zstd:LEVEL",
     "auto encodes each MiB by its content: floats are split by byte position, whatever their type and offset; "
     "everything else is encoded by zstd; and what does not shrink is stored as it is. While the processors cannot "
     "keep up with the store, frames are stored as they are, except for zeros. zstd writes objects that zstd -d "
     "decodes; LEVEL is 1 to 19, and 3 by default. none stores a file as it is when it is written as a whole. Files "
     "under 1 MiB, and all files of a mount with --equal-parts, are stored as they are, whatever this option says. A "
     "compressed file stays compressed if an append or a change keeps frames of it. Every mount reads every object, "
     "whatever it writes. See ckptfs-format(5).",
     [](Config& c, std::string_view v) { return set_text(c.codec.compress, v); }},
    {kWriting, "compress-exclude", "", "GLOB,…", "", "files that are stored as they are", "",
     [](Config& c, std::string_view v) -> Status {
         c.codec.exclude = parse_list(v);
         return {};
     }},

    {kReading, "direct-io", "", "WHEN", "auto", "bypass the kernel's page cache: auto, always or never",
     "Files opened with O_TRUNC or O_APPEND always bypass it.", set_direct_io},
    {kReading, "max-read-ahead", "", "SIZE", "by memory", "maximum amount of data fetched ahead of one reader", "",
     [](Config& c, std::string_view v) { return set(c.read.max_read_ahead, parse_size(v)); }},
    {kReading, "cache-dir", "", "DIR", "", "directory on a local disk that caches the files this node reads and writes",
     "Later reads, also by later mounts, are served from it if the bucket still has the same version. Data that is "
     "damaged or missing is fetched from the store. Files of up to 256 KiB are not served from it, except with "
     "--cache-only. The directory is created if it is missing; no other user may enter it, and the files in it are not "
     "encrypted. Several mounts may share it.",
     [](Config& c, std::string_view v) { return set_text(c.disk.directory, v); }},
    {kReading, "cache-size", "", "SIZE", "half of the disk", "maximum size of --cache-dir",
     "The least recently used files are removed first. Files in use stay.",
     [](Config& c, std::string_view v) { return set(c.disk.size, parse_size(v)); }},
    {kReading, "cache-only", "", "", "", "serve files from --cache-dir only, without the store",
     "Use it on a node without a network. The mount is read-only and shows each file in the version that this node saw "
     "last. Reading data that is not in the directory fails with EIO. No request is sent.",
     [](Config& c, std::string_view v) { return set(c.disk.cache_only, parse_switch(v)); }},
    {kReading, "passthrough", "", "WHEN", "auto", "let the kernel read files in --cache-dir directly: auto or never",
     "With auto, on Linux 6.9 or later and for mounts made by root, the kernel reads a file of 1 MiB or more once all "
     "of it is cached and its checksums have been verified. All processes then share one page cache. With never, "
     "ckptfs reads every file, and verifies each MiB again.",
     set_passthrough},

    {kResources, "max-memory", "", "SIZE", "5 % of RAM, at most 1G to 4G depending on the number of CPUs",
     "memory for data, at least 64M",
     "Memory is allocated on demand, and returned after a minute without use. When the budget is used up, writers slow "
     "down and data goes to --staging-dir; a file fails only if it finds no room there either. The budget never grows. "
     "In a cgroup, the cgroup's memory limit counts instead of the machine's RAM.",
     [](Config& c, std::string_view v) {
         return set(c.mount.max_memory, parse_size(v).and_then([&](std::uint64_t size) -> Result<std::uint64_t> {
             if (size < kSmallestMemory) {
                 return failure(EINVAL, format("\"{}\" is less than 64M", escaped(v)));
             }
             return size;
         }));
     }},
    {kResources, "fuse-threads", "", "N", "one per CPU, 2 to 8", "threads that handle requests from the kernel", "",
     [](Config& c, std::string_view v) { return set(c.mount.fuse_threads, parse_number(v, 1, kMaxThreads)); }},
    {kResources, "http-threads", "", "N", "one per two CPUs, 1 to 8", "threads that transfer data", "",
     [](Config& c, std::string_view v) { return set(c.store.http_threads, parse_number(v, 1, kMaxThreads)); }},
    {kResources, "log-level", "", "LEVEL", "info", "what is logged: error, warning, info or debug", "",
     [](Config& c, std::string_view v) {
         return one_of(c.mount.log_level, v, {"error", "warning", "info", "debug"});
     }},
    {kResources, "log-file", "", "FILE", "", "append the log to this file",
     "Without it, the log goes to standard error in the foreground, and otherwise to the journal. If there is no "
     "journal, the log is lost, and the mount says so. To reopen the file after renaming it, send SIGHUP to a daemon "
     "that has no terminal; copytruncate of *logrotate*(8) needs no signal.",
     [](Config& c, std::string_view v) { return set_text(c.mount.log_file, v); }},
    {kResources, "state-dir", "", "DIR", "/var/lib/ckptfs for root, below ~/.local/state for others",
     "directory in which a mount records its uploads, so that the next mount can abort them",
     "If this mount is killed, the next mount of the same source, at the same mount point and with the same "
     "--state-dir, ends what it left behind. The directory is created if it is missing; no other user may enter it. "
     "Machines may share it. See *FILES*.",
     [](Config& c, std::string_view v) { return set_text(c.mount.state_dir, v); }},
    {kResources, "metrics-address", "", "[HOST:]PORT", "",
     "serve metrics for Prometheus at this address, under /metrics",
     "Without HOST it listens on loopback only, because the metrics are neither encrypted nor protected by a password. "
     "They contain the mount's source and counts, but no names of files.",
     [](Config& c, std::string_view v) { return set(c.mount.metrics_address, parse_address(std::string(v))); }},
    {kResources, "metrics-file", "", "FILE", "", "write the metrics to this file every 10 s",
     "This is for the textfile collector of the Prometheus node exporter, which reads *\\*.prom* in its directory. The "
     "file is removed when the mount ends.",
     [](Config& c, std::string_view v) { return set_text(c.mount.metrics_file, v); }},
});

std::string manual_entry(const OptionSpec& option) {
    std::string entry = format("*--{}*", option.name);
    if (!option.short_name.empty()) {
        entry += format(", *-{}*", option.short_name);
    }
    if (!option.is_switch()) {
        entry += format(" _{}_", option.value_name);
    }
    std::string help(option.help);
    help[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(help[0])));
    entry += format("\n\t{}.", help);
    if (!option.details.empty()) {
        entry += format(" {}", option.details);
    }
    if (!option.default_text.empty()) {
        entry += format(" Default: {}.", option.default_text);
    }
    return entry + "\n\n";
}

// Globs are compared with the last component of a path, so that one with a slash would match nothing.
Status check_globs(const Config& config) {
    const auto lists = std::to_array<std::pair<const char*, const std::vector<std::string>*>>({
        {"stage", &config.write.stage},
        {"keep-on-kill", &config.write.keep_on_kill},
        {"commit-marker", &config.write.commit_markers},
        {"compress-exclude", &config.codec.exclude},
    });
    for (const auto& [name, globs] : lists) {
        for (const std::string& glob : *globs) {
            if (glob.find('/') != std::string::npos) {
                return failure(EINVAL, format("--{}: {}: give the name of a file, without a directory", name, glob));
            }
        }
    }
    return {};
}

}  // namespace

std::span<const OptionSpec> option_table() {
    return kTable;
}

const OptionSpec* find_option(std::string_view name) {
    const auto* found = std::find_if(kTable.begin(), kTable.end(), [&](const auto& each) { return each.name == name; });
    return found == kTable.end() ? nullptr : found;
}

std::vector<std::string> misspelt_variables(const std::vector<std::string>& names) {
    std::vector<std::string> known;
    for (const OptionSpec& option : kTable) {
        known.push_back(environment_name(option).substr(kVariablePrefix.size()));
    }
    std::vector<std::string> lines;
    for (const std::string& name : names) {
        if (!name.starts_with(kVariablePrefix)) {
            continue;
        }
        // The prefix is left out: what all names begin with makes none of them alike.
        const std::string word = name.substr(kVariablePrefix.size());
        const bool is_known = std::find(known.begin(), known.end(), word) != known.end();
        if (const std::string_view meant = near_match(word, known); !is_known && !meant.empty()) {
            lines.push_back(format("{} is set, but there is no such option; did you mean {}{}?", escaped(name),
                                   kVariablePrefix, meant));
        }
    }
    return lines;
}

std::string environment_name(const OptionSpec& option) {
    std::string name(kVariablePrefix);
    for (const char letter : option.name) {
        name += letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    }
    return name;
}

Status apply_settings(Config& config, const std::vector<Setting>& settings) {
    for (const auto& [name, value] : settings) {
        const OptionSpec* option = find_option(name);
        if (option == nullptr) {
            return failure(EINVAL, format("there is no option --{}", escaped(name)));
        }
        if (auto applied = option->apply(config, value); !applied) {
            return failure(EINVAL, format("--{}: {}", name, applied.error().message));
        }
    }
    return {};
}

Status apply_environment(Config& config, const Environment& environment) {
    for (const OptionSpec& option : kTable) {
        const std::string name = environment_name(option);
        const auto value = environment(name.c_str());
        if (!value || value->empty()) {
            continue;
        }
        if (auto applied = option.apply(config, *value); !applied) {
            return failure(EINVAL, format("{}: {}", name, applied.error().message));
        }
    }
    return {};
}

// A shorter time ends requests before they can be answered.
constexpr Milliseconds kLeastTimeout{100};
// A mount sends ten heartbeats in this time, each a request.
constexpr Milliseconds kLeastRepairAfter{1'000};

Status check_config(const Config& config) {
    const std::uint64_t part = config.write.part_size;
    if (part != 0 && (part < kMinPartSize || part > kMaxPartSize)) {
        return failure(EINVAL, "--part-size: S3 allows parts from 5M to 5G");
    }
    if (config.names.rename_repair_after < kLeastRepairAfter) {
        return failure(EINVAL, "--rename-repair-after: at least 1s, or mounts undo each other's renames");
    }
    if (config.store.retry_for < kLeastTimeout || config.store.stall_timeout < kLeastTimeout) {
        return failure(EINVAL, "--retry-for, --stall-timeout: at least 100ms, or no answer comes in time");
    }
    if (Status names = check_globs(config); !names) {
        return names;
    }
    if (config.disk.acknowledges && config.disk.directory.empty()) {
        return failure(EINVAL, "--ack disk: set --cache-dir, a directory on the disk that is to acknowledge");
    }
    if (config.disk.cache_only && config.disk.directory.empty()) {
        return failure(EINVAL, "--cache-only: set --cache-dir, the directory that is to be read");
    }
    if (config.disk.cache_only && config.disk.acknowledges) {
        return failure(EINVAL, "--cache-only and --ack disk exclude each other: nothing can be written");
    }
    if (config.store.no_sign_request && !config.store.profile.empty()) {
        return failure(EINVAL, "--no-sign-request and --profile exclude each other");
    }
    return {};
}

std::string manual_options() {
    std::string text;
    std::string_view section;
    for (const OptionSpec& option : kTable) {
        if (option.section != section) {
            section = option.section;
            text += format("## {}\n\n", section);
        }
        text += manual_entry(option);
    }
    return text;
}

}  // namespace ckptfs
