// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the simulator has seen: counts per operation, what is going on now, and the latest requests. Thread-safe.

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pacer.h"

namespace ckptfs::s3sim {

struct Gauge {
    std::int64_t now = 0;
    std::int64_t peak = 0;

    void change(std::int64_t by) {
        now += by;
        peak = now > peak ? now : peak;
    }
};

struct OperationCount {
    std::uint64_t requests = 0;
    std::uint64_t errors = 0;  // answered with a status of 400 or more, or not at all
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
};

struct RequestRecord {
    std::string operation;
    std::string bucket;
    std::string key;
    std::string query;
    std::string range;
    std::string fault;
    int part = 0;
    int status = 0;  // 0: no reply was sent
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    TimePoint began;
    TimePoint ended;
};

struct CounterSnapshot {
    std::map<std::string, OperationCount> operations;
    std::uint64_t connections_opened = 0;
    Gauge connections;
    Gauge requests;
    Gauge parts;  // UploadPart and UploadPartCopy
    Gauge hung;
};

class Counters {
public:
    void connection_opened();
    void connection_closed();
    void request_began(bool is_part);
    void request_ended(bool is_part, RequestRecord record);
    void hung(int by);

    CounterSnapshot snapshot() const;
    // Oldest first.
    std::vector<RequestRecord> latest(std::size_t limit) const;
    // What is going on stays counted.
    void reset();

private:
    mutable std::mutex mutex_;
    CounterSnapshot counts_;             // guarded by mutex_
    std::deque<RequestRecord> records_;  // guarded by mutex_
};

}  // namespace ckptfs::s3sim
