/* Listeners: each thread has a daemon of libmicrohttpd's, which it drives itself, and all accept from one
   socket. So a thread's connections need no lock, and can be cut when they are late. */
#include "common/http/http.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/door/unix_socket.h"
#include "common/http/listener.h"
#include "common/http/visit.h"
#include "common/rpc/address.h"

enum { LOOK_MS = 1000 };
static const char tls_versions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

struct http_thread {
  pthread_t id;
  struct http *http;
  struct MHD_Daemon *daemon; /* NULL: it could not be started again with new certificates */
  struct cert_files files;   /* that the daemon has; empty: plaintext */
  struct http_visits visits;
};

struct http {
  struct http_setting setting;
  struct http_thread *threads;
  int n_threads;
  int listener, stop; /* stop: an eventfd that can be read once the threads are to end */
  int port;
};

int http_address_check(const struct rpc_security *security, const char *address, struct err *err) {
  if (unix_socket_is(address))
    return err_set(err, ERR_INVALID, "'%s' is not an address: expected HOST:PORT or [IPV6]:PORT", address);
  if (rpc_address_check(address, err))
    return err->code;
  return rpc_security_check(security, address, err);
}

/* The daemon takes a descriptor of its own of the listening socket, which it closes. */
static int daemon_start(struct http_thread *thread, struct err *err) {
  const struct http *http = thread->http;
  const struct cert_files *files = &thread->files;
  struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_KEY, 0, files->key},
                                 {MHD_OPTION_HTTPS_MEM_CERT, 0, files->cert},
                                 {MHD_OPTION_HTTPS_MEM_TRUST, 0, files->ca},
                                 {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)tls_versions},
                                 {MHD_OPTION_END, 0, NULL}};
  unsigned per_thread = LIMIT_HTTP_CONNECTIONS / (unsigned)http->n_threads;
  int listener = fcntl(http->listener, F_DUPFD_CLOEXEC, 0);
  if (listener < 0)
    return err_set(err, ERR_UNAVAILABLE, "HTTP: this process may open no more files: raise `ulimit -n`");
  thread->daemon = MHD_start_daemon(
      MHD_USE_EPOLL | (files->key ? MHD_USE_TLS : 0), 0, NULL, NULL, http_on_request, &thread->visits,
      MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_CONNECTION_LIMIT, per_thread ? per_thread : 1,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)LIMIT_HTTP_HEADER_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
      http_on_connection, &thread->visits, MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, &thread->visits,
      MHD_OPTION_ARRAY, files->key ? tls : &tls[4], MHD_OPTION_END);
  if (thread->daemon)
    return 0;
  close(listener);
  return err_set(err, ERR_UNAVAILABLE, "HTTP: libmicrohttpd cannot begin%s",
                 files->key ? " with these certificates" : "");
}

static void daemon_stop(struct http_thread *thread) {
  if (thread->daemon)
    MHD_stop_daemon(thread->daemon);
  thread->daemon = NULL;
}

/* Connections end where the files of the folder have changed; those that come next see the new ones. */
static void follow_files(struct http_thread *thread) {
  const struct rpc_tls *tls = thread->http->setting.tls;
  struct cert_files files;
  struct err err = ERR_NONE;
  if (cert_files_read(tls->folder, &files, &err))
    return;
  if (thread->daemon && cert_files_same(&files, &thread->files)) {
    cert_files_free(&files);
    return;
  }
  daemon_stop(thread);
  cert_files_free(&thread->files);
  thread->files = files;
  if (daemon_start(thread, &err))
    log_event(LOG_WARN, "http", "not_listening", "reason=\"%s\"", err.text);
}

/* How long the daemon and its connections can be left alone; -1: until something comes. */
static int idle_ms(const struct http_thread *thread) {
  uint64_t now_ns = clock_now_ns(), late_ns = http_visits_next_ns(&thread->visits), wait_ms = UINT64_MAX;
  MHD_UNSIGNED_LONG_LONG own_ms;
  if (late_ns != UINT64_MAX)
    wait_ms = late_ns > now_ns ? (late_ns - now_ns) / 1000000 + 1 : 0;
  if (thread->daemon && MHD_get_timeout(thread->daemon, &own_ms) == MHD_YES && own_ms < wait_ms)
    wait_ms = own_ms;
  if (thread->http->setting.tls && wait_ms > LOOK_MS)
    wait_ms = LOOK_MS;
  return wait_ms == UINT64_MAX ? -1 : (int)(wait_ms < LIMIT_HTTP_MS ? wait_ms : LIMIT_HTTP_MS);
}

