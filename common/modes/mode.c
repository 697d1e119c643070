/* What a mode answers. */
#include "common/modes/mode.h"

uint64_t mode_version(const struct mode *mode, uint64_t step) {
  return mode->def->version(mode->train, step);
}

uint64_t mode_proves(const struct mode *mode, uint64_t version) {
  return mode->def->proves ? mode->def->proves(mode->train, version) : version;
}

uint64_t mode_horizon(const struct mode *mode, uint64_t newest) {
  return mode->def->horizon ? mode->def->horizon(mode->train, newest) : newest;
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

static uint64_t at_most(uint64_t version, uint64_t last) {
  return last && version > last ? last : version;
}

uint64_t mode_boundary(const struct mode *mode, uint64_t version) {
  return at_most(mode->def->boundary(mode->train, version), mode->last);
}

static uint64_t mode_stride(const struct mode *mode) {
  return mode->def->stride ? mode->def->stride(mode->train) : 1;
}

uint64_t mode_next(const struct mode *mode, uint64_t version) {
  uint64_t stride = mode_stride(mode), next = (version / stride + 1) * stride;
  return version < mode->last ? at_most(next, mode->last) : next;
}

uint64_t mode_count(const struct mode *mode, uint64_t version) {
  uint64_t stride = mode_stride(mode);
  return version / stride + (version % stride > 0);
}

bool mode_makes(const struct mode *mode, uint64_t version) {
  return version % mode_stride(mode) == 0 || version == mode->last;
}

struct mode_bounds mode_bounds(const struct mode *mode) {
  return mode->def->bounds(mode->train);
}

uint64_t mode_reply(const struct mode *mode, uint64_t step) {
  return mode_version(mode, mode_next(mode, step));
}

bool mode_brings_version(const struct mode *mode, uint64_t step) {
  return mode_reply(mode, step) > mode_version(mode, step);
}

uint64_t mode_before(const struct mode *mode, uint64_t version) {
  return version - mode_oldest(mode, version);
}

const char *mode_note(const Weir__RunSpec *spec) {
  struct mode mode = mode_of(spec);
  return mode.def->note ? mode.def->note(mode.train) : NULL;
}
