/* A non-blocking stream to a Redis: TCP, TLS over TCP, or a unix socket. */
#include "storage/redis/redis_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "storage/redis/redis_tls.h"

enum { SEND_PARTS_MAX = 64 };

struct redis_socket {
  int fd;
  SSL *ssl; /* NULL without TLS */
};

static int connect_tcp(struct redis_socket *sock, const struct redis_endpoint *endpoint, uint64_t deadline_ns,
                       struct err *err);
static int finish_connect(struct redis_socket *sock, redisContext *context, uint64_t deadline_ns,
                          struct err *err);
static int shake_hands(struct redis_socket *sock, const char *host, SSL_CTX *context, uint64_t deadline_ns,
                       struct err *err);
static int handshake_failed(const SSL *ssl, int reason, struct err *err);
static ssize_t tls_moved(const struct redis_socket *sock, int n, struct err *err);
static ssize_t socket_moved(ssize_t n, struct err *err);
static const char *tls_reason(void);
static const BIO_METHOD *quiet_bio(void);

int redis_socket_open(const struct redis_endpoint *endpoint, const struct redis_config *config,
                      struct redis_socket **out, struct err *err) {
  uint64_t deadline_ns = clock_now_ns() + (uint64_t)config->timeout_ms * 1000000;
  struct redis_socket *sock = mem_new(sizeof *sock);
  int rc;
  sock->fd = -1;
  rc = redis_endpoint_allow(endpoint, config, err);
  if (!rc)
    rc = endpoint->port ? connect_tcp(sock, endpoint, deadline_ns, err)
                        : finish_connect(sock, redisConnectUnixNonBlock(endpoint->host), deadline_ns, err);
  if (!rc && config->has_tls) {
    SSL_CTX *context = redis_tls_context(config);
    rc = shake_hands(sock, config->name ? config->name : endpoint->host, context, deadline_ns, err);
    SSL_CTX_free(context);
  }
  if (rc)
    redis_socket_close(sock);
  else
    *out = sock;
  return rc;
}

void redis_socket_close(struct redis_socket *sock) {
  if (!sock)
    return;
  if (sock->ssl && SSL_is_init_finished(sock->ssl)) {
    SSL_shutdown(sock->ssl);
    ERR_clear_error();
  }
  SSL_free(sock->ssl);
  if (sock->fd >= 0)
    close(sock->fd);
  free(sock);
}

ssize_t redis_socket_send(struct redis_socket *sock, const struct iovec *parts, int n, struct err *err) {
  struct msghdr message = {.msg_iov = (struct iovec *)parts,
                           .msg_iovlen = (size_t)(n < SEND_PARTS_MAX ? n : SEND_PARTS_MAX)};
  if (!sock->ssl)
    return socket_moved(sendmsg(sock->fd, &message, MSG_NOSIGNAL), err);
  ERR_clear_error();
  return tls_moved(
      sock, SSL_write(sock->ssl, parts->iov_base, parts->iov_len > 1 << 30 ? 1 << 30 : (int)parts->iov_len),
      err);
}

ssize_t redis_socket_receive(struct redis_socket *sock, void *data, size_t size, struct err *err) {
  ssize_t n;
  if (sock->ssl) {
    ERR_clear_error();
    return tls_moved(sock, SSL_read(sock->ssl, data, size > 1 << 30 ? 1 << 30 : (int)size), err);
  }
  n = recv(sock->fd, data, size, 0);
  return n == 0 ? err_set(err, ERR_UNAVAILABLE, "closed the connection"), -1 : socket_moved(n, err);
}

bool redis_socket_wait(struct redis_socket *sock, bool has_to_send, uint64_t deadline_ns) {
  struct pollfd poll_fd = {.fd = sock->fd, .events = POLLIN | (has_to_send ? POLLOUT : 0)};
  for (;;) {
    uint64_t now_ns = clock_now_ns();
    int n;
    if (now_ns >= deadline_ns)
      return false;
    n = poll(&poll_fd, 1, (int)((deadline_ns - now_ns) / 1000000 + 1));
    if (n > 0 || (n < 0 && errno != EINTR))
      return true;
  }
}

/* hiredis resolves names, too, but tries one address only. */
static int connect_tcp(struct redis_socket *sock, const struct redis_endpoint *endpoint, uint64_t deadline_ns,
                       struct err *err) {
  struct addrinfo *found = NULL, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  int rc = ERR_UNAVAILABLE, resolved = getaddrinfo(endpoint->host, NULL, &hints, &found);
  char address[NI_MAXHOST];
  for (struct addrinfo *a = found; a && rc && !resolved; a = a->ai_next) {
    resolved = getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof address, NULL, 0, NI_NUMERICHOST);
    if (!resolved)
      rc = finish_connect(sock, redisConnectNonBlock(address, endpoint->port), deadline_ns, err);
  }
  if (resolved)
    rc = err_set(err, ERR_UNAVAILABLE, "the name cannot be resolved: %s", gai_strerror(resolved));
  if (found)
    freeaddrinfo(found);
  return rc;
}

