# syntax=docker/dockerfile:1
#
# An image that holds nothing but the program, statically linked, and the root certificates that
# sslrootcert=system reads. It is meant to be copied from: the command that dislock runs has to be in
# the same image, and the image's user is yours to choose.
#
#   docker build -t dislock .
#
#   FROM python:3-slim
#   COPY --from=dislock /usr/local/bin/dislock /usr/local/bin/
#   COPY report.py /
#   ENTRYPOINT ["dislock", "--key", "report", "--cron", "0 3 * * *", "DATABASE_URL", "python3", "/report.py"]

FROM rust:1-alpine AS build
# No versions: Alpine keeps only its latest.
# hadolint ignore=DL3018
RUN apk add --no-cache ca-certificates gcc musl-dev
WORKDIR /src
COPY . .
# The C library of Alpine is musl, which can be linked in whole.
RUN target=$(rustc --print host-tuple) && \
    RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked --target "$target" && \
    cp "target/$target/release/dislock" /dislock

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /dislock /usr/local/bin/dislock
ENTRYPOINT ["/usr/local/bin/dislock"]
