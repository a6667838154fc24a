// SPDX-License-Identifier: Apache-2.0
#include "credentials/secret_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

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

}  // namespace ckptfs
