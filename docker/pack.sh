#!/bin/sh
# pack.sh BUILD OUT: makes OUT/weir-VERSION-x86_64.tar.gz of what is in BUILD, and prints its name. CUDA=0 leaves
# weir-cuda.so out; DIST_GZIP=-1 is quicker.
#
#   bin/                    weir, weir-server, weir-worker
#   lib/                    every shared library that they need but glibc's and CUDA's; weir-cuda.so if it was built
#   bin/tests/conformance/  the programs of the GPU suite, tests/ its scripts and vectors; ./gpu-check runs it
#   licenses/               of the packages whose libraries are in lib/
#
# The same build gives the same bytes.
set -eu
build=$1 out=$2
root=$(cd "$(dirname "$0")/.." && pwd)
vectors=/usr/share/libonnx-testdata
programs="weir weir-server weir-worker"

# weir-cuda.so finds CUDA's libraries where they are installed; glibc is the machine's own, and its driver's too.
is_machines() {
  case $1 in
  ld-linux-*.so.* | libc.so.* | libm.so.* | libmvec.so.* | libpthread.so.* | libdl.so.* | librt.so.* | \
    libresolv.so.* | libutil.so.* | libanl.so.* | libnss_*.so.* | libBrokenLocale.so.* | libthread_db.so.*) ;;
  libcuda* | libcublas* | libcudnn* | libnccl* | libnvrtc* | libnvJitLink*) ;;
  *) return 1 ;;
  esac
}

# Prints NAME PATH of each shared library of the file.
needs() {
  ldd "$1" | while read -r name arrow path rest; do
    [ "$arrow" = "=>" ] || continue
    is_machines "$name" && continue
    [ "$path" != not ] || { echo "pack.sh: $1 needs $name, which is not found: $rest" >&2; exit 1; }
    echo "$name $path"
  done
}

# A library's path may begin with /usr where its package's list has it without, and the other way round.
copy_libraries() {
  for file in "$@"; do needs "$file"; done | sort -u >"$work/libraries"
  while read -r name path; do
    real=$(readlink -f "$path")
    echo "$real ${real#/usr}"
  done <"$work/libraries" >"$work/paths"
  xargs dpkg -S <"$work/paths" >"$work/owners" 2>/dev/null || true # says which of the two are in no list
  while read -r name path; do
    real=$(readlink -f "$path")
    package=$(sed -n "s|^\([^:]*\):.* \(/usr\)\?${real#/usr}\$|\1|p" "$work/owners" | head -n 1)
    [ -n "$package" ] || { echo "pack.sh: $path belongs to no package, so its license is not known" >&2; exit 1; }
    install -m 644 "$real" "$to/lib/$name"
    cp -L "/usr/share/doc/$package/copyright" "$to/licenses/$package"
  done <"$work/libraries"
}

strip_to() { install -m 755 "$1" "$2" && strip --strip-unneeded "$2"; }

version=$("$build/weir" version | sed -n '1s/^weir \([^ ]*\) .*/\1/p')
packed=weir-$version-x86_64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/$packed
mkdir -p "$to/bin/tests/conformance" "$to/lib" "$to/licenses" "$to/tests/onnx"
chmod 755 "$work"

set --
for program in $programs; do strip_to "$build/$program" "$to/bin/$program"; set -- "$@" "$build/$program"; done
for test in "$build"/tests/conformance/*_test; do
  strip_to "$test" "$to/bin/tests/conformance/${test##*/}"
  set -- "$@" "$test"
done
if [ "${CUDA:-1}" = 1 ] && [ -e "$build/weir-cuda.so" ]; then
  strip_to "$build/weir-cuda.so" "$to/lib/weir-cuda.so"
  set -- "$@" "$build/weir-cuda.so"
fi
copy_libraries "$@"

cp "$root/LICENSE" "$root/README.md" "$to"
cp -r "$root/examples" "$root/docs" "$to"
cp "$root/tests/run.py" "$root/tests/timed.py" "$to/tests"
cp -r "$root/tests/gpu" "$root/tests/integration" "$root/tests/parity" "$to/tests"
rm -rf "$to"/examples/*.onnx "$to"/examples/*/ "$to"/tests/integration/test_*.py
cp "$root/tests/integration/test_parity.py" "$to/tests/integration"
cp -rL "$vectors/data" "$to/tests/onnx"
cp -L /usr/share/doc/libonnx-testdata/copyright "$to/licenses/libonnx-testdata"
cp -L /usr/share/doc/libjs-chart.js/copyright "$to/licenses/libjs-chart.js" # in the dashboard
install -m 755 "$root/docker/gpu-check" "$to"
find "$to" -name __pycache__ -prune -exec rm -rf {} +
chmod -R u+w,go-w,a+rX "$to"

date=$(git -C "$root" log -1 --format=%cI 2>/dev/null || echo 2000-01-01)
mkdir -p "$out"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="$date" -cf "$work/tar" "$packed"
gzip -n ${DIST_GZIP:--6} "$work/tar"
mv "$work/tar.gz" "$out/$packed.tar.gz"
echo "$out/$packed.tar.gz"
