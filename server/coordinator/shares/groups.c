/* Which workers of a run make groups. */
#include "server/coordinator/shares/groups.h"

#include <string.h>

#include "server/coordinator/state/assignment.h"

static bool is_same_host(const char *a, const char *b) {
  return a && b && strcmp(a, b) == 0;
}

void groups_order(const char *const *hosts, int n, int *order) {
  int placed = 0;
  for (int i = 0; i < n; i++) {
    bool is_placed = false;
    for (int at = 0; at < placed && !is_placed; at++)
      is_placed = order[at] == i;
    if (is_placed)
      continue;
    order[placed++] = i;
    for (int other = i + 1; other < n; other++)
      if (is_same_host(hosts[i], hosts[other]))
        order[placed++] = other;
  }
}

static bool is_empty(const struct group_worker *worker) {
  return worker->microbatches.begin == worker->microbatches.end;
}

/* Where the group that begins with this worker ends; *size: its members. Those without microbatches are
   passed over. */
static int group_end(const struct group_worker *workers, int n, int first, uint32_t *size) {
  int end = first + 1;
  *size = 1;
  for (int i = first + 1; i < n && *size < GROUP_SIZE_MAX; i++) {
    if (is_empty(&workers[i]))
      continue;
    if (!is_same_host(workers[first].host, workers[i].host))
      break;
    ++*size;
    end = i + 1;
  }
  return end;
}

static bool is_unchanged(const struct group_worker *workers, int first, int end, uint32_t size) {
  uint32_t number = workers[first].grouping.number;
  for (int i = first; i < end; i++) {
    const struct grouping *before = &workers[i].grouping;
    if (is_empty(&workers[i]))
      continue;
    if (number == 0 || before->number != number || before->size != size ||
        before->part.begin != workers[i].microbatches.begin ||
        before->part.end != workers[i].microbatches.end)
      return false;
  }
  return true;
}

void groups_number(struct group_worker *workers, int n, uint32_t *seen) {
  uint32_t size;
  for (int first = 0, end; first < n; first = end) {
    uint32_t number = 0;
    end = first + 1;
    if (!is_empty(&workers[first])) {
      end = group_end(workers, n, first, &size);
      if (size > 1)
        number = is_unchanged(workers, first, end, size) ? workers[first].grouping.number : ++*seen;
    }
    for (int i = first; i < end; i++)
      workers[i].grouping = number && !is_empty(&workers[i])
                                ? (struct grouping){number, size, workers[i].microbatches}
                                : (struct grouping){0};
  }
}
