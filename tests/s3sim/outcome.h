// SPDX-License-Identifier: Apache-2.0
#pragma once

// The result of every operation of the simulator: a value or the error that S3 would answer.

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace ckptfs::s3sim {

using NameValue = std::pair<std::string, std::string>;

struct S3Error {
    int status = 500;
    std::string code;
    std::string message;
    std::vector<NameValue> details;  // further elements of the XML body
    std::vector<NameValue> headers;  // further headers of the reply
};

template <class T>
using Outcome = tl::expected<T, S3Error>;

// Status and usual text come from the table of S3's documented error codes; an unknown code is a 400.
S3Error s3_error(std::string_view code, std::string_view message = {});

// For `return fail("NoSuchKey");` in functions that return an Outcome.
tl::unexpected<S3Error> fail(std::string_view code, std::string_view message = {});

}  // namespace ckptfs::s3sim
