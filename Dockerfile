# An image with the commands of publishers and of the fleet: `puller site …`, `puller fleet …`. Hosts do not run in containers.
# Build it in a clone, after `.ci/check wheel`, with a fixed date for the same bytes:
#
#     docker build --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" --tag puller .
#     docker run --rm --user "$(id -u)" --volume "$PWD:/work" --env PULLER_PASSPHRASE puller site publish site web --version auto
#
# The base is fixed by its digest. pip rejects each file whose hash is not in a lock file or beside the wheel. The image has
# neither pip nor byte code, which contains the time of the build.
FROM debian:trixie-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f AS base
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates openssh-client python3 \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/ldconfig/aux-cache

FROM base AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY packaging/requirements.lock packaging/requirements-fleet.lock packaging/requirements-s3.lock ./
COPY dist/puller_agent-*.whl dist/puller_agent-*.whl.sha256 ./
RUN sha256sum --check --strict ./*.whl.sha256 \
    && python3 -m venv /opt/puller \
    && /opt/puller/bin/pip install --no-cache-dir --no-compile --only-binary=:all: --require-hashes --no-deps \
        --requirement requirements.lock --requirement requirements-fleet.lock --requirement requirements-s3.lock \
    && /opt/puller/bin/pip install --no-cache-dir --no-compile --no-index --no-deps ./*.whl \
    && /opt/puller/bin/pip check \
    && /opt/puller/bin/pip uninstall --quiet --yes pip \
    && find /opt/puller -name __pycache__ -prune -exec rm -r {} +

FROM base
COPY --from=build /opt/puller /opt/puller
RUN useradd --system --uid 10001 --home-dir /work --shell /usr/sbin/nologin puller
ENV PYTHONDONTWRITEBYTECODE=1 MPLCONFIGDIR=/tmp/matplotlib
USER 10001
WORKDIR /work
ENTRYPOINT ["/opt/puller/bin/puller"]
CMD ["--help"]
