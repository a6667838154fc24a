// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/executors.h"
#include "base/system_clock.h"
#include "base/text.h"
#include "base/timer_thread.h"
#include "ckptfs/log.h"
#include "cli/commands.h"
#include "codec/codecs.h"
#include "config/scale.h"
#include "daemon/background.h"
#include "daemon/store_client.h"
#include "tools/cat_object.h"
#include "tools/collect_garbage.h"
#include "tools/inspect_object.h"
#include "tools/json_reports.h"
#include "tools/verify_objects.h"

namespace ckptfs {
namespace {

// Exit status of verify if something could not be checked.
constexpr int kNotChecked = 2;

// The store and the codec, as a mount has them.
class Access {
public:
    static Result<std::unique_ptr<Access>> create(const Config& config) {
        std::unique_ptr<Access> access(new Access);
        auto codec = make_codec(config.codec);
        if (!codec) {
            return failure(codec.error());
        }
        access->codec_ = std::move(*codec);
        auto client = StoreClient::create(config.store, access->timer_, access->clock_, *access->executor_);
        if (!client) {
            return failure(client.error());
        }
        access->client_ = std::move(*client);
        return access;
    }
    ~Access() {
        if (client_ != nullptr) {
            client_->stop();
        }
        executor_->stop();
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

    [[nodiscard]] ObjectStore& store() const { return client_->store(); }
    [[nodiscard]] const Codec& codec() const { return *codec_; }
    [[nodiscard]] const Clock& clock() const { return client_->clock(); }

private:
    Access() = default;

    SystemClock clock_;
    TimerThread timer_{clock_};
    std::unique_ptr<Executor> executor_ = make_executor();
    std::unique_ptr<StoreClient> client_;
    std::unique_ptr<Codec> codec_;
};

int fail(const Error& error, int code = 1) {
    std::fprintf(stderr, "ckptfs: %s\n", escaped(error.message).c_str());
    return code;
}

Status write_out(ByteSpan bytes) {
    while (!bytes.empty()) {
        const ssize_t written = write(STDOUT_FILENO, bytes.data(), bytes.size());
        if (written < 0 && errno == EPIPE) {
            // The reader has closed its end: exit like a program that does not ignore the signal. This thread may
            // have it blocked.
            std::signal(SIGPIPE, SIG_DFL);
            kill(getpid(), SIGPIPE);
        }
        if (written < 0 && errno != EINTR) {
            return failure(errno, format("standard output: {}", std::strerror(errno)));
        }
        bytes = bytes.subspan(written < 0 ? 0 : static_cast<std::size_t>(written));
    }
    return {};
}

int inspect(const Access& access, const ToolRequest& request, const std::string& key) {
    const auto report = inspect_object(access.store(), access.codec(), key);
    if (!report) {
        return fail(report.error());
    }
    const Status written = write_out(as_bytes(request.json ? json_of(*report) : describe(*report)));
    return written ? 0 : fail(written.error());
}

int cat(const Access& access, const std::string& key) {
    const Status written = cat_object(access.store(), access.codec(), key, write_out);
    return written ? 0 : fail(written.error());
}

// One line on the terminal, which is overwritten.
class ProgressLine {
public:
    explicit ProgressLine(const Clock& clock) : clock_(clock), shown_(isatty(STDERR_FILENO) != 0) {}

    void show(const VerifyTotals& totals) {
        constexpr Milliseconds kEvery{200};
        if (shown_ && clock_.now() - last_ >= kEvery) {
            clear();
            std::fprintf(stderr, "checked %s", describe(totals).c_str());
            last_ = clock_.now();
        }
    }
    void clear() const {
        if (shown_ && last_ != SteadyTime{}) {
            std::fputs(kClearLine, stderr);
        }
    }

private:
    const Clock& clock_;
    const bool shown_;
    SteadyTime last_{};
};

int verify(const Access& access, const ToolRequest& request) {
    ProgressLine line(access.clock());
    const auto problem = [&](const ObjectProblem& found) {
        line.clear();
        static_cast<void>(!write_out(as_bytes(request.json ? json_of(found) : describe(found) + "\n")));
    };
    const auto totals = verify_objects(access.store(), access.codec(), request.object.key,
                                       {problem, [&](const VerifyTotals& so_far) { line.show(so_far); }});
    line.clear();
    if (!totals) {
        return fail(totals.error(), kNotChecked);
    }
    const Status written = write_out(as_bytes(request.json ? json_of(*totals) : describe(*totals) + "\n"));
    return written ? exit_code(*totals) : fail(written.error(), kNotChecked);
}

int gc(const Access& access, const ToolRequest& request, const std::string& prefix) {
    const auto found = [&](const FoundLeftover& leftover) {
        static_cast<void>(!write_out(as_bytes(request.json ? json_of(leftover) : describe(leftover) + "\n")));
    };
    const GarbageRequest garbage{prefix, request.older_than, request.end, request.forget_disks};
    const auto totals = collect_garbage(access.store(), access.clock(), garbage, found);
    if (!totals) {
        return fail(totals.error());
    }
    const Status written = write_out(as_bytes(request.json ? json_of(*totals) : describe(*totals) + "\n"));
    return written ? exit_code(*totals) : fail(written.error());
}

}  // namespace

int tool_command(const ToolRequest& request, const Config& config) {
    if (request.tool == Tool::kDoctor) {
        return doctor_command(request, config);
    }
    // A store that does not answer is waited for, for minutes; a warning says so after the first second.
    set_log_level(LogLevel::kWarning);
    hide_memory();
    // libcurl and OpenSSL may write to connections that are gone.
    std::signal(SIGPIPE, SIG_IGN);
    const auto access = Access::create(scaled(config, processor_count()));
    if (!access) {
        return fail(access.error(), request.tool == Tool::kVerify ? kNotChecked : 1);
    }
    switch (request.tool) {
        case Tool::kInspect:
            return inspect(**access, request, request.object.key);
        case Tool::kCat:
            return cat(**access, request.object.key);
        case Tool::kVerify:
            return verify(**access, request);
        case Tool::kGc:
            return gc(**access, request, config.store.prefix);
        case Tool::kDoctor:
            break;
    }
    return 1;
}

}  // namespace ckptfs
