// SPDX-License-Identifier: Apache-2.0
// Sources in order: the first that has credentials is used from then on.
//
// A source that is configured and fails ends the search, and a source that once had credentials is not left for a later
// one: a mount must not go on under another identity because a file was moved.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "credentials/source.h"

namespace ckptfs {

class SourceChain final : public CredentialSource {
public:
    // `advice` ends the message that names the sources in which nothing was found.
    SourceChain(std::vector<std::unique_ptr<CredentialSource>> sources, std::string advice);

    [[nodiscard]] std::string name() const override;
    // Never returns null.
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    [[nodiscard]] Result<SharedCredentials> fetch_again(const std::stop_token& stop);
    [[nodiscard]] Error none_found() const;

    const std::vector<std::unique_ptr<CredentialSource>> sources_;
    const std::string advice_;
    CredentialSource* chosen_ = nullptr;
};

}  // namespace ckptfs
