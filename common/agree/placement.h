/* Which server owns which block: a pure function of the block sizes and the number of servers. */
#ifndef WEIR_COMMON_AGREE_PLACEMENT_H
#define WEIR_COMMON_AGREE_PLACEMENT_H

#include <stdint.h>

enum { BLOCK_ELEMS_MAX = 65536 }; /* 256 KiB of f32: what one call carries */

/* owner[b] = index of the server (in the view's order) of block b. Balanced by bytes: blocks by falling size
   (then index) go to the server with the least so far (then the lowest index). servers > 0. */
void placement_compute(const uint32_t *block_elems, uint32_t blocks, uint32_t servers, uint32_t *owner);

#endif
