/* Datagrams to a service manager. */
#include "common/manager/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TEXT_SIZE = 1024 };

/* The length of the address; 0: it names none. A name in the abstract namespace begins with '@'. */
static socklen_t address_of(const char *name, struct sockaddr_un *address) {
  size_t length = name ? strlen(name) : 0;
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  if (length < 2 || length >= sizeof address->sun_path || (name[0] != '/' && name[0] != '@'))
    return 0;
  memcpy(address->sun_path, name, length);
  if (name[0] == '@')
    address->sun_path[0] = '\0';
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
}

void notify_manager(const char *format, ...) {
  struct sockaddr_un address;
  socklen_t size = address_of(getenv("NOTIFY_SOCKET"), &address);
  int fd = size ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
  char text[TEXT_SIZE];
  va_list args;
  if (fd < 0)
    return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  /* A manager that is away is no error of ours, and one that is busy is not waited for. */
  (void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&address, size);
  close(fd);
}
