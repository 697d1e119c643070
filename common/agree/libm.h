/* What the C library's inexact functions compute on this machine. Their last bit depends on the library and
   on the processor (with and without fused multiply-add), and what they compute ends in weights: so members
   of a run tell the hash of many results in their fingerprints. */
#ifndef WEIR_COMMON_AGREE_LIBM_H
#define WEIR_COMMON_AGREE_LIBM_H

enum { LIBM_HASH_SIZE = 17 };

/* Hexadecimal digits: of the results of so many calls, with drawn numbers, of every function that servers or
   workers call; the table is in libm.c. Of f64 functions there are more: of `log`, 1 of 100,000 results tells
   processors with fused multiply-add from those without. Takes some tens of milliseconds the first time,
   which each process pays when it joins. Any thread. */
enum { LIBM_DRAWS_F64 = 100000, LIBM_DRAWS_F32 = 20000 };
const char *libm_hash(void);

#endif
