/* Watches the frames that a client sends on a connection, for headers that do not end.
   gRPC 1.51 keeps what it has of a header until the rest comes, and reads it from its start again with each
   piece: a client that announces a header of a gigabyte, or sends CONTINUATION frames for ever, costs memory
   without a bound and time that grows with the square of what it sends. RFC 9113, sections 4.1, 6.2, 6.10. */
#ifndef WEIR_COMMON_DOOR_HEADER_WATCH_H
#define WEIR_COMMON_DOOR_HEADER_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct header_watch {
  uint8_t head[9];                      /* of the frame that begins; of the connection's first bytes before */
  uint8_t n_head;                       /* bytes of it that have come */
  uint8_t n_preface;                    /* bytes of HTTP/2's preface that have come */
  bool is_other;                        /* what comes is no HTTP/2: nothing is watched */
  bool is_refused;                      /* the headers were too long */
  uint32_t left;                        /* bytes of the present frame that are to come */
  uint32_t header_bytes, header_frames; /* of the headers that have begun; 0: none have */
};

/* The next bytes of the connection; a zeroed watch is at its begin. False, then and from then on, once the
   headers of a call have more than LIMIT_HEADER_BYTES or LIMIT_HEADER_FRAMES. */
bool header_watch_feed(struct header_watch *watch, const void *bytes, size_t size);

#endif
