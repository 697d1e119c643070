/* The functions of libc and libssl that stand before gRPC's calls of them. */
#include "common/door/door.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/certs/folder.h"
#include "common/door/header_watch.h"
#include "common/door/visitors.h"

/* DESCRIPTORS: those at or above it are no connections, for visitors.h allows fewer. */
enum { DESCRIPTORS = 1 << 16, LOG_PAUSE_MS = 1000 };

/* A connection that was accepted, until it is closed. */
struct guest {
  struct visitor *visitor;
  struct header_watch watch;
  char name[VISITOR_NAME_SIZE];
};

/* What lies behind ours. */
static struct {
  int (*accept4)(int, struct sockaddr *, socklen_t *, int);
  int (*close)(int);
  ssize_t (*recvmsg)(int, struct msghdr *, int);
  int (*ssl_read)(SSL *, void *, int);
} real;

static struct {
  pthread_mutex_t lock; /* what follows, but for guests */
  struct visitors *visitors;
  int reserve; /* a descriptor that may be given up; -1: there is none */
  struct refusals {
    uint64_t logged_ns;     /* the last line */
    unsigned long n_silent; /* refusals since, without a line */
  } connections, headers;
  struct guest *guests[DESCRIPTORS]; /* by descriptor, atomic; whoever owns the descriptor owns its guest */
} door = {.lock = PTHREAD_MUTEX_INITIALIZER, .reserve = -1};

static int watch_index = -1; /* of an SSL's header_watch */

static void *behind(const char *name) {
  void *function = dlsym(RTLD_NEXT, name);
  CHECK(function);
  return function;
}

static void find_real(void) {
  *(void **)&real.accept4 = behind("accept4");
  *(void **)&real.close = behind("close");
  *(void **)&real.recvmsg = behind("recvmsg");
  *(void **)&real.ssl_read = behind("SSL_read");
}

/* At the program's start, so that a process that was forked finds them found. */
static void __attribute__((constructor)) ensure_real(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_real);
}

static void watch_free(void *parent, void *watch, CRYPTO_EX_DATA *data, int index, long length, void *more) {
  (void)parent, (void)data, (void)index, (void)length, (void)more;
  free(watch);
}

static int reserve_take(void) {
  return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void open_once(void) {
  struct rlimit limit = {.rlim_cur = 1024};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* as it is, where it cannot be raised */
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  ensure_real();
  watch_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, watch_free);
  door.visitors = visitors_new(limit.rlim_cur);
  door.reserve = reserve_take();
}

void door_open(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_once);
}

/* Somebody who knocks without end does not fill a disk. */
static void log_refusal_locked(struct refusals *refusals, const char *event, const char *reason) {
  uint64_t now_ns = clock_now_ns();
  if (refusals->logged_ns && now_ns - refusals->logged_ns < LOG_PAUSE_MS * UINT64_C(1000000)) {
    refusals->n_silent++;
    return;
  }
  log_event(LOG_WARN, "rpc", event, "reason=\"%s\" more=%lu", reason, refusals->n_silent);
  *refusals = (struct refusals){.logged_ns = now_ns};
}

/* False: it is to be hung up on. */
static bool let_in(int fd, const struct sockaddr *peer) {
  struct guest *guest;
  struct visitor *visitor = NULL;
  struct err err = ERR_NONE;
  pthread_mutex_lock(&door.lock);
  if (fd >= DESCRIPTORS)
    err_set(&err, ERR_BUSY, "a connection by descriptor %d", fd);
  else
    visitors_enter(door.visitors, peer, &visitor, &err);
  if (err.code)
    log_refusal_locked(&door.connections, "connection_refused", err.text);
  pthread_mutex_unlock(&door.lock);
  if (err.code)
    return false;
  guest = mem_new(sizeof *guest);
  guest->visitor = visitor;
  visitor_name(peer, guest->name);
  __atomic_store_n(&door.guests[fd], guest, __ATOMIC_RELEASE);
  return true;
}

/* Accepts whoever waits by the descriptor in reserve, and hangs up. False: nobody did, or there is no
 * descriptor. */
static bool turn_away(int listener, int flags) {
  struct sockaddr_storage peer = {0};
  socklen_t size = sizeof peer;
  char name[VISITOR_NAME_SIZE];
  struct err err;
  int fd = -1;
  pthread_mutex_lock(&door.lock);
  if (door.reserve >= 0) {
    real.close(door.reserve);
    fd = real.accept4(listener, (struct sockaddr *)&peer, &size, flags);
  }
  if (fd >= 0) {
    real.close(fd);
    visitor_name((struct sockaddr *)&peer, name);
    err_set(&err, ERR_BUSY, "a connection of %s: this process may open no more files: raise `ulimit -n`",
            name);
    log_refusal_locked(&door.connections, "connection_refused", err.text);
  }
  door.reserve = reserve_take();
  pthread_mutex_unlock(&door.lock);
  return fd >= 0;
}

