# docker build -t autotune .
# docker run --rm --gpus all -v autotune:/cache autotune tune 4096x4096x4096:bf16:nt
# The NVIDIA Container Toolkit brings the host's driver; NVRTC and the bindings are wheels.
FROM python:3.13-slim-trixie AS build
# The suite of the base image fixes the versions.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN python -m venv /opt/autotune \
    && /opt/autotune/bin/pip install --no-cache-dir ".[report,energy]"

FROM python:3.13-slim-trixie
LABEL org.opencontainers.image.source="https://github.com/tile-autotune/autotune" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/autotune /opt/autotune
RUN useradd --create-home --uid 1000 autotune \
    && install --directory --owner autotune --mode 0700 /cache
ENV PATH=/opt/autotune/bin:$PATH \
    AUTOTUNE_CACHE_DIR=/cache \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
WORKDIR /home/autotune
VOLUME /cache
ENTRYPOINT ["autotune"]
CMD ["doctor"]
