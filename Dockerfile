# One binary, one target for each of upstream's images, so that an existing Deployment only changes its image:
#
#     docker build --target source-controller -t registry.example.com/flux/source-controller:v1.9.4 .
#
# The name of the entry point tells which controller runs; `flux` is the command line, and `flux serve` all of them in one process.
# Nothing but the binary, certificates and time zones is in the image, and nobody is root. The root file system can be read-only:
# what is written goes to the volumes that the Deployments mount.

FROM docker.io/library/rust:1-alpine AS build
RUN apk add --no-cache build-base ca-certificates cmake perl tzdata
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package flux \
    && mkdir -p /out/usr/local/bin /out/etc/ssl/certs /out/usr/share /out/tmp /out/data \
    && cp target/release/flux /out/usr/local/bin/flux \
    && for name in source-controller kustomize-controller helm-controller notification-controller \
           image-reflector-controller image-automation-controller source-watcher; \
       do ln -s flux "/out/usr/local/bin/$name"; done \
    && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ \
    && cp -r /usr/share/zoneinfo /out/usr/share/ \
    && chown -R 65534:65534 /out/tmp /out/data

FROM scratch AS base
COPY --from=build /out/ /
ENV PATH=/usr/local/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65534:65534

FROM base AS source-controller
ENTRYPOINT ["/usr/local/bin/source-controller"]

FROM base AS kustomize-controller
ENTRYPOINT ["/usr/local/bin/kustomize-controller"]

FROM base AS helm-controller
ENTRYPOINT ["/usr/local/bin/helm-controller"]

FROM base AS notification-controller
ENTRYPOINT ["/usr/local/bin/notification-controller"]

FROM base AS image-reflector-controller
ENTRYPOINT ["/usr/local/bin/image-reflector-controller"]

FROM base AS image-automation-controller
ENTRYPOINT ["/usr/local/bin/image-automation-controller"]

FROM base AS source-watcher
ENTRYPOINT ["/usr/local/bin/source-watcher"]

FROM base AS flux
ENTRYPOINT ["/usr/local/bin/flux"]