/* What accept(2) says of the listener, for which accepting again is of no use; all else it says of a
   connection that has failed meanwhile, or of the system's memory. */
static bool is_of_listener(int error) {
  return error == EAGAIN || error == EINTR || error == EBADF || error == EINVAL || error == ENOTSOCK ||
         error == EFAULT;
}

int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags) {
  ensure_real();
  if (!door.visitors)
    return real.accept4(listener, address, size, flags);
  for (;;) {
    struct sockaddr_storage peer = {0};
    socklen_t peer_size = sizeof peer;
    int fd = real.accept4(listener, (struct sockaddr *)&peer, &peer_size, flags);
    if (fd >= 0 && let_in(fd, (struct sockaddr *)&peer)) {
      if (address && size) {
        memcpy(address, &peer, *size < peer_size ? *size : peer_size);
        *size = peer_size;
      }
      return fd;
    }
    if (fd >= 0) {
      real.close(fd);
    } else if (is_of_listener(errno)) {
      return -1;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      if (!turn_away(listener, flags)) {
        errno = EAGAIN; /* with the next one that comes it is tried again */
        return -1;
      }
    }
  }
}

int close(int fd) {
  struct guest *guest = NULL;
  ensure_real();
  if (fd >= 0 && fd < DESCRIPTORS)
    guest = __atomic_exchange_n(&door.guests[fd], NULL, __ATOMIC_ACQ_REL);
  if (guest) {
    pthread_mutex_lock(&door.lock);
    visitors_leave(door.visitors, guest->visitor);
    pthread_mutex_unlock(&door.lock);
    free(guest);
  }
  return real.close(fd);
}

static bool feed(struct header_watch *watch, const struct msghdr *message, size_t size) {
  bool is_good = true;
  for (size_t i = 0; i < message->msg_iovlen && size && is_good; i++) {
    size_t n = message->msg_iov[i].iov_len < size ? message->msg_iov[i].iov_len : size;
    is_good = header_watch_feed(watch, message->msg_iov[i].iov_base, n);
    size -= n;
  }
  return is_good;
}

static void log_headers(const char *name) {
  char *reason =
      mem_printf("%s sent headers of a call that did not end: its connection was broken, as there may "
                 "be %d bytes in %d frames",
                 name, LIMIT_HEADER_BYTES, LIMIT_HEADER_FRAMES);
  pthread_mutex_lock(&door.lock);
  log_refusal_locked(&door.headers, "headers_refused", reason);
  pthread_mutex_unlock(&door.lock);
  free(reason);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  struct guest *guest = NULL;
  ssize_t got;
  ensure_real();
  got = real.recvmsg(fd, message, flags);
  if (got > 0 && fd >= 0 && fd < DESCRIPTORS && !(flags & (MSG_PEEK | MSG_ERRQUEUE)))
    guest = __atomic_load_n(&door.guests[fd], __ATOMIC_ACQUIRE);
  if (!guest || feed(&guest->watch, message, (size_t)got))
    return got;
  log_headers(guest->name);
  shutdown(fd, SHUT_RDWR);
  errno = ECONNRESET;
  return -1;
}

static void log_holder_headers(SSL *ssl) {
  X509 *certificate = SSL_get0_peer_certificate(ssl);
  BIO *text = BIO_new(BIO_s_mem());
  char uri[CERT_TEXT_SIZE] = "no certificate";
  struct cert_facts facts;
  struct err err = ERR_NONE;
  char *pem = NULL;
  if (certificate && text && PEM_write_bio_X509(text, certificate) && BIO_write(text, "", 1) == 1 &&
      BIO_get_mem_data(text, &pem) > 0 && cert_facts_parse(pem, "the certificate", &facts, &err) == 0)
    cert_holder_uri(&facts.holder, uri);
  BIO_free(text);
  log_headers(uri);
}

/* The watch of a connection with TLS; NULL: it is one that we made. */
static struct header_watch *watch_of(SSL *ssl) {
  struct header_watch *watch;
  if (watch_index < 0 || !SSL_is_server(ssl))
    return NULL;
  watch = SSL_get_ex_data(ssl, watch_index);
  if (!watch) {
    watch = mem_new(sizeof *watch);
    CHECK(SSL_set_ex_data(ssl, watch_index, watch) == 1);
  }
  return watch;
}

int SSL_read(SSL *ssl, void *buffer, int size) {
  struct header_watch *watch;
  int got;
  ensure_real();
  got = real.ssl_read(ssl, buffer, size);
  watch = got > 0 ? watch_of(ssl) : NULL;
  if (!watch || header_watch_feed(watch, buffer, (size_t)got))
    return got;
  log_holder_headers(ssl);
  ERR_raise(ERR_LIB_SSL, SSL_R_BAD_PACKET); /* SSL_get_error says by it that the connection is over */
  return -1;
}
