// SPDX-License-Identifier: Apache-2.0
#include "base/rotating_log.h"

#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/rotating_file_sink.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// The lines of a second of many small requests.
constexpr std::size_t kQueuedLines = 8192;
// A full disk fails every line.
constexpr std::chrono::seconds kTellEvery{60};

class SpdlogFile final : public RotatingLog {
public:
    SpdlogFile(std::string path, const spdlog::sink_ptr& sink)
        : path_(std::move(path)),
          threads_(std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1)),
          logger_(std::make_shared<spdlog::async_logger>("file", sink, threads_,
                                                         spdlog::async_overflow_policy::overrun_oldest)) {
        logger_->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %v");
        logger_->flush_on(spdlog::level::info);
        logger_->set_error_handler([this](const std::string& what) {
            const auto now = std::chrono::steady_clock::now();
            const MutexLock lock(mutex_);
            if (!told_at_ || now - *told_at_ >= kTellEvery) {
                told_at_ = now;
                log_warning(escaped(what));
            }
        });
    }

    ~SpdlogFile() override {
        if (const std::size_t dropped = threads_->overrun_counter(); dropped > 0) {
            log_warning(format("{} lines came faster than the disk took them, and are missing in {}", dropped, path_));
        }
    }
    void write(std::string_view line) override { logger_->info(spdlog::string_view_t(line.data(), line.size())); }

private:
    // Escaped, for the log.
    const std::string path_;
    Mutex mutex_;
    std::optional<std::chrono::steady_clock::time_point> told_at_ GUARDED_BY(mutex_);
    // Its destructor returns when everything is written.
    const std::shared_ptr<spdlog::details::thread_pool> threads_;
    const std::shared_ptr<spdlog::async_logger> logger_;
};

}  // namespace

Result<std::unique_ptr<RotatingLog>> RotatingLog::create(const std::string& path, std::uint64_t max_size,
                                                         std::size_t old_files) {
    try {
        return std::make_unique<SpdlogFile>(
            escaped(path), std::make_shared<spdlog::sinks::rotating_file_sink_mt>(path, max_size, old_files));
    } catch (const std::exception& /*problem*/) {
        const int error = errno == 0 ? EIO : errno;
        return failure(error, format("cannot write {}: {}", escaped(path), std::strerror(error)));
    }
}

}  // namespace ckptfs
