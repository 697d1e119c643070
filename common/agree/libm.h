/* What the C library's inexact functions compute on this machine. Their last bit depends on the library and
   on the processor (with and without fused multiply-add), and what they compute ends in weights: so members
   of a run tell the hash of many results in their fingerprints. */
#ifndef WEIR_COMMON_AGREE_LIBM_H
#define WEIR_COMMON_AGREE_LIBM_H

enum { LIBM_HASH_SIZE = 17 };

/* Hexadecimal digits: of the results of LIBM_DRAWS calls, with drawn numbers, of every function that servers
   or workers call; the table is in libm.c. Takes some ten milliseconds the first time, which each process
   pays when it joins: so there are as many draws as show a processor without fused multiply-add in each
   function that it changes (ARCHITECTURE.md), and no more. Any thread. */
enum { LIBM_DRAWS = 20000 };
const char *libm_hash(void);

#endif
