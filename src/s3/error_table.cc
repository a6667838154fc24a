// SPDX-License-Identifier: Apache-2.0
#include "s3/error_table.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs::s3 {
namespace {

struct Rule {
    std::string_view code;
    int errno_value;
    Recovery recovery;
    // Empty: the store's own message says enough.
    std::string_view advice;
    bool outcome_unknown = false;
};

constexpr std::string_view kRightsAdvice = "the credentials do not allow this operation here";
constexpr std::string_view kExpiredAdvice = "the session has expired; renew the credentials";
constexpr std::string_view kIdentityAdvice =
    "the store does not know this access key; ckptfs doctor says where it comes from";
constexpr std::string_view kSecretAdvice = "check the secret access key and --region";
constexpr std::string_view kClockAdvice = "this machine's clock is wrong; synchronise it";
constexpr std::string_view kRegionAdvice = "the bucket is in another region; pass --region";
constexpr std::string_view kArchivedAdvice = "the object is archived; restore it first";
constexpr std::string_view kDamagedAdvice = "the data was corrupted in transit";
constexpr std::string_view kFullAdvice = "the store is full";
constexpr std::string_view kQuotaAdvice = "the bucket's quota is used up";
constexpr std::string_view kEndedUploadAdvice = "the upload is gone: ended by a lifecycle rule, by gc or by hand";
constexpr std::string_view kTlsAdvice = "the endpoint speaks TLS; did you mean https:// instead of http://?";
constexpr std::string_view kProxyAdvice = "this is not the store's answer; check the proxy in front of it";
constexpr std::string_view kBucketAdvice = "no such bucket; check its name and the endpoint";

constexpr auto kRules = std::to_array<Rule>({
    {"AccessDenied", EACCES, Recovery::kNone, kRightsAdvice},
    {"AllAccessDisabled", EACCES, Recovery::kNone, kRightsAdvice},
    {"AccountProblem", EACCES, Recovery::kNone, ""},
    {"NotSignedUp", EACCES, Recovery::kNone, ""},
    {"InvalidAccessKeyId", EACCES, Recovery::kRefreshCredentials, kIdentityAdvice},
    {"SignatureDoesNotMatch", EACCES, Recovery::kRefreshCredentials, kSecretAdvice},
    {"ExpiredToken", EACCES, Recovery::kRefreshCredentials, kExpiredAdvice},
    {"ExpiredTokenException", EACCES, Recovery::kRefreshCredentials, kExpiredAdvice},
    {"TokenRefreshRequired", EACCES, Recovery::kRefreshCredentials, kExpiredAdvice},
    {"InvalidToken", EACCES, Recovery::kRefreshCredentials, kExpiredAdvice},
    // Of MinIO.
    {"InvalidTokenId", EACCES, Recovery::kRefreshCredentials, kExpiredAdvice},
    {"InvalidSecurity", EACCES, Recovery::kRefreshCredentials, kExpiredAdvice},
    {"InvalidClientTokenId", EACCES, Recovery::kRefreshCredentials, kIdentityAdvice},
    {"UnrecognizedClientException", EACCES, Recovery::kRefreshCredentials, kIdentityAdvice},
    {"RequestTimeTooSkewed", EACCES, Recovery::kCorrectClock, kClockAdvice},
    {"RequestExpired", EACCES, Recovery::kCorrectClock, kClockAdvice},
    {"NoSuchKey", ENOENT, Recovery::kNone, ""},
    {"NoSuchVersion", ENOENT, Recovery::kNone, ""},
    {"NoSuchBucket", EIO, Recovery::kNone, kBucketAdvice},
    {"InvalidBucketName", EINVAL, Recovery::kNone, kBucketAdvice},
    {"NoSuchUpload", EIO, Recovery::kNone, kEndedUploadAdvice},
    {"InvalidPart", EIO, Recovery::kNone, ""},
    {"InvalidPartOrder", EIO, Recovery::kNone, ""},
    {"ConditionalRequestConflict", EIO, Recovery::kRetry, ""},
    {"OperationAborted", EIO, Recovery::kRetry, ""},
    {"InvalidRange", EINVAL, Recovery::kNone, ""},
    {"EntityTooLarge", EFBIG, Recovery::kNone, ""},
    {"EntityTooSmall", EINVAL, Recovery::kNone, ""},
    {"KeyTooLongError", ENAMETOOLONG, Recovery::kNone, ""},
    {"MetadataTooLarge", E2BIG, Recovery::kNone, ""},
    {"PermanentRedirect", EIO, Recovery::kNone, kRegionAdvice},
    {"AuthorizationHeaderMalformed", EIO, Recovery::kNone, kRegionAdvice},
    {"IllegalLocationConstraintException", EIO, Recovery::kNone, kRegionAdvice},
    {"TemporaryRedirect", EIO, Recovery::kRetry, kRegionAdvice},
    {"NotImplemented", EOPNOTSUPP, Recovery::kNone, ""},
    {"MethodNotAllowed", EOPNOTSUPP, Recovery::kNone, ""},
    {"InvalidObjectState", EIO, Recovery::kNone, kArchivedAdvice},
    {"BadDigest", EIO, Recovery::kRetryOnce, kDamagedAdvice},
    {"InvalidDigest", EIO, Recovery::kRetryOnce, kDamagedAdvice},
    {"XAmzContentSHA256Mismatch", EIO, Recovery::kRetryOnce, kDamagedAdvice},
    {"XAmzContentChecksumMismatch", EIO, Recovery::kRetryOnce, kDamagedAdvice},
    {"SlowDown", EIO, Recovery::kSlowDown, ""},
    {"ServiceUnavailable", EIO, Recovery::kSlowDown, ""},
    {"Throttling", EIO, Recovery::kSlowDown, ""},
    {"ThrottlingException", EIO, Recovery::kSlowDown, ""},
    {"RequestLimitExceeded", EIO, Recovery::kSlowDown, ""},
    {"TooManyRequests", EIO, Recovery::kSlowDown, ""},
    {"KMS.ThrottlingException", EIO, Recovery::kSlowDown, ""},
    {"InternalError", EIO, Recovery::kRetry, "", true},
    {"RequestTimeout", EIO, Recovery::kRetry, ""},
    {"IncompleteBody", EIO, Recovery::kRetry, ""},
    {"QuotaExceeded", EDQUOT, Recovery::kNone, kQuotaAdvice},
    {"XMinioAdminBucketQuotaExceeded", EDQUOT, Recovery::kNone, kQuotaAdvice},
    {"XMinioStorageFull", ENOSPC, Recovery::kNone, kFullAdvice},
    {"InsufficientStorage", ENOSPC, Recovery::kNone, kFullAdvice},
});

// The rule if the body has no code, or one that is not in the table.
Rule rule_by_status(int status) {
    switch (status) {
        case 301:
            return {"", EIO, Recovery::kNone, kRegionAdvice};
        case 307:
            return {"", EIO, Recovery::kRetry, kRegionAdvice};
        case 401:
        case 403:
            return {"", EACCES, Recovery::kNone, kRightsAdvice};
        case 404:
            return {"", ENOENT, Recovery::kNone, ""};
        case 405:
        case 501:
            return {"", EOPNOTSUPP, Recovery::kNone, ""};
        case 408:
            // From a proxy, which may have passed the request on: so may a 503 be. A store sends a code.
            return {"", EIO, Recovery::kRetry, "", true};
        case 409:
            return {"", EIO, Recovery::kRetry, ""};
        case 413:
            return {"", EFBIG, Recovery::kNone, ""};
        case 416:
            return {"", EINVAL, Recovery::kNone, ""};
        case 429:
            return {"", EIO, Recovery::kSlowDown, ""};
        case 503:
            return {"", EIO, Recovery::kSlowDown, "", true};
        case 507:
            return {"", ENOSPC, Recovery::kNone, kFullAdvice};
        default:
            break;
    }
    if (status >= 500) {
        return {"", EIO, Recovery::kRetry, "", true};
    }
    return {"", status >= 400 ? EINVAL : EIO, Recovery::kNone, ""};
}

constexpr Rule kProxyRule{"", EIO, Recovery::kRetry, kProxyAdvice, true};

Rule rule_for(std::string_view code, int status) {
    const auto* const found =
        std::find_if(kRules.begin(), kRules.end(), [code](const Rule& rule) { return rule.code == code; });
    return found != kRules.end() ? *found : rule_by_status(status);
}

bool is_precondition_failure(std::string_view code, int status) {
    return code == "PreconditionFailed" || (code.empty() && status == 412);
}

std::string precondition_advice(int errno_value) {
    return errno_value == EEXIST ? "the key exists already" : "the object has been replaced or removed meanwhile";
}

// "Required permissions for Amazon S3 API operations", Amazon S3 User Guide. Without the right to list a bucket, the
// reply for a key that does not exist is 403.
struct Right {
    std::string_view operation;
    std::string_view action;
};
constexpr auto kRights = std::to_array<Right>({
    {"HeadObject", "s3:GetObject, and s3:ListBucket for names that are not there"},
    {"GetObject", "s3:GetObject, and s3:ListBucket for names that are not there"},
    {"PutObject", "s3:PutObject"},
    {"CopyObject", "s3:GetObject and s3:PutObject"},
    {"DeleteObject", "s3:DeleteObject"},
    {"DeleteObjects", "s3:DeleteObject"},
    {"ListObjectsV2", "s3:ListBucket"},
    {"CreateMultipartUpload", "s3:PutObject"},
    {"UploadPart", "s3:PutObject"},
    {"UploadPartCopy", "s3:GetObject and s3:PutObject"},
    {"CompleteMultipartUpload", "s3:PutObject"},
    {"AbortMultipartUpload", "s3:AbortMultipartUpload"},
    {"ListMultipartUploads", "s3:ListBucketMultipartUploads"},
    {"ListParts", "s3:ListMultipartUploadParts"},
});

std::string_view right_for(std::string_view operation) {
    const auto* const found = std::find_if(kRights.begin(), kRights.end(),
                                           [operation](const Right& each) { return each.operation == operation; });
    return found == kRights.end() ? std::string_view() : found->action;
}

// Most bytes of a store's own message: a page of HTML is none.
constexpr std::size_t kMostWords = 512;
// The longest of Amazon S3's has 47 characters.
constexpr std::size_t kLongestCode = 64;

// Codes become labels of metrics and words of the log: a server must not choose how many and what.
std::string code_as_label(std::string_view code) {
    const bool usual = code.size() <= kLongestCode && std::all_of(code.begin(), code.end(), [](char letter) {
                           return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                                  (letter >= '0' && letter <= '9') || letter == '.' || letter == '_' || letter == '-';
                       });
    return std::string(usual ? code : std::string_view("UnusualCode"));
}

std::string region_of(const FailedRequest& failed) {
    return failed.region.empty() ? failed.body.region : failed.region;
}

std::string advice_for(const FailedRequest& failed, const Rule& rule) {
    if (failed.wants_tls) {
        return std::string(kTlsAdvice);
    }
    const std::string region = region_of(failed);
    if (rule.advice == kRegionAdvice && !region.empty()) {
        return format("the bucket is in region {}; pass --region {}", escaped(region), escaped(region));
    }
    const std::string_view right = right_for(failed.operation);
    if (rule.advice == kRightsAdvice && !right.empty()) {
        return format("{} ({})", kRightsAdvice, right);
    }
    return std::string(rule.advice);
}

}  // namespace

