/* Programs for the planners of worker/backend/replay. */
#include "tests/support/worker/replay_programs.h"

#include <string.h>

struct program program;

static int draw(int n) {
  program.state = program.state * 6364136223846793005u + 1442695040888963407u;
  return (int)((program.state >> 33) % (uint64_t)n);
}

void program_begin(uint64_t seed) {
  memset(&program, 0, sizeof program);
  program.state = seed * 2 + 1;
  program.plan_of = (struct replay_program){.steps = program.steps, .roots = program.roots};
}

static int root_add(size_t size_bytes, bool is_planned) {
  program.roots[program.plan_of.n_roots] = (struct replay_root){size_bytes, is_planned};
  return program.plan_of.n_roots++;
}

static struct replay_step *step_add(double cost) {
  struct replay_step *step = &program.steps[program.plan_of.n_steps];
  step->uses = program.uses[program.plan_of.n_steps++];
  step->cost = cost;
  return step;
}

static void use_add(struct replay_step *step, int root, bool is_written) {
  program.uses[step - program.steps][step->n_uses++] = (struct replay_use){root, is_written};
}

/* A step that reads `from` and writes a root of its own. Returns that. */
static int step_of(int from, int also, size_t size_bytes, double cost) {
  struct replay_step *step = step_add(cost);
  int root = root_add(size_bytes, true);
  use_add(step, from, false);
  if (also >= 0)
    use_add(step, also, false);
  use_add(step, root, true);
  return root;
}

/* Roots that are there: inputs and weights at first. The last ones are drawn more often. */
static int draw_known(const int *known, int n) {
  int back = draw(4) ? draw(n < 6 ? n : 6) : draw(n);
  return known[n - 1 - back];
}

static void draw_reads(struct replay_step *step, const int *known, int n_known) {
  for (int reads = 1 + draw(3); reads > 0; reads--)
    use_add(step, draw_known(known, n_known), false);
}

/* Any planned root may be written over, also by the backward part, or added to without being read. */
static void draw_writes(struct replay_step *step, int *known, int *n_known) {
  int kind = draw(12);
  int old = step->uses[0].root;
  if (kind < 4 && program.roots[old].is_planned) {
    use_add(step, old, true);
    return;
  }
  if (kind == 4 && program.roots[known[*n_known - 1]].is_planned && draw(3) == 0) {
    use_add(step, known[*n_known - 1], true);
    return;
  }
  for (int writes = 1 + (draw(4) == 0); writes > 0; writes--) {
    int root = root_add((size_t)(1 + draw(40)) * 24, true);
    use_add(step, root, true);
    known[(*n_known)++] = root;
  }
}

/* Deliveries read; a refill writes what is not planned. */
static void draw_once(struct replay_step *step, int *known, int *n_known) {
  step->is_once = true;
  if (draw(2))
    use_add(step, draw_known(known, *n_known), false);
  if (draw(3))
    return;
  known[*n_known] = root_add(64, false);
  use_add(step, known[(*n_known)++], true);
}

static bool step_writes(const struct replay_step *step, int root) {
  for (int u = 0; u < step->n_uses; u++)
    if (step->uses[u].root == root && step->uses[u].is_written)
      return true;
  return false;
}

/* Deliveries may read on until their bytes are written over. */
static void draw_until(void) {
  for (int s = 0; s < program.plan_of.n_steps; s++) {
    struct replay_step *step = &program.steps[s];
    int until = s, wanted = s + draw(30);
    if (!step->is_once || step->n_uses != 1 || step->uses[0].is_written)
      continue;
    while (until < wanted && until + 1 < program.plan_of.n_steps &&
           !step_writes(&program.steps[until + 1], step->uses[0].root))
      until++;
    step->until = until;
  }
}

void program_draw(uint64_t seed) {
  static int known[ROOTS_MAX];
  int n_known = 0, n_steps;
  program_begin(seed);
  for (int i = 1 + draw(3); i > 0; i--)
    known[n_known++] = root_add(100, true);
  for (int i = 1 + draw(3); i > 0; i--)
    known[n_known++] = root_add((size_t)(draw(2) * 200), false);
  n_steps = 2 + draw(120);
  program.plan_of.n_forward = draw(8) ? n_steps / 2 : draw(n_steps + 1);
  for (int s = 0; s < n_steps; s++) {
    struct replay_step *step = step_add(draw(5) ? 1 + draw(100) : 0);
    if (draw(8) == 0) {
      draw_once(step, known, &n_known);
      continue;
    }
    draw_reads(step, known, n_known);
    draw_writes(step, known, &n_known);
    step->is_once = draw(10) == 0;
  }
  draw_until();
}

void program_layers(int n_layers) {
  static int made[STEPS_MAX][4];
  int x = root_add(4096, true), gradient;
  for (int l = 0; l < n_layers; l++) {
    size_t size_bytes = l < n_layers / 3 ? 8192 : 4096;
    made[l][0] = x;
    made[l][1] = step_of(x, -1, size_bytes, 1);
    made[l][2] = step_of(made[l][1], -1, 4 * size_bytes, 100);
    made[l][3] = step_of(made[l][2], -1, 4 * size_bytes, 2);
    x = step_of(made[l][3], x, size_bytes, 100);
  }
  program.plan_of.n_forward = program.plan_of.n_steps;
  gradient = x;
  for (int l = n_layers - 1; l >= 0; l--)
    for (int i = 3; i >= 0; i--)
      gradient = step_of(gradient, made[l][i], 4096, 100);
}
