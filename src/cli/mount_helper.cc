// SPDX-License-Identifier: Apache-2.0
#include "cli/mount_helper.h"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// -sfnvrw, one by one or together.
bool is_helper_flags(std::string_view word) {
    return word.size() > 1 && word.front() == '-' && word.find_first_not_of("sfnvrw", 1) == std::string_view::npos;
}

void apply_flags(std::string_view flags, HelperCall& call) {
    call.pretend = call.pretend || flags.find('f') != std::string_view::npos;
    call.sloppy = call.sloppy || flags.find('s') != std::string_view::npos;
    for (const char flag : flags) {
        if (flag == 'r' || flag == 'w') {
            call.words.insert(call.words.end(), {"-o", flag == 'r' ? "ro" : "rw"});
        }
    }
}

}  // namespace

bool is_helper_call(const std::vector<std::string>& arguments) {
    if (arguments.empty()) {
        return false;
    }
    const std::string program = arguments.front().substr(arguments.front().rfind('/') + 1);
    return program.starts_with("mount.");
}

HelperCall parse_helper_call(const std::vector<std::string>& arguments) {
    HelperCall call;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        if (word == "-o") {
            call.words.push_back(word);
            if (i + 1 < arguments.size()) {
                call.words.push_back(arguments[++i]);
            }
        } else if (word == "-t") {
            ++i;
        } else if (word == "-N") {
            call.mount_namespace = i + 1 < arguments.size() ? arguments[++i] : "";
        } else if (is_helper_flags(word)) {
            apply_flags(word, call);
        } else {
            call.words.push_back(word);
        }
    }
    return call;
}

Status enter_mount_namespace(const std::string& file) {
    const FileDescriptor target(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!target || setns(target.get(), CLONE_NEWNS) != 0) {
        return failure(errno, format("cannot enter the mount namespace {}: {}", escaped(file), std::strerror(errno)));
    }
    return {};
}

}  // namespace ckptfs
