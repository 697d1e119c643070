/* What a mode answers. */
#include "common/modes/mode.h"

uint64_t mode_version(const struct mode *mode, uint64_t step) {
  return mode->def->version(mode->train, step);
}

enum mode_arrival mode_arrive(const struct mode *mode, const struct mode_part *part) {
  return mode->def->arrive(mode->train, part);
}

uint64_t mode_answer(const struct mode *mode, uint64_t wanted, uint64_t newest) {
  return mode->def->answer(mode->train, wanted, newest);
}

uint64_t mode_oldest(const struct mode *mode, uint64_t complete) {
  return mode->def->oldest(mode->train, complete);
}

uint64_t mode_boundary(const struct mode *mode, uint64_t version) {
  return mode->def->boundary(mode->train, version);
}

struct mode_bounds mode_bounds(const struct mode *mode) {
  return mode->def->bounds(mode->train);
}

uint64_t mode_reply(const struct mode *mode, uint64_t step) {
  return mode_version(mode, step + 1);
}

bool mode_brings_version(const struct mode *mode, uint64_t step) {
  return mode_reply(mode, step) > mode_version(mode, step);
}
