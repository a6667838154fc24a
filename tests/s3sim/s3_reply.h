// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an operation answers, and its form on the wire. Pure.

#include <string>
#include <vector>

#include "byte_chain.h"
#include "outcome.h"
#include "pacer.h"
#include "times.h"
#include "xml.h"

namespace ckptfs::s3sim {

struct S3Reply {
    int status = 200;
    std::vector<NameValue> headers;
    ByteChain body;
    std::uint64_t bytes_copied = 0;  // within the store: they take time by the model

    static S3Reply xml(std::string document);
};

struct ReplyContext {
    bool head_request = false;
    bool keep_alive = true;
    std::string request_id;
    std::string resource;
    std::string region;
    SystemTime now;
};

S3Reply error_reply(const S3Error& error, const ReplyContext& context);

// Status line and headers, with the blank line.
std::string render_head(const S3Reply& reply, const ReplyContext& context, bool chunked = false);

}  // namespace ckptfs::s3sim
