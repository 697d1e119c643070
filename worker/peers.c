/* The Peers service. */
#include "worker/peers.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/door/unix_socket.h"
#include "common/rpc/address.h"

enum { HOST_MAX = 256, RECEIVED_BYTES_MAX = 64 * 1024 * 1024 };

struct peers {
  struct peers_options options;
  struct rpc_server *server;
  char *address;
};

static void on_piece(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  static const Weir__BoundaryReply reply = WEIR__BOUNDARY_REPLY__INIT;
  const struct peers *peers = rpc_call_context(call);
  struct err err = ERR_NONE;
  if (peers->options.take(peers->options.user, rpc_call_ticket(call), message, bytes, &err))
    rpc_call_finish(call, &err);
  else
    rpc_call_reply(call, &reply, NULL);
  rpc_bytes_free(bytes);
}

static int on_begin(struct rpc_call *call, struct err *err) {
  const struct peers *peers = rpc_call_context(call);
  struct cert_holder holder;
  char uri[CERT_TEXT_SIZE] = "";
  if (rpc_call_holder(call, &holder))
    cert_holder_uri(&holder, uri);
  return peers->options.admit(peers->options.user, rpc_call_ticket(call), uri, err);
}

static const struct rpc_method methods[] = {
    {.id = RPC_SEND_BOUNDARY, .on_begin = on_begin, .on_message = on_piece}};

/* The host of HOST:PORT, without the brackets of an IPv6 address. False: it is too long. */
static bool split_host(const char *address, size_t length, char host[HOST_MAX], char port[HOST_MAX]) {
  const char *colon = memrchr(address, ':', length);
  size_t host_length = colon ? (size_t)(colon - address) : 0;
  if (!colon || host_length >= HOST_MAX || length - host_length > HOST_MAX)
    return false;
  if (host_length > 1 && address[0] == '[' && address[host_length - 1] == ']')
    snprintf(host, HOST_MAX, "%.*s", (int)host_length - 2, address + 1);
  else
    snprintf(host, HOST_MAX, "%.*s", (int)host_length, address);
  snprintf(port, HOST_MAX, "%.*s", (int)(length - host_length - 1), colon + 1);
  return true;
}

/* The address of ours from which that one is reached. Nothing is sent. */
static bool find_way_to(const struct addrinfo *info, char host[HOST_MAX]) {
  struct sockaddr_storage own;
  socklen_t length = sizeof own;
  int fd = socket(info->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool is_found = fd >= 0 && connect(fd, info->ai_addr, info->ai_addrlen) == 0 &&
                  getsockname(fd, (struct sockaddr *)&own, &length) == 0 &&
                  getnameinfo((struct sockaddr *)&own, length, host, HOST_MAX, NULL, 0, NI_NUMERICHOST) == 0;
  if (fd >= 0)
    close(fd);
  return is_found;
}

/* Of the first of the coordinator's addresses that is known. */
static bool find_own_host(const char *coordinator, char host[HOST_MAX]) {
  const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
  bool is_found = false;
  for (const char *at = coordinator; *at && !is_found;) {
    size_t length = strcspn(at, ",");
    char name[HOST_MAX], port[HOST_MAX];
    struct addrinfo *list = NULL;
    if (split_host(at, length, name, port) && getaddrinfo(name, port, &hints, &list) == 0)
      for (const struct addrinfo *info = list; info && !is_found; info = info->ai_next)
        is_found = find_way_to(info, host);
    if (list)
      freeaddrinfo(list);
    at += length + (at[length] == ',');
  }
  return is_found;
}

static char *join_host(const char *host, const char *port) {
  return strchr(host, ':') ? mem_printf("[%s]:%s", host, port) : mem_printf("%s:%s", host, port);
}

static bool is_any(const char *host) {
  return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

/* Where others reach what listens there. */
static char *address_of(const struct peers_options *options, const char *listen, int bound) {
  const char *said = options->advertise ? options->advertise : listen;
  char host[HOST_MAX], port[HOST_MAX], own[HOST_MAX] = "localhost";
  if (unix_socket_is(said) || !split_host(said, strlen(said), host, port))
    return mem_strdup(said);
  if (strcmp(port, "0") == 0 || !options->advertise)
    snprintf(port, sizeof port, "%d", bound);
  gethostname(own, sizeof own - 1);
  return join_host(is_any(host) ? own : host, port);
}

/* Where the coordinator is a socket in a folder, another one there. */
static char *default_listen(const char *coordinator) {
  char host[HOST_MAX] = "0.0.0.0", name[32], *first, *listen;
  if (!unix_socket_is(coordinator)) {
    find_own_host(coordinator, host);
    return join_host(host, "0");
  }
  snprintf(name, sizeof name, "worker-%d", (int)getpid());
  first = mem_printf("%.*s", (int)strcspn(coordinator, ","), coordinator);
  listen = unix_socket_beside(first, name);
  free(first);
  return listen;
}

int peers_start(const struct peers_options *options, struct peers **out, struct err *err) {
  struct peers *peers = mem_new(sizeof *peers);
  struct rpc_service service = {methods, sizeof methods / sizeof methods[0], peers};
  char *listen = options->listen ? mem_strdup(options->listen) : default_listen(options->coordinator);
  peers->options = *options;
  if ((options->advertise && rpc_address_check(options->advertise, err)) ||
      rpc_server_start(&(struct rpc_server_options){.listen = listen,
                                                    .tls = options->tls,
                                                    .is_insecure = options->is_insecure,
                                                    .services = &service,
                                                    .n_services = 1,
                                                    .received_bytes_max = RECEIVED_BYTES_MAX},
                       &peers->server, err)) {
    free(peers);
    free(listen);
    return err->code;
  }
  peers->address = address_of(options, listen, rpc_server_port(peers->server));
  log_event(LOG_INFO, "worker", "listening", "address=%s", peers->address);
  free(listen);
  *out = peers;
  return ERR_OK;
}

const char *peers_address(const struct peers *peers) {
  return peers->address;
}

void peers_stop(struct peers *peers) {
  if (!peers)
    return;
  rpc_server_stop(peers->server);
  free(peers->address);
  free(peers);
}
