# A server of one model: docker run -p 127.0.0.1:8000:8000 -v "$PWD/my-model:/model:ro" IMAGE [options of offramp serve]
FROM python:3.11-slim

WORKDIR /app
COPY constraints.txt pyproject.toml README.md LICENSE ./
# Before the source, so that a change of that does not install all of this again.
RUN pip install --no-cache-dir -c constraints.txt torch==2.13.0
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt '.[serve,onnx]' && useradd --uid 10001 --no-create-home server

USER 10001
ENV HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=3)"]
ENTRYPOINT ["offramp", "serve", "/model", "--host", "0.0.0.0"]
