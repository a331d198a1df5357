# The release: what goreleaser builds (.goreleaser.yaml), and from the same binaries the npm packages, the image and the
# registry's entry. Everything is left in dist; make publish uploads it. packaging/README.md says how and why.

export PATH := $(CURDIR)/.tmp/bin:$(PATH)
IMAGE ?= ghcr.io/gavel-mcp/gavel
CERTIFICATES ?= /etc/ssl/certs/ca-certificates.crt

.PHONY: release-tools
release-tools: # the pinned tools; fetches only what .tmp/bin lacks
	@mkdir -p .tmp; .ci/run release-tools >.tmp/release-tools.log || { cat .tmp/release-tools.log; exit 1; }

.PHONY: release-snapshot
release-snapshot: release-tools ## Build everything a release has into dist, marked as a snapshot; unsigned without MINISIGN_KEY
	@[ -n "$${MINISIGN_KEY:-}" ] || echo "unsigned: MINISIGN_KEY is not set"
	@flags=--snapshot; [ -n "$${MINISIGN_KEY:-}" ] || flags+=" --skip=sign"; $(goreleaser)
	@$(npm_packages)
	@$(image)

.PHONY: release
release: ## Build the release of the tag at HEAD into dist, signed with MINISIGN_KEY
	@[ -n "$${MINISIGN_KEY:-}" ] || { echo "a release is signed, and MINISIGN_KEY is not set: put the text of a minisign key without a password there" >&2; exit 1; }
	@$(MAKE) --no-print-directory release-tools
	@flags=--skip=publish; $(goreleaser)
	@$(npm_packages)
	@$(image)

# git must know where the project lives, and says so only where there is a remote.
define goreleaser
changes=$$(git status --porcelain); DIRTY=; \
if [ -n "$$changes" ]; then DIRTY=.dirty; echo "files differ from the commit:"; head <<<"$$changes"; fi; \
if ! git remote get-url origin >/dev/null 2>&1; then \
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/gavel-mcp/gavel; fi; \
DIRTY=$$DIRTY goreleaser release --clean --timeout 60m $$flags
endef

define npm_packages
node packaging/npm/pack.mjs --split --dist dist --licenses .tmp/licenses >.tmp/npm.log; \
version=$$(node -p 'require("./dist/metadata.json").version'); \
sed "s|\"version\": \"0.0.0\"|\"version\": \"$$version\"|" packaging/server.json >dist/server.json
endef

# An image without a daemon, in the OCI layout dist/image: the Dockerfile's files and settings (TestRelease compares them),
# one layer of the binary that is in the archives, and its SBOM as a referrer. The times are the commit's.
define image
[ -s "$(CERTIFICATES)" ] || { echo "no certificates of authorities in $(CERTIFICATES): set CERTIFICATES" >&2; exit 1; }; \
version=$$(node -p 'require("./dist/metadata.json").version'); commit=$$(git rev-parse HEAD); \
date=$$(TZ=UTC git show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ HEAD); \
root=.tmp/image; layout=ocidir://dist/image; \
for arch in amd64 arm64; do \
  rm -rf $$root; \
  install -D -m 755 dist/gavel_linux_$$arch*/gavel $$root/gavel; \
  install -D -m 644 LICENSE $$root/LICENSE; \
  install -D -m 644 "$(CERTIFICATES)" $$root/etc/ssl/certs/ca-certificates.crt; \
  cp -r .tmp/licenses $$root/licenses; chmod -R u=rwX,go=rX $$root; \
  install -d -m 700 $$root/data $$root/tmp; \
  as='--sort=name --format=ustar --numeric-owner'; \
  tar -C $$root $$as --mtime="$$date" --owner=0 --group=0 --exclude=./data --exclude=./tmp -cf .tmp/image.tar .; \
  tar -C $$root $$as --mtime="$$date" --owner=65532 --group=65532 -rf .tmp/image.tar ./data ./tmp; \
  regctl image create $$layout:$$arch --created "$$date" --platform linux/$$arch \
    --label io.modelcontextprotocol.server.name=io.github.gavel-mcp/gavel \
    --label org.opencontainers.image.source=https://github.com/gavel-mcp/gavel --label org.opencontainers.image.licenses=Apache-2.0 \
    --label org.opencontainers.image.version=$$version --label org.opencontainers.image.revision=$$commit \
    --label org.opencontainers.image.created="$$date"; \
  regctl image mod $$layout:$$arch --replace --layer-add tar=.tmp/image.tar --label-to-annotation \
    --user 65532:65532 --workdir /data --volume-add /data --expose-add 4285 \
    --env GAVEL_LISTEN=0.0.0.0:4285 --env GAVEL_INSECURE_PLAIN_HTTP=true \
    --config-entrypoint '["/gavel"]' --config-cmd '["serve"]' >/dev/null; \
  regctl artifact put --subject $$layout:$$arch --artifact-type application/vnd.cyclonedx+json \
    --file-media-type application/vnd.cyclonedx+json --file dist/gavel_$${version}_linux_$$arch.cdx.json; \
done; \
regctl index create $$layout:$$version --ref $$layout:amd64 --ref $$layout:arm64 --referrers
endef

.PHONY: publish
publish: ## Upload what make release left in dist: GitHub, npm, the image (gh, npm; IMAGE=repository); again after a failure
	@IMAGE=$(IMAGE) packaging/publish.sh

# Not in URLs: they say where the repository is, its issues and its pages, and that need not be the module's path.
.PHONY: module-path
module-path: ## Give the module another path, everywhere that imports it (MODULE=example.org/you/gavel)
	@[ -n "$(MODULE)" ] || { echo "MODULE is not set" >&2; exit 1; }
	@old=$$($(GO) list -m); old=$${old//./\\.}; \
	git grep -lIE "(^|[^/])$$old" | xargs -d '\n' sed -i -E "s#(^|[^/])$$old#\1$(MODULE)#g"
	@$(GO) fmt ./... >/dev/null # the imports are sorted
