// SPDX-License-Identifier: Apache-2.0
#include "tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <stdexcept>

namespace ckptfs::s3sim {
namespace {

constexpr long kValidSeconds = 10L * 365 * 24 * 3600;

template <class T, void (*Free)(T*)>
struct FreeWith {
    void operator()(T* object) const { Free(object); }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY, EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, FreeWith<X509, X509_free>>;
using SslContextPtr = std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX, SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, FreeWith<SSL, SSL_free>>;
using BioPtr = std::unique_ptr<BIO, FreeWith<BIO, BIO_free_all>>;

template <class T>
T checked(T result, const char* what) {
    if (!result) {
        std::array<char, 256> reason{};
        ERR_error_string_n(ERR_get_error(), reason.data(), reason.size());
        throw std::runtime_error(std::string(what) + ": " + reason.data());
    }
    return result;
}

void add_extension(X509* certificate, int id, const std::string& value) {
    X509_EXTENSION* extension =
        checked(X509V3_EXT_conf_nid(nullptr, nullptr, id, value.c_str()), "certificate extension");
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
}

std::string text_of(const BioPtr& bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return {data, static_cast<std::size_t>(size)};
}

class TlsStream final : public Stream {
public:
    TlsStream(SSL_CTX* context, int fd) : fd_(fd), ssl_(checked(SSL_new(context), "SSL_new")) {
        SSL_set_fd(ssl_.get(), fd_);
        SSL_set_accept_state(ssl_.get());
    }
    ~TlsStream() override { close(fd_); }
    TlsStream(const TlsStream&) = delete;
    TlsStream& operator=(const TlsStream&) = delete;

    int fd() const override { return fd_; }
    IoResult receive(std::span<std::byte> buffer) override {
        ERR_clear_error();
        return io_result(SSL_read(ssl_.get(), buffer.data(), clamped(buffer.size())));
    }
    IoResult send(std::span<iovec> pieces) override {
        std::size_t sent = 0;
        for (const iovec& piece : pieces) {
            ERR_clear_error();
            const IoResult result = io_result(SSL_write(ssl_.get(), piece.iov_base, clamped(piece.iov_len)));
            sent += result.bytes;
            if (result.status != IoStatus::kMoved || result.bytes < piece.iov_len) {
                return sent > 0 ? IoResult{IoStatus::kMoved, sent} : result;
            }
        }
        return {IoStatus::kMoved, sent};
    }
    void finish_sending() override {
        SSL_shutdown(ssl_.get());
        shutdown(fd_, SHUT_WR);
    }

private:
    static int clamped(std::size_t size) { return static_cast<int>(std::min<std::size_t>(size, INT_MAX)); }
    IoResult io_result(int moved) {
        if (moved > 0) {
            return {IoStatus::kMoved, static_cast<std::size_t>(moved)};
        }
        const int reason = SSL_get_error(ssl_.get(), moved);
        const bool again = reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE;
        return {again ? IoStatus::kWouldBlock : IoStatus::kClosed, 0};
    }

    const int fd_;
    const SslPtr ssl_;
};

class OpenSslContext final : public TlsContext {
public:
    explicit OpenSslContext(const Certificate& certificate)
        : context_(checked(SSL_CTX_new(TLS_server_method()), "SSL_CTX_new")) {
        SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
        // A write that could not go out is repeated from whatever buffer holds the bytes then.
        SSL_CTX_set_mode(context_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        const BioPtr certificate_bio(
            BIO_new_mem_buf(certificate.certificate_pem.data(), static_cast<int>(certificate.certificate_pem.size())));
        const BioPtr key_bio(BIO_new_mem_buf(certificate.key_pem.data(), static_cast<int>(certificate.key_pem.size())));
        const X509Ptr leaf(
            checked(PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr), "read the certificate"));
        const KeyPtr key(checked(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr), "read the key"));
        checked(SSL_CTX_use_certificate(context_.get(), leaf.get()) == 1, "use the certificate");
        checked(SSL_CTX_use_PrivateKey(context_.get(), key.get()) == 1, "use the key");
        while (X509* next = PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr)) {
            SSL_CTX_add_extra_chain_cert(context_.get(), next);
        }
        ERR_clear_error();
    }
    std::unique_ptr<Stream> accept(int fd) override { return std::make_unique<TlsStream>(context_.get(), fd); }

private:
    const SslContextPtr context_;
};

}  // namespace

Certificate make_self_signed_certificate(const std::string& address) {
    const KeyPtr key(checked(EVP_EC_gen("P-256"), "make a key"));
    const X509Ptr certificate(checked(X509_new(), "make a certificate"));
    X509_set_version(certificate.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kValidSeconds);
    X509_set_pubkey(certificate.get(), key.get());
    X509_NAME* name = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("s3sim"), -1, -1, 0);
    X509_set_issuer_name(certificate.get(), name);
    add_extension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
    const std::string other = address == "127.0.0.1" || address == "0.0.0.0" ? "" : ",IP:" + address;
    add_extension(certificate.get(), NID_subject_alt_name, "DNS:localhost,DNS:*.localhost,IP:127.0.0.1" + other);
    checked(X509_sign(certificate.get(), key.get(), EVP_sha256()), "sign the certificate");
    const BioPtr certificate_pem(BIO_new(BIO_s_mem()));
    const BioPtr key_pem(BIO_new(BIO_s_mem()));
    checked(PEM_write_bio_X509(certificate_pem.get(), certificate.get()) == 1, "write the certificate");
    checked(PEM_write_bio_PrivateKey(key_pem.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1,
            "write the key");
    return {text_of(certificate_pem), text_of(key_pem)};
}

std::unique_ptr<TlsContext> make_tls_context(const Certificate& certificate) {
    return std::make_unique<OpenSslContext>(certificate);
}

}  // namespace ckptfs::s3sim
