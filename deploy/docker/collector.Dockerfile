# SPDX-License-Identifier: Apache-2.0
# The collector. From the root of the source:
#   docker build -f deploy/docker/collector.Dockerfile -t lanterne-collector:0.1.0 .
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
        ca-certificates libcurl4 libjansson4 libnghttp2-14 libprotobuf-c1 libsqlite3-0 libssl3 libxxhash0 libyaml-0-2 \
        libzstd1 zlib1g \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* \
    && mkdir -p /etc/lanterne && install -d -o 65532 -g 65532 -m 0750 /var/lib/lanterne
COPY --from=build /src/LICENSE /src/LICENSES /usr/share/doc/lanterne/
COPY --from=build /src/build/release/bin/lanterne-collector /usr/bin/lanterne-collector
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lanterne-collector" \
      org.opencontainers.image.description="Which GPU is everybody waiting for: the collector of a cluster" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
EXPOSE 4317 4318 8420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8420 && printf 'GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200'"]
ENTRYPOINT ["/usr/bin/lanterne-collector"]
# Reachable from outside the container, so it wants --token-file FILE (or --insecure-no-auth) besides these.
CMD ["--otlp-listen=0.0.0.0:4317", "--otlp-listen=0.0.0.0:4318", "--api-listen=0.0.0.0:8420"]