/* At its bound of connections a daemon does not listen; it looks whether some have ended before it does
   anything else. */
static void daemon_run(struct http_thread *thread) {
  uint64_t ended;
  do {
    ended = thread->visits.n_ended;
    MHD_run(thread->daemon);
  } while (ended != thread->visits.n_ended);
}

static void *thread_run(void *user) {
  struct http_thread *thread = user;
  const struct http *http = thread->http;
  uint64_t look_ns = 0;
  for (;;) {
    struct pollfd waited[2] = {{.fd = http->stop, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    uint64_t now_ns = clock_now_ns();
    if (http->setting.tls && now_ns >= look_ns) {
      look_ns = now_ns + LOOK_MS * UINT64_C(1000000);
      follow_files(thread);
    }
    http_visits_cut(&thread->visits, now_ns);
    if (thread->daemon)
      daemon_run(thread);
    if (thread->daemon)
      waited[1].fd = MHD_get_daemon_info(thread->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    poll(waited, 2, idle_ms(thread));
    if (waited[0].revents)
      return NULL;
  }
}

static void start_threads(struct http *http) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 0; i < http->n_threads; i++)
    CHECK(pthread_create(&http->threads[i].id, NULL, thread_run, &http->threads[i]) == 0);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Everything but the threads. */
static int prepare(struct http *http, const struct http_options *options, struct err *err) {
  const struct rpc_security security = {options->tls ? options->tls->folder : NULL, options->is_insecure};
  struct http_setting *setting = &http->setting;
  if (http_address_check(&security, options->listen, err) ||
      http_listen(options->listen, &http->listener, &http->port, err))
    return err->code;
  *setting = (struct http_setting){.routes = options->routes,
                                   .n_routes = options->n_routes,
                                   .user = options->user,
                                   .tls = options->tls,
                                   .guard = rpc_guard_new(options->tls, true),
                                   .late_ms = options->late_ms ? options->late_ms : LIMIT_HTTP_MS,
                                   .is_local = !options->tls && rpc_address_is_loopback(options->listen)};
  http->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (http->stop < 0)
    return err_set(err, ERR_UNAVAILABLE, "HTTP: this process may open no more files: raise `ulimit -n`");
  http->n_threads = options->threads ? options->threads : 1;
  http->threads = mem_new((size_t)http->n_threads * sizeof *http->threads);
  for (int i = 0; i < http->n_threads; i++) {
    struct http_thread *thread = &http->threads[i];
    thread->http = http;
    thread->visits.setting = setting;
    if ((options->tls && cert_files_read(options->tls->folder, &thread->files, err)) ||
        daemon_start(thread, err))
      return err->code;
  }
  return 0;
}

static void http_free(struct http *http) {
  for (int i = 0; http->threads && i < http->n_threads; i++) {
    daemon_stop(&http->threads[i]);
    cert_files_free(&http->threads[i].files);
  }
  if (http->listener >= 0)
    close(http->listener);
  if (http->stop >= 0)
    close(http->stop);
  rpc_guard_put(http->setting.guard);
  free(http->threads);
  free(http);
}

int http_open(const struct http_options *options, struct http **out, struct err *err) {
  struct http *http = mem_new(sizeof *http);
  http->listener = http->stop = -1;
  *out = NULL;
  if (prepare(http, options, err)) {
    http_free(http);
    return err->code;
  }
  start_threads(http);
  log_event(LOG_INFO, "http", "listening", "address=%.*s:%d tls=%d",
            (int)(strrchr(options->listen, ':') - options->listen), options->listen, http->port,
            options->tls != NULL);
  *out = http;
  return 0;
}

int http_port(const struct http *http) {
  return http->port;
}

void http_close(struct http *http) {
  uint64_t one = 1;
  if (!http)
    return;
  CHECK(write(http->stop, &one, sizeof one) == sizeof one);
  for (int i = 0; i < http->n_threads; i++)
    pthread_join(http->threads[i].id, NULL);
  http_free(http);
}
