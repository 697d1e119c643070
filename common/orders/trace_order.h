/* How a member obeys the order to show what it does for a run. */
#ifndef WEIR_COMMON_ORDERS_TRACE_ORDER_H
#define WEIR_COMMON_ORDERS_TRACE_ORDER_H

#include "cluster.pb-c.h"
#include "common/rpc/member.h"

/* Begins the capture, or ends it, and answers. On the thread that obeys orders. */
void member_trace(struct member *member, const Weir__Trace *order);

#endif
