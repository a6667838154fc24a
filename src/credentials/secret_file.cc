// SPDX-License-Identifier: Apache-2.0
#include "credentials/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "base/text_file.h"

namespace ckptfs {

Result<Secret> read_secret_file(const std::string& path, const char* what) {
    const auto text = read_text_file(AT_FDCWD, path.c_str());
    if (!text) {
        return failure(EACCES, format("{} {}: {}", what, path, std::strerror(errno)));
    }
    constexpr const char* kBlank = " \t\r\n";
    const std::size_t first = text->find_first_not_of(kBlank);
    if (first == std::string::npos) {
        return failure(EACCES, format("{} {}: the file is empty", what, path));
    }
    std::string secret = text->substr(first, text->find_last_not_of(kBlank) - first + 1);
    if (secret.find_first_of("\r\n") != std::string::npos) {
        return failure(EACCES, format("{} {}: more than one line", what, path));
    }
    return Secret(std::move(secret));
}

Status replace_secret_file(const std::string& path, std::string_view text) {
    const auto problem = [] { return failure(errno, std::strerror(errno)); };
    struct stat old = {};
    if (stat(path.c_str(), &old) != 0) {
        return problem();
    }
    // Beside the old file, with an ending that the AWS tools do not look for.
    std::string unfinished = path + ".XXXXXX";
    const FileDescriptor file(::mkostemp(unfinished.data(), O_CLOEXEC));
    if (!file) {
        return problem();
    }
    // If root runs with a user's home, the file stays the user's.
    const bool is_owners = old.st_uid == geteuid() || fchown(file.get(), old.st_uid, old.st_gid) == 0;
    if (!is_owners || !write_text(file.get(), text) || fsync(file.get()) != 0 ||
        std::rename(unfinished.c_str(), path.c_str()) != 0) {
        const auto failed = problem();
        unlink(unfinished.c_str());
        return failed;
    }
    return {};
}

}  // namespace ckptfs
