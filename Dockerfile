# The service in a container: docker build -t confide . See docs/deploy.md for how it is run.
# Any image with Python 3.11 or newer, its venv and useradd will do as a base.
ARG BASE=docker.io/library/python:3.13-slim
FROM ${BASE} AS build
ARG EXTRAS=service,postgres
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/confide && /opt/confide/bin/pip install --no-cache-dir ".[${EXTRAS}]"

FROM ${BASE}
# One user, who owns the state and nothing else; its number is fixed, so that a volume keeps its owner.
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/confide --shell /usr/sbin/nologin confide \
 && install -d -o confide -g confide -m 0700 /var/lib/confide /var/lib/confide/keys /var/cache/confide \
 && install -d -m 0755 /etc/confide
COPY --from=build /opt/confide /opt/confide

# Inside a container every address is the container's own: what is reached from outside is decided where ports are
# published. Machine code that was compiled is kept in the cache.
ENV PATH=/opt/confide/bin:$PATH \
    XDG_CACHE_HOME=/var/cache/confide \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    CONFIDE_PUBLIC__HOST=0.0.0.0 \
    CONFIDE_OPERATOR__HOST=0.0.0.0

USER 10001
WORKDIR /var/lib/confide
VOLUME ["/var/lib/confide", "/var/cache/confide"]
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8001/healthz', timeout=4)"]
ENTRYPOINT ["confide"]
CMD ["serve", "/etc/confide/confide.toml"]
