# One party's daemon. The party's folder is /party; its configuration, tables and policy are mounted.
FROM python:3.11-slim

COPY pyproject.toml README.md LICENSE /src/
COPY brokers /src/brokers
COPY fedmq /src/fedmq
# What a party may need, and the extra for the example's data.
RUN pip install --no-cache-dir "/src[console,demo,http,otel,parquet,postgresql,report,vectors]" && rm -r /src

RUN useradd --uid 1000 --create-home fedmq && install --directory --owner fedmq /party /party/state
USER fedmq
WORKDIR /party
VOLUME /party/state

# Tables are written once and read by the daemon; the state folder holds the model shares.
ENTRYPOINT ["fedmq"]
CMD ["run", "party.toml"]
