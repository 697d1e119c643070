#include "tests/support/common/own_port.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PORT_FIRST = 10000, PORTS = 10000 };

/* By a name that the system forgets with this process. */
static bool take(int port) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "weir-test-port-%d", port);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool is_ours =
      fd >= 0 && bind(fd, (struct sockaddr *)&name,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0;
  if (!is_ours && fd >= 0)
    close(fd);
  return is_ours;
}

static bool is_free(int port) {
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool is_so = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
  close(fd);
  return is_so;
}

int own_port(void) {
  static unsigned n;
  for (;;) {
    unsigned draw = ((unsigned)getpid() * 7919u + n++ * 104729u) % PORTS;
    int port = PORT_FIRST + (int)draw;
    if (take(port) && is_free(port))
      return port;
  }
}
