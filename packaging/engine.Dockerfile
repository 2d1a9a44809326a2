# The launcher in an engine's image: the tarball is all it takes. Build it in the folder that `make dist` made:
#
#   docker build -t engine-profiled --build-arg ENGINE=vllm/vllm-openai:latest --build-arg VERSION=0.1.0 \
#     -f packaging/engine.Dockerfile dist
#   docker run --gpus all -p 8000:8000 -p 127.0.0.1:18259:18259 engine-profiled vllm serve Qwen/Qwen3-8B
#
# The engine keeps its user and its files. Whoever publishes port 18259 beyond this host publishes /signals.
ARG ENGINE
FROM ${ENGINE}
ARG VERSION
ARG TARGETARCH=amd64
ADD graphsignal-${VERSION}-linux-${TARGETARCH}.tar.gz /opt/
ENV PATH=/opt/graphsignal-${VERSION}-linux-${TARGETARCH}/bin:$PATH \
    GRAPHSIGNAL_LISTEN_HOST=0.0.0.0
ENTRYPOINT ["graphsignal-run"]
