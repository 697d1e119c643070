/* What the members of a simulated NCCL communicator share: memory of this machine, with a pipe from each to
   each. */
#ifndef WEIR_TESTS_SIMULATION_CUDA_NCCL_SEGMENT_H
#define WEIR_TESTS_SIMULATION_CUDA_NCCL_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEGMENT_MEMBERS_MAX = 64 };

struct segment;

/* Maps that of the name, which whoever comes first makes, and notes that this member is there. NULL: it
   cannot be mapped, or is of another size. */
struct segment *segment_join(const char *name, int rank, int size);
void segment_leave(struct segment *segment);
bool segment_is_full(const struct segment *segment); /* every member has joined */
/* Moves what there is room for, or what is there; return how many bytes. */
size_t segment_write(struct segment *segment, int from, int to, const char *bytes, size_t size);
size_t segment_read(struct segment *segment, int from, int to, char *bytes, size_t size);
/* How many bytes were ever read of the pipe. */
uint64_t segment_bytes_read(const struct segment *segment, int from, int to);
uint64_t segment_bytes_written(const struct segment *segment, int from, int to);

#endif
