/* A non-blocking stream to a Redis: TCP, TLS over TCP, or a unix socket. hiredis makes the connection; the
   socket moves the bytes and keeps the deadlines. */
#ifndef WEIR_STORAGE_REDIS_REDIS_SOCKET_H
#define WEIR_STORAGE_REDIS_REDIS_SOCKET_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "storage/redis/redis_url.h"

struct redis_socket;

/* Connects, with TLS if the config has it, within config->timeout_ms (and what the name's resolution takes).
   Errors: those of redis_endpoint_allow; UNAVAILABLE, nobody there; INVALID, the certificate is not that of
   config->name or the host. Texts go after the server's name. */
int redis_socket_open(const struct redis_endpoint *endpoint, const struct redis_config *config,
                      struct redis_socket **out, struct err *err);
void redis_socket_close(struct redis_socket *socket); /* NULL is ignored */

/* How many bytes moved; 0: none can now; -1: UNAVAILABLE, the connection is at its end. */
ssize_t redis_socket_send(struct redis_socket *socket, const struct iovec *parts, int n, struct err *err);
ssize_t redis_socket_receive(struct redis_socket *socket, void *data, size_t size, struct err *err);
/* Until bytes can be received (or, if has_to_send, sent). False at the deadline (clock_now_ns). */
bool redis_socket_wait(struct redis_socket *socket, bool has_to_send, uint64_t deadline_ns);

#endif
