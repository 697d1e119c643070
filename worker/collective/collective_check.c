/* What every collective refuses, and how many elements a member has. */
#include <string.h>

#include "worker/collective/collective.h"

int collective_check_options(const struct collective_options *options, struct err *err) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  size_t length = strlen(options->name);
  if (length < 1 || length > COLLECTIVE_NAME_MAX || strspn(options->name, letters) != length)
    return err_set(err, ERR_INVALID,
                   "collective group '%.100s': a name is 1 to %d letters, digits, '_', '.' or '-'",
                   options->name, COLLECTIVE_NAME_MAX);
  if (options->size < 1 || options->size > COLLECTIVE_SIZE_MAX)
    return err_set(err, ERR_INVALID, "collective group %s: a group has 1 to %d members, not %d",
                   options->name, COLLECTIVE_SIZE_MAX, options->size);
  if (options->rank < 0 || options->rank >= options->size)
    return err_set(err, ERR_INVALID, "collective group %s of %d: there is no member %d", options->name,
                   options->size, options->rank);
  return 0;
}

static bool is_rooted(enum collective_kind kind) {
  return kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_BROADCAST || kind == COLLECTIVE_GATHER ||
         kind == COLLECTIVE_SCATTER;
}

static bool is_paired(enum collective_kind kind) {
  return kind == COLLECTIVE_SEND || kind == COLLECTIVE_RECEIVE;
}

size_t collective_in_elems(const struct collective_call *call, int rank, int size) {
  bool is_root = rank == call->root;
  switch (call->kind) {
  case COLLECTIVE_RECEIVE:
    return 0;
  case COLLECTIVE_BROADCAST:
    return is_root ? call->elems : 0;
  case COLLECTIVE_SCATTER:
    return is_root ? call->elems * (size_t)size : 0;
  case COLLECTIVE_REDUCE_SCATTER:
    return call->elems * (size_t)size;
  default:
    return call->elems;
  }
}

size_t collective_out_elems(const struct collective_call *call, int rank, int size) {
  bool is_root = rank == call->root;
  switch (call->kind) {
  case COLLECTIVE_SEND:
    return 0;
  case COLLECTIVE_BROADCAST:
    return is_root ? 0 : call->elems;
  case COLLECTIVE_REDUCE:
    return is_root ? call->elems : 0;
  case COLLECTIVE_GATHER:
    return is_root ? call->elems * (size_t)size : 0;
  case COLLECTIVE_ALL_GATHER:
    return call->elems * (size_t)size;
  default:
    return call->elems;
  }
}

int collective_check_call(const struct collective_call *call, int rank, int size, struct err *err) {
  if ((unsigned)call->kind >= COLLECTIVE_KINDS || (unsigned)call->reduction >= COLLECTIVE_REDUCTIONS)
    return err_set(err, ERR_INVALID, "collective: there is no kind %d with reduction %d", (int)call->kind,
                   (int)call->reduction);
  if ((is_rooted(call->kind) || is_paired(call->kind)) && (call->root < 0 || call->root >= size))
    return err_set(err, ERR_INVALID, "collective: there is no member %d in a group of %d", call->root, size);
  if (is_paired(call->kind) && call->root == rank)
    return err_set(err, ERR_INVALID, "collective: member %d cannot send to itself", rank);
  if (call->elems > SIZE_MAX / sizeof(float) / (size_t)size)
    return err_set(err, ERR_INVALID, "collective: %zu elements are more than memory can hold", call->elems);
  if ((!call->in && collective_in_elems(call, rank, size)) ||
      (!call->out && collective_out_elems(call, rank, size)))
    return err_set(err, ERR_INVALID, "collective: member %d of %d gives or gets elements at NULL", rank,
                   size);
  return 0;
}
