#!/bin/sh
# cuda-tree.sh WHEELS TO: makes of NVIDIA's unpacked wheels a toolkit as its installers leave it, with lib64/ and names
# without versions for the linker, and TO/runtime of the libraries alone that weir-cuda.so and they load.
set -eu
wheels=$1/nvidia to=$2
mkdir -p "$to/runtime" "$to/licenses"
for wheel in cu13 cudnn nccl; do
  cp -r "$wheels/$wheel/." "$to"
done
for file in "$1"/*.dist-info/licenses/* "$1"/*.dist-info/License.txt; do
  [ ! -f "$file" ] || cp "$file" "$to/licenses/$(echo "$file" | sed 's|.*/\([^/]*\)\.dist-info.*|\1|')"
done
ln -sfn lib "$to/lib64"
chmod +x "$to"/bin/* "$to"/nvvm/bin/*
for library in "$to"/lib/lib*.so.*; do
  name=${library##*/}
  ln -sf "$name" "$to/lib/${name%%.so.*}.so"
  case $name in
  libcudart.* | libcublas.* | libcublasLt.* | libcudnn* | libnccl.* | libnvrtc*) cp "$library" "$to/runtime/$name" ;;
  esac
done
