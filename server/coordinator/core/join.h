/* Members come and go. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_JOIN_H
#define WEIR_SERVER_COORDINATOR_CORE_JOIN_H

#include <stdint.h>

#include "cluster.pb-c.h"

struct coordinator;
struct member;

void coordinator_member_joined(struct coordinator *coordinator, uint64_t key, const Weir__Hello *hello);
void coordinator_member_left(struct coordinator *coordinator, struct member *member, const char *reason);

#endif