/* The socket takes the connection over from hiredis. */
static int finish_connect(struct redis_socket *sock, redisContext *context, uint64_t deadline_ns,
                          struct err *err) {
  int failed = 0;
  socklen_t failed_size = sizeof failed;
  if (!context)
    return err_set(err, ERR_NO_MEMORY, "no memory for a connection");
  if (context->err) {
    err_set(err, ERR_UNAVAILABLE, "nobody answers: %s", context->errstr);
    redisFree(context);
    return err->code;
  }
  if (context->connection_type == REDIS_CONN_TCP)
    redisEnableKeepAlive(context);
  if (sock->fd >= 0)
    close(sock->fd);
  sock->fd = redisFreeKeepFd(context);
  fcntl(sock->fd, F_SETFD, FD_CLOEXEC);
  if (!redis_socket_wait(sock, true, deadline_ns))
    return err_set(err, ERR_UNAVAILABLE, "nobody answers within timeout_ms");
  getsockopt(sock->fd, SOL_SOCKET, SO_ERROR, &failed, &failed_size);
  return failed ? err_set(err, ERR_UNAVAILABLE, "nobody answers: %s", strerror(failed)) : 0;
}

static int shake_hands(struct redis_socket *sock, const char *host, SSL_CTX *context, uint64_t deadline_ns,
                       struct err *err) {
  const BIO_METHOD *method = quiet_bio();
  unsigned char ip[sizeof(struct in6_addr)];
  BIO *bio = NULL;
  int n;
  ERR_clear_error();
  sock->ssl = SSL_new(context);
  if (!sock->ssl || !method || !(bio = BIO_new(method)))
    return err_set(err, ERR_NO_MEMORY, "TLS: %s", tls_reason());
  BIO_set_data(bio, sock);
  BIO_set_init(bio, 1);
  SSL_set_bio(sock->ssl, bio, bio);
  if (inet_pton(AF_INET, host, ip) == 1 || inet_pton(AF_INET6, host, ip) == 1)
    n = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(sock->ssl), host);
  else
    n = SSL_set1_host(sock->ssl, host) && SSL_set_tlsext_host_name(sock->ssl, host);
  if (n != 1)
    return err_set(err, ERR_INVALID, "TLS: bad host name: %s", tls_reason());
  while ((n = SSL_connect(sock->ssl)) != 1) {
    int reason = SSL_get_error(sock->ssl, n);
    if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE)
      return handshake_failed(sock->ssl, reason, err);
    if (!redis_socket_wait(sock, reason == SSL_ERROR_WANT_WRITE, deadline_ns))
      return err_set(err, ERR_UNAVAILABLE, "no TLS handshake within timeout_ms (does this port speak TLS?)");
  }
  return 0;
}

static int handshake_failed(const SSL *ssl, int reason, struct err *err) {
  long verified = SSL_get_verify_result(ssl);
  if (verified != X509_V_OK)
    return err_set(err, ERR_INVALID, "the certificate is refused: %s (option ca= names whom to trust)",
                   X509_verify_cert_error_string(verified));
  if (reason == SSL_ERROR_SSL)
    return err_set(err, ERR_INVALID, "no TLS handshake: %s (does this port speak TLS?)", tls_reason());
  return err_set(err, ERR_UNAVAILABLE, "closed the connection in the TLS handshake");
}

static ssize_t tls_moved(const struct redis_socket *sock, int n, struct err *err) {
  int reason;
  if (n > 0)
    return n;
  reason = SSL_get_error(sock->ssl, n);
  if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE)
    return 0;
  if (reason == SSL_ERROR_SSL)
    err_set(err, ERR_UNAVAILABLE, "the TLS connection broke: %s", tls_reason());
  else
    err_set(err, ERR_UNAVAILABLE, "closed the connection");
  return -1;
}

static ssize_t socket_moved(ssize_t n, struct err *err) {
  if (n >= 0)
    return n;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
    return 0;
  err_set(err, ERR_UNAVAILABLE, "the connection broke: %s", strerror(errno));
  return -1;
}

static const char *tls_reason(void) {
  const char *reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason ? reason : "no reason given";
}

/* OpenSSL's own socket BIO writes without MSG_NOSIGNAL: a server that goes would end this process. */
static int quiet_write(BIO *bio, const char *data, int size) {
  const struct redis_socket *sock = BIO_get_data(bio);
  ssize_t n = send(sock->fd, data, (size_t)size, MSG_NOSIGNAL);
  BIO_clear_retry_flags(bio);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    BIO_set_retry_write(bio);
  return (int)n;
}

static int quiet_read(BIO *bio, char *data, int size) {
  const struct redis_socket *sock = BIO_get_data(bio);
  ssize_t n = recv(sock->fd, data, (size_t)size, 0);
  BIO_clear_retry_flags(bio);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    BIO_set_retry_read(bio);
  return (int)n;
}

static long quiet_control(BIO *bio, int command, long number, void *pointer) {
  (void)bio;
  (void)number;
  (void)pointer;
  return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *quiet_method;

static void make_quiet_method(void) {
  quiet_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "weir socket");
  if (!quiet_method)
    return;
  BIO_meth_set_write(quiet_method, quiet_write);
  BIO_meth_set_read(quiet_method, quiet_read);
  BIO_meth_set_ctrl(quiet_method, quiet_control);
}

static const BIO_METHOD *quiet_bio(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_quiet_method);
  return quiet_method;
}
