# The node in a small image. Build it from the root of the repository: docker build -t highwater .
# The object stores for the state of jobs can be left out: --build-arg FEATURES=aws (or azure, gcp, or nothing).
FROM rust:1.90-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends build-essential cmake pkg-config \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
ARG FEATURES="aws,azure,gcp"
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked -p highwater-cli --features "$FEATURES" && cp target/dist/highwater /highwater

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /data highwater \
    && mkdir /data /state && chown highwater /data /state
COPY --from=build /highwater /usr/local/bin/highwater
USER 10001
WORKDIR /data
VOLUME /data
# HTTP, Kafka and AMQP. A node listens on loopback only until its settings say otherwise: an address needs keys.
EXPOSE 8080 9092 5672
# SIGTERM drains: requests under way are answered, queues and workflows are handed to other nodes, files are closed.
STOPSIGNAL SIGTERM
ENTRYPOINT ["highwater"]
CMD ["up", "--data", "/data"]
