// SPDX-License-Identifier: Apache-2.0
// A mount's settings: filled from the options table (src/config/options.cc), read by every part of it, changed by
// none. Plain values, grouped by the part that reads them.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/clock.h"

namespace ckptfs {

enum class AddressingStyle : std::uint8_t { kAuto, kPath, kVirtualHost };

struct StoreConfig {
    std::string bucket;
    // Empty, or ends in '/': the prefix "p" never matches "p2".
    std::string prefix;
    std::string endpoint_url;
    std::string region;
    std::string profile;
    // Empty: the files that the AWS tools read.
    std::string credentials_file;
    AddressingStyle addressing = AddressingStyle::kAuto;
    bool no_sign_request = false;
    // With plain HTTP the payload's SHA-256 is signed unless this is set; with TLS it never is.
    bool unsigned_payload = false;
    std::string ca_bundle;
    // "crc32c", or "none" for stores that refuse checksum headers.
    std::string checksum = "crc32c";
    std::string storage_class;
    // "AES256", "aws:kms" or "aws:kms:dsse"; empty: the default of the bucket.
    std::string encryption;
    std::string kms_key_id;
    // Needed for buckets whose owner does not pay for requests.
    bool requester_pays = false;
    // A request without progress is tried again for this long, then fails with EIO.
    Milliseconds retry_for{std::chrono::minutes(5)};
    // One byte must move within this time, or the attempt is given up.
    Milliseconds stall_timeout{std::chrono::seconds(20)};
    // max_connections of 0: chosen by the number of processors, but at least kFewestConnections.
    static constexpr int kFewestConnections = 64;
    int max_connections = 0;
    [[nodiscard]] int connections() const { return max_connections > 0 ? max_connections : kFewestConnections; }
    // How many of connections() are reserved for requests that carry almost no data.
    [[nodiscard]] int light_connections() const { return std::min(connections() / 8, 8); }
    // 0: chosen by the number of processors.
    int http_threads = 0;
    // A file that gets one line per attempt; empty: none.
    std::string access_log;
};

struct WriteConfig {
    // In bytes; 0: grows with the file.
    std::uint64_t part_size = 0;
    // Some stores (R2) need all parts but the last to be equal.
    bool equal_parts = false;
    // Per file: a writer that is this many parts ahead of the store waits, instead of filling memory that will be cold
    // when it is sent.
    int max_parts_in_flight = 48;
    std::string staging_dir = "/var/tmp";
    // Name patterns of files that are held in the staging directory from open on, so that they can be written in any
    // order.
    std::vector<std::string> stage;
    std::vector<std::string> keep_on_kill = {"*.log", "*.out", "*.err", "*.jsonl", "events.out.tfevents.*"};
    // Names of the files that mark a checkpoint complete: they are published only if no other file below their
    // directory is known to have failed.
    std::vector<std::string> commit_markers = {".metadata", ".snapshot_metadata", "commit_success.txt"};
    // How long a failed file, or an upload of another mount, holds commit markers back.
    Milliseconds failed_sibling_ttl{std::chrono::hours(1)};
    // How often logs are published while they grow; 0: only when they are closed or synced.
    Milliseconds publish_interval{std::chrono::seconds(30)};
};

enum class DirectIo : std::uint8_t { kAuto, kAlways, kNever };

struct ReadConfig {
    DirectIo direct_io = DirectIo::kAuto;
    // How many bytes are read ahead of one sequential reader at most; 0: what the read share of the budget allows.
    std::uint64_t max_read_ahead = 0;
    // How many requests for blocks that no read waits for yet may be under way at once, for all readers together.
    int max_requests_ahead = 48;
};

// The local disk that keeps files (--cache-dir).
struct DiskConfig {
    // Empty: no files are kept.
    std::string directory;
    // In bytes; 0: half of the disk.
    std::uint64_t size = 0;
    // The kernel reads whole files on this disk itself, if it can.
    bool passes_through = true;
    // No request is sent to the store: reading what is not on this disk fails (--cache-only).
    bool cache_only = false;
    // Writes are acknowledged once this disk has them, and sent to the bucket afterwards (--ack disk).
    bool acknowledges = false;
    // How many acknowledged bytes may wait for the bucket; 0: a quarter of the disk.
    std::uint64_t unsent_limit = 0;
};

struct NameConfig {
    Milliseconds metadata_ttl{1000};
    uid_t uid = 0;
    gid_t gid = 0;
    mode_t file_mode = 0600;
    mode_t dir_mode = 0700;
    bool read_only = false;
    // A directory rename that has had no heartbeat for this long is repaired by any mount that finds it.
    Milliseconds rename_repair_after{std::chrono::minutes(10)};
};

struct CodecConfig {
    // "auto" chooses for every frame; "none" stores every byte as it is; "zstd" or "zstd:LEVEL".
    std::string compress = "auto";
    // Name patterns of files that stay plain whatever `compress` says.
    std::vector<std::string> exclude;
};

struct MountConfig {
    // As the user wrote it: shown as the mount's source.
    std::string source;
    std::string mount_point;
    bool allow_other = false;
    bool no_exec = false;
    bool foreground = false;
    // 0: 5 % of RAM or of the cgroup's limit, and no more than the processors can fill.
    std::uint64_t max_memory = 0;
    Milliseconds drain_timeout{std::chrono::minutes(10)};
    // 0: chosen by the number of processors.
    int fuse_threads = 0;
    std::string log_level = "info";
    // Appended to; empty: standard error in the foreground, else the journal.
    std::string log_file;
    // "HOST:PORT"; empty: not served.
    std::string metrics_address;
    std::string metrics_file;
    // Empty: /var/lib/ckptfs for root, below ~/.local/state for others.
    std::string state_dir;
};

struct Config {
    MountConfig mount;
    StoreConfig store;
    WriteConfig write;
    ReadConfig read;
    DiskConfig disk;
    NameConfig names;
    CodecConfig codec;
};

}  // namespace ckptfs
