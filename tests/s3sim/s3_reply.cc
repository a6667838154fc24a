// SPDX-License-Identifier: Apache-2.0
#include "s3_reply.h"

#include <algorithm>

#include "http_message.h"

namespace ckptfs::s3sim {
namespace {

void append_header(std::string& head, std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
}

bool has_header(const S3Reply& reply, std::string_view name) {
    return std::any_of(reply.headers.begin(), reply.headers.end(),
                       [name](const NameValue& header) { return header.first == name; });
}

}  // namespace

S3Reply S3Reply::xml(std::string document) {
    S3Reply reply;
    reply.headers.emplace_back("Content-Type", "application/xml");
    reply.body = ByteChain::from_string(std::move(document));
    return reply;
}

S3Reply error_reply(const S3Error& error, const ReplyContext& context) {
    S3Reply reply;
    reply.status = error.status;
    reply.headers = error.headers;
    if (context.head_request || error.status == 304) {
        return reply;  // the status is all that a client learns, as with S3
    }
    XmlWriter writer;
    writer.open("Error");
    writer.element("Code", error.code);
    writer.element("Message", error.message);
    for (const auto& [name, value] : error.details) {
        writer.element(name, value);
    }
    writer.element("Resource", context.resource);
    writer.element("RequestId", context.request_id);
    writer.element("HostId", "s3sim");
    reply.headers.emplace_back("Content-Type", "application/xml");
    reply.body = ByteChain::from_string(writer.finish());
    return reply;
}

std::string render_head(const S3Reply& reply, const ReplyContext& context, bool chunked) {
    std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " ";
    head.append(reason_phrase(reply.status)).append("\r\n");
    append_header(head, "Date", http_date(context.now));
    append_header(head, "Server", "s3sim");
    append_header(head, "x-amz-request-id", context.request_id);
    append_header(head, "x-amz-id-2", "s3sim");
    append_header(head, "x-amz-bucket-region", context.region);
    for (const auto& [name, value] : reply.headers) {
        append_header(head, name, value);
    }
    if (chunked) {
        append_header(head, "Transfer-Encoding", "chunked");
    } else if (reply.status != 204 && reply.status != 304 && !has_header(reply, "Content-Length")) {
        append_header(head, "Content-Length", std::to_string(reply.body.size()));
    }
    if (!context.keep_alive) {
        append_header(head, "Connection", "close");
    }
    return head + "\r\n";
}

}  // namespace ckptfs::s3sim
