// SPDX-License-Identifier: Apache-2.0
#pragma once

// TLS for the simulator: a given certificate, or one made on the spot that a test can be told to trust.

#include <memory>
#include <string>

#include "stream.h"

namespace ckptfs::s3sim {

struct Certificate {
    std::string certificate_pem;
    std::string key_pem;
};

// Self-signed, for localhost, 127.0.0.1 and `address`, valid for ten years. Throws std::runtime_error.
Certificate make_self_signed_certificate(const std::string& address);

// Throws std::runtime_error where the certificate or key cannot be used.
std::unique_ptr<TlsContext> make_tls_context(const Certificate& certificate);

}  // namespace ckptfs::s3sim
