#!/bin/bash -eu
# The numpy kernels: what is fuzzed is Python.
UNPOOLED_PURE=1 pip3 install .
for target in "$SRC"/unpooled/fuzz/fuzz_*.py; do
  name=$(basename -s .py "$target")
  compile_python_fuzzer "$target"
  zip -jq "$OUT/${name}_seed_corpus.zip" "$SRC/unpooled/fuzz/corpus/$name"/*
done
