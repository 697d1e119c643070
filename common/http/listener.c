/* Listening sockets. */
#include "common/http/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 64 };

/* Answers 0, or errno. */
static int listen_on(const struct addrinfo *info, int *out) {
  int one = 1, error;
  int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return errno;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
      bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
    *out = fd;
    return 0;
  }
  error = errno;
  close(fd);
  return error;
}

static int port_of(int fd) {
  struct sockaddr_storage bound = {0};
  socklen_t size = sizeof bound;
  CHECK(getsockname(fd, (struct sockaddr *)&bound, &size) == 0);
  return ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                           : ((struct sockaddr_in *)&bound)->sin_port);
}

int http_listen(const char *address, int *fd, int *port, struct err *err) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
  const char *colon = strrchr(address, ':');
  char host[256];
  int rc, error = 0;
  if (address[0] == '[')
    snprintf(host, sizeof host, "%.*s", (int)strcspn(address + 1, "]"), address + 1);
  else
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
  rc = getaddrinfo(host, colon + 1, &hints, &found);
  if (rc)
    return err_set(err, ERR_UNAVAILABLE, "cannot listen on %s: %s", address, gai_strerror(rc));
  *fd = -1;
  for (const struct addrinfo *info = found; info && *fd < 0; info = info->ai_next)
    error = listen_on(info, fd);
  freeaddrinfo(found);
  if (*fd < 0)
    return err_set(err, ERR_UNAVAILABLE, "cannot listen on %s: %s", address, strerror(error));
  *port = port_of(*fd);
  return 0;
}