std::string request_name(std::string_view operation, std::string_view bucket, std::string_view key) {
    return format("{} s3://{}/{}", operation, escaped(bucket), escaped(key));
}

bool asks_for_tls(std::string_view body) {
    // Replies of Go's net/http, nginx and Apache httpd.
    constexpr auto kWords =
        std::to_array<std::string_view>({"HTTP request to an HTTPS server", "plain HTTP request was sent to HTTPS port",
                                         "speaking plain HTTP to an SSL-enabled server port"});
    return std::any_of(kWords.begin(), kWords.end(),
                       [body](std::string_view words) { return body.find(words) != std::string_view::npos; });
}

Error store_error(const FailedRequest& failed) {
    const Rule rule = failed.by_proxy ? kProxyRule : rule_for(failed.body.code, failed.status);
    Error error;
    error.errno_value = rule.errno_value;
    error.s3_code = code_as_label(failed.body.code);
    error.http_status = failed.status;
    error.retryable = rule.recovery != Recovery::kNone;
    error.outcome_unknown = rule.outcome_unknown;
    error.request_id = (failed.request_id.empty() ? failed.body.request_id : failed.request_id).substr(0, kMostWords);
    std::string advice = advice_for(failed, rule);
    if (is_precondition_failure(failed.body.code, failed.status)) {
        error.errno_value = failed.precondition_errno;
        error.retryable = false;
        advice = precondition_advice(failed.precondition_errno);
    }
    error.message = request_name(failed.operation, failed.bucket, failed.key) + ": ";
    error.message += failed.body.code.empty() ? format("HTTP status {}", failed.status) : error.s3_code;
    if (!advice.empty()) {
        error.message += ": " + advice;
    } else if (!failed.body.message.empty()) {
        error.message += ": " + escaped(failed.body.message.substr(0, kMostWords));
    }
    if (!error.request_id.empty()) {
        error.message += format(" (request {})", escaped(error.request_id));
    }
    return error;
}

Error condition_failed(std::string_view operation, std::string_view bucket, std::string_view key,
                       int precondition_errno) {
    FailedRequest failed;
    failed.operation = operation;
    failed.bucket = bucket;
    failed.key = key;
    failed.status = 412;
    failed.body.code = "PreconditionFailed";
    failed.precondition_errno = precondition_errno;
    Error error = store_error(failed);
    error.http_status = 0;
    return error;
}

Recovery recovery_of(const Error& error) {
    if (!error.retryable) {
        return Recovery::kNone;
    }
    if (error.http_status == 0 && error.s3_code.empty()) {
        return Recovery::kRetry;
    }
    const Recovery recovery = rule_for(error.s3_code, error.http_status).recovery;
    // An unreadable body of a good status has no rule of its own.
    return recovery == Recovery::kNone ? Recovery::kRetry : recovery;
}

}  // namespace ckptfs::s3
