# gavel in a container: one static file, no shell, no root, nothing to write to but /data.
#
#   docker build -t gavel .
#
# make release-snapshot makes the same image without a daemon, for two platforms, with an SBOM (packaging/release.mk).
#
# A release gives the builder by digest (--build-arg GO_IMAGE=golang:1.26.8-bookworm@sha256:...), and VERSION, COMMIT and DATE.
ARG GO_IMAGE=golang:1.26.8-bookworm

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The licences of everything that is linked.
RUN go mod vendor -o /out/licenses \
 && find /out/licenses -type f -not -iname '*licen[cs]e*' -not -iname 'copying*' -not -iname 'notice*' -not -iname 'patents*' -delete \
 && find /out/licenses -type f -name '*.go' -delete && find /out/licenses -type d -empty -delete \
 && install -D -m 644 "$(go env GOROOT)/LICENSE" /out/licenses/go/LICENSE
ARG TARGETOS TARGETARCH VERSION COMMIT DATE
RUN module=$(go list -m) \
 && CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} GOTOOLCHAIN=local go build -trimpath -buildvcs=false -o /out/gavel -ldflags \
      "-s -w -X ${module}/internal/cli.version=${VERSION} -X ${module}/internal/cli.commit=${COMMIT} -X ${module}/internal/cli.date=${DATE}" \
      ./cmd/gavel \
 && mkdir /out/data /out/tmp

FROM scratch
# For models, issuers and evidence over HTTPS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /out/licenses /licenses
COPY --from=build /out/gavel /gavel
COPY --from=build --chown=65532:65532 --chmod=0700 /out/data /data
COPY --from=build --chown=65532:65532 --chmod=0700 /out/tmp /tmp
LABEL io.modelcontextprotocol.server.name="io.github.gavel-mcp/gavel" \
      org.opencontainers.image.source="https://github.com/gavel-mcp/gavel" \
      org.opencontainers.image.licenses="Apache-2.0"

# By number: there is no /etc/passwd, and Kubernetes' runAsNonRoot looks at the number.
USER 65532:65532
# The store is where gavel is started: /data/.workflows/gavel.db, its tokens beside it.
WORKDIR /data
ENV GAVEL_LISTEN=0.0.0.0:4285 \
    GAVEL_INSECURE_PLAIN_HTTP=true
VOLUME ["/data"]
EXPOSE 4285
# gavel stops taking requests and finishes what it began; its own limit for that is 30 s.
STOPSIGNAL SIGTERM
# Asks /readyz where GAVEL_LISTEN says; with TLS, or another --listen, give the address as an
# argument (docs/serve.md). Kubernetes asks /readyz by itself.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 CMD ["/gavel", "health"]
ENTRYPOINT ["/gavel"]
CMD ["serve"]
