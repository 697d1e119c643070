#!/bin/sh
# The GPU suite, from the tree after a build or from an unpacked `make dist`; needs Python 3 and nothing else.
# WEIR_BUILD_DIR: where the programs are. Ends with `N passed, N failed, N skipped`; without a GPU all is skipped.
# Arguments: only the programs whose command has one of these words, where all together would take too long.
cd "$(dirname "$0")/../.." || exit 1
: "${WEIR_BUILD_DIR:=build}"
: "${WEIR_TEST_LIMIT:=3600}" # seconds a program: compute-sanitizer takes its time
export WEIR_BUILD_DIR WEIR_TEST_LIMIT WEIR_DEVICE=cuda
words=$*
set --
while read -r program; do
  is_wanted=${words:+no}
  for word in $words; do
    case "$program" in *"$word"*) is_wanted=yes ;; esac
  done
  [ "$is_wanted" = no ] || set -- "$@" "$program"
done <<PROGRAMS
$WEIR_BUILD_DIR/tests/conformance/op_test cuda
$WEIR_BUILD_DIR/tests/conformance/op_test cuda tf32
$WEIR_BUILD_DIR/tests/conformance/op_test cuda bf16
$WEIR_BUILD_DIR/tests/conformance/fusion_test cuda
$WEIR_BUILD_DIR/tests/conformance/fusion_test cuda tf32
$WEIR_BUILD_DIR/tests/conformance/fusion_test cuda bf16
$WEIR_BUILD_DIR/tests/conformance/onnx_test cuda
$WEIR_BUILD_DIR/tests/conformance/chain_test cuda
$WEIR_BUILD_DIR/tests/conformance/norm_test cuda
$WEIR_BUILD_DIR/tests/conformance/pool_test cuda
$WEIR_BUILD_DIR/tests/conformance/recompute_test cuda
$WEIR_BUILD_DIR/tests/conformance/recompute_test cuda tf32
$WEIR_BUILD_DIR/tests/conformance/recompute_test cuda bf16
$WEIR_BUILD_DIR/tests/conformance/context_test cuda
$WEIR_BUILD_DIR/tests/conformance/context_test cuda tf32
$WEIR_BUILD_DIR/tests/conformance/context_test cuda bf16
$WEIR_BUILD_DIR/tests/conformance/stage_test cuda
$WEIR_BUILD_DIR/tests/conformance/stage_test cuda bf16
$WEIR_BUILD_DIR/tests/conformance/refusal_test cuda
$WEIR_BUILD_DIR/tests/conformance/device_memory_test
$WEIR_BUILD_DIR/tests/conformance/collective_test nccl
$WEIR_BUILD_DIR/tests/conformance/collective_life_test nccl
tests/integration/test_parity.py
tests/gpu/test_cluster.py
tests/gpu/test_recompute.py
tests/gpu/test_sanitizer.py
PROGRAMS
[ $# -gt 0 ] || { echo "check.sh: no program has '$words' in its command" >&2; exit 2; }
exec python3 tests/run.py "$@"
