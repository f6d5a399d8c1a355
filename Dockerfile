# Server and command line in an image of their own: built with Swift, run without it.
FROM swift:6.3-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends libpq-dev libsqlite3-dev zlib1g-dev libcurl4-openssl-dev libssl-dev pkg-config \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY Package.swift ./
COPY Shared Shared
COPY Client Client
COPY Server Server
COPY Tests Tests
COPY Benchmarks Benchmarks
COPY Examples Examples
RUN --mount=type=cache,target=/source/.build \
    for product in hapax-server hapax; do swift build -c release --static-swift-stdlib --traits Server --product $product || exit; done \
 && mkdir /staging \
 && cd "$(swift build -c release --static-swift-stdlib --traits Server --show-bin-path)" \
 && cp hapax-server hapax /staging/ \
 && strip /staging/*

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends libpq5 libsqlite3-0 zlib1g libstdc++6 libcurl4 libssl3 ca-certificates curl tzdata \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --create-home --home-dir /var/lib/hapax --uid 10001 hapax
COPY --from=build /staging/ /usr/local/bin/
USER hapax
WORKDIR /var/lib/hapax
ENV HAPAX_HOST=0.0.0.0 HAPAX_PORT=8080
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
  CMD a=127.0.0.1:$HAPAX_PORT/health/ready; curl -fso /dev/null http://$a || curl -fsSko /dev/null https://$a
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/hapax-server"]
