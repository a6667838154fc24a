// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "ckptfs/log.h"
#include "cli/commands.h"
#include "daemon/control.h"
#include "daemon/mount_status.h"
#include "daemon/mounted_daemon.h"
#include "daemon/status_json.h"

namespace ckptfs {
namespace {

constexpr std::chrono::milliseconds kWaitPeriod{100};
constexpr std::chrono::seconds kWatchPeriod{1};
constexpr std::chrono::seconds kPatience{10};

struct Round {
    std::string text;
    bool all_safe = true;
    // Errors of the daemons that did not answer.
    std::vector<std::string> silent;
};

// Asks the daemons of `mounts`, and those that have lost their mount and still save.
std::vector<Result<std::string>> ask_all(const std::vector<MountEntry>& mounts, const std::string& directory) {
    std::vector<Result<std::string>> answers;
    for (const MountEntry& mount : mounts) {
        answers.push_back(ask_for_status(mount, kPatience));
    }
    std::vector<Result<std::string>> detached = ask_detached(mounts, directory, kPatience);
    std::move(detached.begin(), detached.end(), std::back_inserter(answers));
    return answers;
}

Error nothing_mounted() {
    const auto all = read_mount_table();
    const bool others = all && std::any_of(all->begin(), all->end(),
                                           [](const MountEntry& each) { return each.type == kFileSystemType; });
    Error error;
    error.errno_value = ENOENT;
    error.message =
        others ? "no ckptfs mount here belongs to this user; those of other users answer only to them and to root"
               : "no ckptfs is mounted here";
    return error;
}

// One line a mount for machines, a paragraph for people.
Result<Round> look(const StatusRequest& request) {
    std::vector<MountEntry> mounts;
    Error none = nothing_mounted();
    if (request.directory.empty()) {
        auto all = find_mounts();
        if (!all) {
            return failure(all.error());
        }
        mounts = std::move(*all);
    } else if (auto mount = find_mount(request.directory)) {
        mounts.push_back(std::move(*mount));
    } else {
        none = std::move(mount.error());
    }
    const std::vector<Result<std::string>> answers = ask_all(mounts, request.directory);
    if (answers.empty()) {
        return failure(std::move(none));
    }
    Round round;
    for (const Result<std::string>& json : answers) {
        const Result<MountStatus> status = json ? parse_status(*json) : failure(json.error());
        if (!status) {
            round.silent.push_back(status.error().message);
            continue;
        }
        round.all_safe = round.all_safe && status->safe_to_stop();
        round.text += request.json ? json_of(*status) : (round.text.empty() ? "" : "\n") + status_text(*status);
    }
    return round;
}

void print(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
}

}  // namespace

int status_command(const StatusRequest& request) {
    for (;;) {
        const Result<Round> round = look(request);
        if (!round || !round->silent.empty()) {
            print(round ? round->text : "");
            for (const std::string& each : round ? round->silent : std::vector{round.error().message}) {
                std::fprintf(stderr, "ckptfs: %s\n", each.c_str());
            }
            return 1;
        }
        if (request.watch) {
            // ECMA-48: to the first line and column, and erase what is below.
            print((request.json ? "" : "\x1b[H\x1b[J") + round->text);
            std::this_thread::sleep_for(kWatchPeriod);
        } else if (request.wait && !round->all_safe) {
            std::this_thread::sleep_for(kWaitPeriod);
        } else {
            print(round->text);
            return 0;
        }
    }
}

}  // namespace ckptfs
