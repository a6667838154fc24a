// SPDX-License-Identifier: Apache-2.0
#include "credentials/process_source.h"

#include <memory>

#include "base/text.h"
#include "credentials/credential_json.h"
#include "credentials/program_output.h"

namespace ckptfs {

Result<SharedCredentials> ProcessSource::fetch(const std::stop_token& stop) {
    const auto words = split_words(command_);
    if (!words) {
        return failure(EINVAL, format("credential_process: {}", words.error().message));
    }
    const auto output = program_output(*words, limit_, stop);
    if (!output) {
        return failure(EACCES, format("credential_process: {}", output.error().message));
    }
    auto credentials = parse_process_credentials(*output);
    if (!credentials) {
        return failure(EACCES, format("credential_process: invalid output: {}", credentials.error().message));
    }
    return std::make_shared<const Credentials>(std::move(*credentials));
}

}  // namespace ckptfs
