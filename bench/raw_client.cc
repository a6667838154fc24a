// SPDX-License-Identifier: Apache-2.0
// Uploads or downloads as many bytes as told by libcurl alone, unsigned, in parts over parallel connections, and prints
// one line of JSON: what the mount's rates are to be compared with.
//   raw_client put|get URL --bytes N [--connections C] [--part-size P] [--ca-bundle FILE]
#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "measure.h"
#include "raw_transfers.h"

namespace ckptfs::bench {
namespace {

struct Options {
    std::string action;
    std::string url;
    std::uint64_t bytes = 0;
    std::size_t part_size = std::size_t{16} << 20;
    RawOptions raw;
};

std::size_t size_of_part(const Options& options, std::uint64_t offset) {
    return static_cast<std::size_t>(std::min<std::uint64_t>(options.part_size, options.bytes - offset));
}

// The text of the only element of that name. Upload ids hold nothing that XML would escape.
std::string element_text(const std::string& xml, const std::string& name) {
    const std::string open = "<" + name + ">";
    const std::size_t begin = xml.find(open);
    const std::size_t end = xml.find("</" + name + ">");
    if (begin == std::string::npos || end == std::string::npos) {
        throw std::runtime_error("no " + name + " in the reply: " + xml);
    }
    return xml.substr(begin + open.size(), end - begin - open.size());
}

std::string complete_body(const std::vector<RawReply>& parts) {
    std::string xml = "<CompleteMultipartUpload>";
    for (std::size_t i = 0; i < parts.size(); ++i) {
        xml += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + parts[i].etag + "</ETag></Part>";
    }
    return xml + "</CompleteMultipartUpload>";
}

void put(const Options& options, RawTransfers& transfers, std::span<const std::byte> content) {
    const RawReply created = transfers.run_one({"POST", options.url + "?uploads", {}, {}, 0});
    const std::string upload = "uploadId=" + element_text(created.text, "UploadId");
    std::vector<RawRequest> requests;
    for (std::uint64_t offset = 0; offset < options.bytes; offset += options.part_size) {
        const std::string part = "?partNumber=" + std::to_string(requests.size() + 1) + "&";
        requests.push_back({"PUT", options.url + part + upload, {}, content.first(size_of_part(options, offset)), 0});
    }
    const std::string body = complete_body(transfers.run(requests));
    const RawReply completed =
        transfers.run_one({"POST", options.url + "?" + upload, {}, std::as_bytes(std::span(body)), 0});
    // S3 may answer 200 and tell of a failure in the body.
    if (completed.text.find("<CompleteMultipartUploadResult") == std::string::npos) {
        throw std::runtime_error("the upload was not completed: " + completed.text);
    }
}

void get(const Options& options, RawTransfers& transfers) {
    std::vector<RawRequest> requests;
    for (std::uint64_t offset = 0; offset < options.bytes; offset += options.part_size) {
        const std::size_t size = size_of_part(options, offset);
        requests.push_back(
            {"GET", options.url, std::to_string(offset) + "-" + std::to_string(offset + size - 1), {}, size});
    }
    transfers.run(requests);
}

Options parse_options(int argc, char** argv) {
    const std::vector<option> known = {{"bytes", required_argument, nullptr, 'b'},
                                       {"connections", required_argument, nullptr, 'c'},
                                       {"part-size", required_argument, nullptr, 'p'},
                                       {"ca-bundle", required_argument, nullptr, 'a'},
                                       {nullptr, 0, nullptr, 0}};
    Options options;
    for (int name = 0; (name = getopt_long(argc, argv, "", known.data(), nullptr)) != -1;) {
        switch (name) {
            case 'b':
                options.bytes = std::stoull(optarg);
                break;
            case 'c':
                options.raw.connections = static_cast<unsigned>(std::stoul(optarg));
                break;
            case 'p':
                options.part_size = std::stoull(optarg);
                break;
            case 'a':
                options.raw.ca_bundle = optarg;
                break;
            default:
                throw std::invalid_argument("unknown option");
        }
    }
    if (argc - optind == 2) {
        options.action = argv[optind];
        options.url = argv[optind + 1];
    }
    if ((options.action != "put" && options.action != "get") || options.bytes == 0 || options.part_size == 0 ||
        options.raw.connections == 0) {
        throw std::invalid_argument("raw_client put|get URL --bytes N [--connections C] [--part-size P]");
    }
    return options;
}

void run(Options options) {
    // Memory is touched before the clock starts: the mount is measured warm, too.
    const std::vector<std::byte> content = random_bytes(options.action == "put" ? options.part_size : 0);
    options.raw.largest_payload = options.action == "get" ? options.part_size : 0;
    RawTransfers transfers(options.raw);
    const Stopwatch stopwatch;
    if (options.action == "put") {
        put(options, transfers, content);
    } else {
        get(options, transfers);
    }
    print_result(options.action, options.bytes, stopwatch);
}

}  // namespace
}  // namespace ckptfs::bench

int main(int argc, char** argv) {
    try {
        ckptfs::bench::run(ckptfs::bench::parse_options(argc, argv));
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "raw_client: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
