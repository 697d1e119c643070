#!/bin/sh
# The demo: a CNN on all of Fashion-MNIST, on two servers and two workers, as separate processes on this machine.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
out=$build/demo
rm -rf "$out"
mkdir -p "$out"
"$build/weir" model lenet --channels 32,64 --hidden 128 --batch-norm --seed 1 -o "$out/fashion-mnist.onnx"
cp examples/fashion-mnist.yaml "$out/"
exec "$build/weir" train "$out/fashion-mnist.yaml" --servers 2 --workers 2 --threads 1 --out "$out/run"
