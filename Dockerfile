# Images of the programs, built from a commit, so that nothing else of the folder gets in and --version names it:
#
#   git archive HEAD | docker build --target cpu -t gpt2c:cpu -
#   git archive HEAD | docker build --target gpu --build-arg GPU="80 90" -t gpt2c:gpu -
#
#   docker run --rm -it -v "$PWD:/work" gpt2c:cpu train_gpt2 --help
#   docker run --rm -it -v "$PWD:/work" --gpus all --shm-size=1g --ulimit memlock=-1 gpt2c:gpu train_gpt2cu check
#
# The shared memory and the locked memory are for NCCL.

FROM debian:12-slim AS cpu-build
WORKDIR /gpt2.c
COPY . .
RUN sh scripts/setup.sh
RUN make -j"$(nproc)" train_gpt2 prepare && make install PROGRAMS="train_gpt2 prepare" DESTDIR=/installed

FROM debian:12-slim AS cpu
RUN apt-get update && apt-get install -y --no-install-recommends \
    libgomp1 libjansson4 libsnappy1v5 libzstd1 zlib1g && rm -rf /var/lib/apt/lists/*
COPY --from=cpu-build /installed /
WORKDIR /work
CMD ["train_gpt2", "--help"]

# CUDA's development image has nvcc, NCCL and cuDNN; cuDNN's frontend comes from PyPI.
FROM nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04 AS gpu-build
ARG GPU="80 90"
WORKDIR /gpt2.c
COPY . .
RUN sh scripts/setup.sh c++:g++ pip3:python3-pip && sh scripts/setup.sh cudnn
RUN make -j"$(nproc)" GPU="$GPU" && make install GPU="$GPU" DESTDIR=/installed

FROM nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04 AS gpu
RUN apt-get update && apt-get install -y --no-install-recommends \
    libgomp1 libjansson4 libsnappy1v5 libzstd1 zlib1g && rm -rf /var/lib/apt/lists/*
COPY --from=gpu-build /installed /
WORKDIR /work
CMD ["train_gpt2cu", "--help"]
