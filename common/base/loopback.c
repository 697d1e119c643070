/* Hosts that are this machine. */
#include "common/base/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <strings.h>

bool host_is_loopback(const char *host) {
  struct in6_addr six;
  struct in_addr four;
  if (inet_pton(AF_INET6, host, &six) == 1)
    return IN6_IS_ADDR_LOOPBACK(&six);
  if (inet_pton(AF_INET, host, &four) == 1)
    return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
  return strcasecmp(host, "localhost") == 0;
}
