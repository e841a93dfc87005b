# The container image of node-recovery: docs/image.md says how to build and check it, and why it is made like this.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg REVISION="$(git rev-parse HEAD)" --tag NAME .
#
# The digest is that of the index of all platforms. It and the last RUN are untested;
# `docker buildx imagetools inspect python:3.13.16-slim-trixie` shows today's.
ARG PYTHON=python:3.13.16-slim-trixie@sha256:bf44cdfcb76cd3b41e879bc058fc37ec5872002ccfde7fcb765e218cde0cd79c

FROM ${PYTHON} AS build
WORKDIR /src
COPY .ci/install-image .ci/
COPY requirements-build.lock requirements-runtime.lock pyproject.toml README.md LICENSE NOTICE ./
COPY recovery recovery/
COPY providers providers/
RUN --mount=type=cache,target=/root/.cache/pip .ci/install-image /opt/node-recovery

FROM ${PYTHON}
# This Python comes with pip, which nothing needs any more, and with no library compiled, which a read-only root
# file system would make it do at every start (measured: 2.4 s instead of 0.9 s until an SDK client is there).
RUN python3 -m pip uninstall --yes --quiet --root-user-action=ignore pip \
    && library="$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
    && rm -r "$library/ensurepip" \
    && python3 -m compileall -q --invalidation-mode unchecked-hash "$library"
COPY --from=build /opt/node-recovery /opt/node-recovery
ENV PATH="/opt/node-recovery/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

ARG PYTHON
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="node-recovery" \
      org.opencontainers.image.description="Gets a broken accelerated node out of the way and a good one back" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${PYTHON}"

# A number, so that Kubernetes can see by itself that runAsNonRoot holds.
USER 65532:65532
EXPOSE 9108
ENTRYPOINT ["/opt/node-recovery/bin/node-recovery"]
CMD ["run"]
