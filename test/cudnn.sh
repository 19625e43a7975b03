#!/bin/sh
# The graphs of attention_cudnn.cpp, checked by cuDNN without a GPU. usage: cudnn.sh build/CONFIG
build=${1:?usage: cudnn.sh build/CONFIG}
[ -f "$build/attention_cudnn.o" ] || { echo "skipped: built without cuDNN, or without its frontend (sh scripts/setup.sh cudnn)"; exit 77; }
make -s "$build/test_cudnn_graphs" && "$build/test_cudnn_graphs"
