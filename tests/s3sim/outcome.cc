// SPDX-License-Identifier: Apache-2.0
#include "outcome.h"

#include <algorithm>
#include <array>

namespace ckptfs::s3sim {
namespace {

struct KnownError {
    std::string_view code;
    int status;
    std::string_view message;
};

// Amazon S3 API Reference, "Error responses", list of error codes.
constexpr auto kKnownErrors = std::to_array<KnownError>({
    {"AccessDenied", 403, "Access Denied"},
    {"AuthorizationHeaderMalformed", 400, "The authorization header that you provided is not valid."},
    {"AuthorizationQueryParametersError", 400, "The authorization query parameters are not valid."},
    {"BadDigest", 400, "The Content-MD5 or checksum value that you specified did not match what the server received."},
    {"BucketAlreadyOwnedByYou", 409,
     "Your previous request to create the named bucket succeeded and you already own it."},
    {"BucketNotEmpty", 409, "The bucket you tried to delete is not empty."},
    {"ConditionalRequestConflict", 409, "A conflicting operation occurred during this request. Try again."},
    {"EntityTooLarge", 400, "Your proposed upload exceeds the maximum allowed object size."},
    {"EntityTooSmall", 400, "Your proposed upload is smaller than the minimum allowed object size."},
    {"ExpiredToken", 400, "The provided token has expired."},
    {"IncompleteBody", 400, "You did not provide the number of bytes specified by the Content-Length HTTP header."},
    {"InternalError", 500, "We encountered an internal error. Please try again."},
    {"InvalidAccessKeyId", 403, "The AWS access key ID that you provided does not exist in our records."},
    {"InvalidArgument", 400, "Invalid argument."},
    {"InvalidBucketName", 400, "The specified bucket is not valid."},
    {"InvalidDigest", 400, "The Content-MD5 or checksum value that you specified is not valid."},
    {"InvalidPart", 400,
     "One or more of the specified parts could not be found. The part might not have been uploaded, or the specified "
     "entity tag might not have matched the part's entity tag."},
    {"InvalidPartNumber", 416, "The requested partnumber is not satisfiable."},
    {"InvalidPartOrder", 400, "The list of parts was not in ascending order. Parts must be ordered by part number."},
    {"InvalidRange", 416, "The requested range is not satisfiable."},
    {"InvalidRequest", 400, "Invalid request."},
    {"InvalidToken", 400, "The provided token is malformed or otherwise not valid."},
    {"InvalidURI", 400, "The specified URI could not be parsed."},
    {"KeyTooLongError", 400, "Your key is too long."},
    {"MalformedTrailerError", 400, "The request contained trailing data that was not well-formed."},
    {"MalformedXML", 400, "The XML that you provided was not well formed or did not validate against our schema."},
    {"MaxMessageLengthExceeded", 400, "Your request was too large."},
    {"MetadataTooLarge", 400, "Your metadata headers exceed the maximum allowed metadata size."},
    {"MethodNotAllowed", 405, "The specified method is not allowed against this resource."},
    {"MissingContentMD5", 400, "Missing required header for this request: Content-MD5."},
    {"MissingContentLength", 411, "You must provide the Content-Length HTTP header."},
    {"NoSuchBucket", 404, "The specified bucket does not exist."},
    {"NoSuchKey", 404, "The specified key does not exist."},
    {"NoSuchUpload", 404,
     "The specified multipart upload does not exist. The upload ID might be invalid, or the multipart upload might "
     "have been aborted or completed."},
    {"NotImplemented", 501, "A header or query that you provided requests functionality that is not implemented."},
    {"NotModified", 304, "Not Modified"},
    {"PermanentRedirect", 301,
     "The bucket that you are attempting to access must be addressed using the specified endpoint."},
    {"PreconditionFailed", 412, "At least one of the pre-conditions you specified did not hold."},
    {"RequestHeaderSectionTooLarge", 400, "Your request header section exceeds the maximum allowed size."},
    {"RequestTimeTooSkewed", 403, "The difference between the request time and the server's time is too large."},
    {"RequestTimeout", 400, "Your socket connection to the server was not read from or written to within the timeout."},
    {"ServiceUnavailable", 503, "Service is unable to handle request."},
    {"SignatureDoesNotMatch", 403,
     "The request signature we calculated does not match the signature you provided. Check your key and signing "
     "method."},
    {"SlowDown", 503, "Please reduce your request rate."},
    {"XAmzContentSHA256Mismatch", 400, "The provided 'x-amz-content-sha256' header does not match what was computed."},
});

}  // namespace

S3Error s3_error(std::string_view code, std::string_view message) {
    const auto* known = std::find_if(kKnownErrors.begin(), kKnownErrors.end(),
                                     [code](const KnownError& entry) { return entry.code == code; });
    S3Error error;
    error.code = code;
    error.status = known == kKnownErrors.end() ? 400 : known->status;
    error.message = message.empty() && known != kKnownErrors.end() ? known->message : message;
    return error;
}

tl::unexpected<S3Error> fail(std::string_view code, std::string_view message) {
    return tl::unexpected<S3Error>(s3_error(code, message));
}

}  // namespace ckptfs::s3sim
