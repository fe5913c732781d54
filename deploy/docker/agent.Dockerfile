# SPDX-License-Identifier: Apache-2.0
# The agent. From the root of the source: docker build -f deploy/docker/agent.Dockerfile -t lanterne-agent:0.1.0 .
# The two Dockerfiles begin with the same stage, so that it is built once.
ARG BASE=debian:12-slim
FROM ${BASE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
        bpftool clang cmake gcc libbpf-dev libc6-dev libcurl4-openssl-dev libelf-dev libiberty-dev libjansson-dev \
        libnghttp2-dev libprotobuf-c-dev libsqlite3-dev libssl-dev libxxhash-dev libyaml-dev libzstd-dev linux-libc-dev llvm \
        ninja-build pkg-config protobuf-c-compiler protobuf-compiler zlib1g-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cmake --preset release -DLTN_WERROR=OFF \
    && cmake --build --preset release --target lanterne lanterne-collector \
    && strip build/release/bin/lanterne build/release/bin/lanterne-collector

FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends \
        ca-certificates libbpf1 libcurl4 libelf1 libjansson4 libnghttp2-14 libprotobuf-c1 libsqlite3-0 libssl3 \
        libxxhash0 libyaml-0-2 libzstd1 zlib1g \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* \
    && mkdir -p /etc/lanterne /var/lib/lanterne
COPY --from=build /src/LICENSE /src/LICENSES /usr/share/doc/lanterne/
COPY --from=build /src/build/release/bin/lanterne /usr/bin/lanterne
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lanterne-agent" \
      org.opencontainers.image.description="Which GPU is everybody waiting for: the agent of a node" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)"
# For runtimes that hand in NVML by these.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility
# Root, for the folder on the node; all that root may do is what the capabilities say. Run it with
#   --pid=host --read-only --cap-drop ALL --cap-add BPF,PERFMON,SYS_PTRACE,DAC_READ_SEARCH,CHECKPOINT_RESTORE
# and /sys/kernel/btf and /var/lib/lanterne of the node. Not privileged.
USER 0:0
STOPSIGNAL SIGTERM
# Each window is written to the database, also when there is nothing to trace.
HEALTHCHECK --interval=60s --timeout=5s --start-period=60s --retries=3 \
    CMD ["sh", "-c", "find /var/lib/lanterne -maxdepth 1 -name 'lanterne.db*' -mmin -3 | grep -q ."]
ENTRYPOINT ["/usr/bin/lanterne"]
CMD ["agent"]
