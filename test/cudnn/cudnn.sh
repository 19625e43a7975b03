#!/bin/sh
# Lets cuDNN check the graphs of attention_cudnn.cpp. Needs no GPU.
# usage: sh test/cudnn/cudnn.sh build/CONFIG
build=${1:?usage: sh test/cudnn/cudnn.sh build/CONFIG}
[ -f "$build/attention_cudnn.o" ] ||
    { echo "skipped: built without cuDNN, or without its frontend (sh scripts/setup.sh cudnn)"; exit 77; }
make -s "$build/test_cudnn_graphs" && "$build/test_cudnn_graphs"
