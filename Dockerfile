# nacdrive with PyTorch for the CPU: the live page on port 8090, the bridge to the Udacity simulator on port 4567.
#
#   docker build -t nacdrive .
#   docker run --rm -p 127.0.0.1:8090:8090 -p 127.0.0.1:4567:4567 nacdrive
#   docker run --rm -p 127.0.0.1:8090:8090 nacdrive drive --env carracing --model nac_steady.pt --host 0.0.0.0
#   docker run --rm --no-healthcheck -v "$PWD:/home/driver/work" nacdrive eval --model nac_steady.pt --episodes 20
#
# The page's address with its one-time token is in the container's log; replace the host in it by localhost. Whoever
# reaches port 4567 can be driven by, or drive, the policy (SECURITY.md): publish both ports to 127.0.0.1 alone.

ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS wheel
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:${PYTHON}-slim-bookworm
# Builds for the CPU stand in an index of their own; the usual one would bring gigabytes of CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# The software renderer of the built-in tracks is linked against X11's library, though it opens no display.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libx11-6 \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 10001 driver \
    && install --directory --owner driver --group driver /home/driver/work

COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /dist /tmp/dist
RUN torch="$(grep '^torch==' /tmp/constraints.txt)" \
    && pip install --no-cache-dir --index-url "${TORCH_INDEX}" --extra-index-url https://pypi.org/simple "${torch}+cpu" \
    && pip install --no-cache-dir --constraint /tmp/constraints.txt "$(echo /tmp/dist/*.whl)[all]" \
    && rm -rf /tmp/constraints.txt /tmp/dist

# Small networks on few cores: more threads than one make every step slower.
ENV OMP_NUM_THREADS=1 \
    PYTHONUNBUFFERED=1
USER driver
WORKDIR /home/driver/work
EXPOSE 8090 4567

# A refusal (403) is an answer too: viewers need a token, and this check has none.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8090, timeout=4); c.request('GET', '/'); raise SystemExit(c.getresponse().status not in (200, 403))"]

ENTRYPOINT ["nacdrive"]
CMD ["drive", "--sim", "udacity", "--model", "nac_steady.pt", "--host", "0.0.0.0"]
