// SPDX-License-Identifier: Apache-2.0
#include "credentials/source_chain.h"

#include <utility>

#include "base/text.h"

namespace ckptfs {

SourceChain::SourceChain(std::vector<std::unique_ptr<CredentialSource>> sources, std::string advice)
    : sources_(std::move(sources)), advice_(std::move(advice)) {}

std::string SourceChain::name() const {
    return chosen_ != nullptr ? chosen_->name() : "any source";
}

Result<SharedCredentials> SourceChain::fetch(const std::stop_token& stop) {
    if (chosen_ != nullptr) {
        return fetch_again(stop);
    }
    for (const auto& source : sources_) {
        Result<SharedCredentials> found = source->fetch(stop);
        if (!found) {
            return found;
        }
        if (*found) {
            chosen_ = source.get();
            return found;
        }
    }
    return failure(none_found());
}

Result<SharedCredentials> SourceChain::fetch_again(const std::stop_token& stop) {
    Result<SharedCredentials> found = chosen_->fetch(stop);
    if (found && !*found) {
        return failure(EACCES, format("{} has no credentials any more", chosen_->name()));
    }
    return found;
}

Error SourceChain::none_found() const {
    std::string looked_at;
    for (const auto& source : sources_) {
        looked_at += format("{}{}", looked_at.empty() ? "" : ", ", source->name());
    }
    Error error;
    error.errno_value = EACCES;
    error.message = format("no credentials in {}; {}", looked_at, advice_);
    return error;
}

}  // namespace ckptfs
