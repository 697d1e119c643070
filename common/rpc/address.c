/* Addresses. */
#include "common/rpc/address.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/loopback.h"
#include "common/base/memory.h"
#include "common/door/unix_socket.h"

enum { PORT_MAX = 65535 };

int rpc_address_check(const char *address, struct err *err) {
  const char *colon = strrchr(address, ':');
  const char *port = colon ? colon + 1 : "";
  size_t digits = strspn(port, "0123456789");
  bool is_ambiguous = colon && memchr(address, ':', (size_t)(colon - address)) && address[0] != '[';
  if (unix_socket_is(address))
    return unix_socket_check(address, err);
  if (!colon || colon == address || !digits || digits > 5 || port[digits] || atoi(port) > PORT_MAX ||
      is_ambiguous)
    return err_set(err, ERR_INVALID, "'%s' is not an address: expected HOST:PORT, [IPV6]:PORT or unix:/PATH",
                   address);
  return ERR_OK;
}

int rpc_addresses_check(const char *addresses, struct err *err) {
  char *list = mem_strdup(addresses), *rest = list, *address;
  int code = 0;
  while (!code && (address = strsep(&rest, ",")))
    code = rpc_address_check(address, err);
  free(list);
  return code;
}

static bool is_unix_socket(const char *address) {
  struct err err = ERR_NONE;
  return unix_socket_is(address) && unix_socket_check(address, &err) == 0;
}

bool rpc_address_is_loopback(const char *address) {
  const char *colon = strrchr(address, ':');
  size_t length = colon ? (size_t)(colon - address) : 0;
  bool is_bracketed = length > 1 && address[0] == '[' && address[length - 1] == ']';
  char host[64];
  if (is_unix_socket(address))
    return true;
  if (length == 0 || length >= sizeof host)
    return false;
  memcpy(host, address + is_bracketed, length - 2 * is_bracketed);
  host[length - 2 * is_bracketed] = '\0';
  return is_bracketed == (strchr(host, ':') != NULL) && host_is_loopback(host);
}

static int try_to_bind(const struct addrinfo *info) {
  int one = 1, error = 0;
  int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return errno;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
      bind(fd, info->ai_addr, info->ai_addrlen) || listen(fd, 1))
    error = errno;
  close(fd);
  return error;
}

int rpc_address_explain(const char *address, struct err *err) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
  const char *colon = strrchr(address, ':');
  char host[256];
  int rc, error;
  if (unix_socket_is(address))
    return err_set(err, ERR_UNAVAILABLE, "cannot listen on %s: the socket cannot be made in that folder",
                   address);
  if (address[0] == '[')
    snprintf(host, sizeof host, "%.*s", (int)strcspn(address + 1, "]"), address + 1);
  else
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
  rc = getaddrinfo(host, colon + 1, &hints, &found);
  if (rc)
    return err_set(err, ERR_UNAVAILABLE, "cannot listen on %s: %s", address, gai_strerror(rc));
  error = try_to_bind(found);
  freeaddrinfo(found);
  return err_set(err, ERR_UNAVAILABLE, "cannot listen on %s: %s", address,
                 error ? strerror(error) : "the port is taken or not allowed");
}
