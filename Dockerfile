# The service as an image: `docker build -t ftrl-service .`
FROM python:3.12-slim AS dependencies
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements-image.lock /src/
RUN ["python", "-m", "venv", "--without-pip", "/opt/ftrl"]
RUN ["pip", "--python", "/opt/ftrl", "install", "--require-hashes", "--only-binary", ":all:", "-r", "/src/requirements-image.lock"]

FROM dependencies AS service
COPY pyproject.toml README.md LICENSE /src/
COPY model_core /src/model_core
COPY ftrl_client /src/ftrl_client
COPY service /src/service
RUN ["pip", "--python", "/opt/ftrl", "install", "--no-deps", "--no-build-isolation", "--target", "/opt/service", "/src"]
# Compile for every processor of the architecture, not only for the builder's: numba looks kernels up by the name of
# the processor. This code gains nothing from newer instructions.
ENV NUMBA_CPU_NAME=generic PYTHONPATH=/opt/service
RUN ["/opt/ftrl/bin/python", "/opt/service/bin/ftrl", "warm-up"]

# Remove what the service does not use: build tools, numba's tests, the cffi backend of zstandard, and the
# descriptions of all AWS services but S3 and the login services.
FROM dependencies AS runtime
RUN pip --python /opt/ftrl uninstall --yes setuptools && rm -r /opt/ftrl/lib/python3.12/site-packages/numba/tests \
    && rm /opt/ftrl/lib/python3.12/site-packages/zstandard/_cffi*.so \
    && find /opt/ftrl/lib/python3.12/site-packages/botocore/data -mindepth 1 -maxdepth 1 -type d \
       ! -name s3 ! -name sts ! -name "sso*" ! -name signin -exec rm -r {} +

FROM python:3.12-slim
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ftrl-service" \
      org.opencontainers.image.description="Streaming click prediction: learns online over HTTP, durable in Redis" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="python:3.12-slim"
ENV PATH=/opt/service/bin:/opt/ftrl/bin:$PATH \
    PYTHONPATH=/opt/service \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CPU_NAME=generic \
    FTRL_HOST=0.0.0.0 \
    FTRL_DATA_DIR=/data \
    FTRL_LOG_FORMAT=json
COPY --from=runtime /opt/ftrl /opt/ftrl
COPY --from=service /opt/service /opt/service
# /data holds snapshots, and the embedded server's data if `ftrl serve` runs without a Redis. Nothing else is written.
# Group 0 may write it, so that any user of that group can run the image: OpenShift chooses one for each project.
RUN ["install", "--directory", "--owner=10001", "--group=0", "--mode=775", "/data"]
USER 10001:0
WORKDIR /data
VOLUME /data
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
# Probes FTRL_HEALTH_PORT, or FTRL_PORT if that is unset. A learner on its own listens on 8001: use
# `--health-cmd "python -m service.cli.probe 8001"`.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 CMD ["python", "-m", "service.cli.probe"]
ENTRYPOINT ["ftrl"]
CMD ["serve"]
