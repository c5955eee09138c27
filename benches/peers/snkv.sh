#!/usr/bin/env bash
# snkv.sh FOLDER: gets SNKV 0.8 into a folder, as libsnkv.so: the extension module of its Python package,
# which exports SNKV's C functions. python_stub.so stands for the interpreter it would be loaded into; none
# of that is ever called. Prints the path. Needs python3 with pip, nm and a C compiler.
set -euo pipefail
folder=${1:?"a folder"}
mkdir -p "$folder"
if [ ! -e "$folder/libsnkv.so" ] || [ ! -e "$folder/python_stub.so" ]; then
    python3 -m pip download -q --no-deps --only-binary :all: --python-version 3.11 \
        --platform manylinux2014_x86_64 -d "$folder" snkv==0.8.0 >&2
    python3 -m zipfile -e "$folder"/snkv-0.8.0-*.whl "$folder/wheel"
    module=$(echo "$folder"/wheel/snkv/_snkv.*.so)
    nm -D --undefined-only "$module" | awk '$2 ~ /^_?Py/ { print "void *" $2 "[64];" }' >"$folder/python_stub.c"
    "${CC:-cc}" -shared -fPIC -o "$folder/python_stub.so" "$folder/python_stub.c"
    cp "$module" "$folder/libsnkv.so"
fi
echo "$folder/libsnkv.so"
