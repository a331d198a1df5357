package packaging_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// descriptor is a blob of an OCI layout, as manifests name it.
type descriptor struct {
	MediaType, Digest, ArtifactType string
	Annotations                     map[string]string
	Platform                        struct{ OS, Architecture string }
}

// manifest is an index or a manifest.
type manifest struct {
	ArtifactType      string
	Manifests, Layers []descriptor
	Config            descriptor
	Subject           *descriptor
}

func (r *release) blob(t *testing.T, d descriptor) []byte {
	t.Helper()
	data := r.read(t, "image/blobs/"+strings.Replace(d.Digest, ":", "/", 1))
	if "sha256:"+sum(data) != d.Digest {
		t.Errorf("%s has another content", d.Digest)
	}
	return data
}

func (r *release) manifest(t *testing.T, d descriptor) (out manifest) {
	t.Helper()
	if err := json.Unmarshal(r.blob(t, d), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The image has the settings of the Dockerfile, the programs of the archives for both platforms, and an SBOM for each.
func TestReleaseImage(t *testing.T) {
	r := openRelease(t)
	var layout manifest
	r.readJSON(t, "image/index.json", &layout)
	at := slices.IndexFunc(layout.Manifests, func(d descriptor) bool { return d.Annotations["org.opencontainers.image.ref.name"] == r.version })
	if at < 0 {
		t.Fatalf("the layout has no image %s: %+v", r.version, layout)
	}
	seen := map[string]bool{}
	for _, d := range r.manifest(t, layout.Manifests[at]).Manifests {
		arch := d.Platform.Architecture
		if d.Platform.OS != "linux" || seen[arch] {
			t.Errorf("the image is for %+v", d.Platform)
		}
		seen[arch] = true
		image := r.manifest(t, d)
		r.checkImageConfig(t, r.blob(t, image.Config), arch)
		r.checkLayers(t, image.Layers, arch)
		r.checkAttached(t, layout, d, arch)
	}
	if len(seen) != 2 || !seen["amd64"] || !seen["arm64"] {
		t.Errorf("the image is for %v", seen)
	}
}

func (r *release) checkImageConfig(t *testing.T, data []byte, arch string) {
	t.Helper()
	var image struct {
		Created, Architecture, OS string
		Config                    struct {
			User, WorkingDir      string
			Env, Entrypoint, Cmd  []string
			Labels                map[string]string
			Volumes, ExposedPorts map[string]any
		}
	}
	if err := json.Unmarshal(data, &image); err != nil {
		t.Fatal(err)
	}
	if image.Architecture != arch || image.OS != "linux" || image.Created != r.date.Format("2006-01-02T15:04:05Z") {
		t.Errorf("%s: %+v, and the release is of %v", arch, image, r.date)
	}
	file, got := stagesOf(t), image.Config
	words := func(instruction string) (out []string) {
		if err := json.Unmarshal([]byte(file.all(instruction)[0]), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	labels := map[string]string{}
	for pair := range strings.FieldsSeq(file.all("LABEL")[0]) {
		name, value, _ := strings.Cut(pair, "=")
		labels[name] = strings.Trim(value, `"`)
	}
	for what, same := range map[string]bool{
		"USER":       got.User == file.all("USER")[0],
		"WORKDIR":    got.WorkingDir == file.all("WORKDIR")[0],
		"ENV":        slices.Equal(slices.Sorted(slices.Values(got.Env)), slices.Sorted(strings.FieldsSeq(file.all("ENV")[0]))),
		"ENTRYPOINT": slices.Equal(got.Entrypoint, words("ENTRYPOINT")),
		"CMD":        slices.Equal(got.Cmd, words("CMD")),
		"VOLUME":     slices.Equal(slices.Collect(maps.Keys(got.Volumes)), words("VOLUME")),
		"EXPOSE":     slices.Equal(slices.Collect(maps.Keys(got.ExposedPorts)), file.all("EXPOSE")),
		"the version": got.Labels["org.opencontainers.image.version"] == r.version &&
			len(got.Labels["org.opencontainers.image.revision"]) == 40,
	} {
		if !same {
			t.Errorf("%s: %s differs from the Dockerfile: %+v", arch, what, got)
		}
	}
	for name, value := range labels {
		if !strings.Contains(value, "$") && got.Labels[name] != value {
			t.Errorf("%s: the label %s is %q, and in the Dockerfile %q", arch, name, got.Labels[name], value)
		}
	}
}

func (r *release) checkLayers(t *testing.T, layers []descriptor, arch string) {
	t.Helper()
	files := map[string]entry{}
	for _, l := range layers {
		for name, e := range untar(t, gunzip(t, r.blob(t, l))) {
			files["/"+strings.Trim(strings.TrimPrefix(name, "./"), "/")] = e
		}
	}
	if sum(files["/gavel"].data) != sum(r.binary("linux_"+arch).data) {
		t.Errorf("%s: the image has another program than the archive", arch)
	}
	for _, name := range []string{"/etc/ssl/certs/ca-certificates.crt", "/LICENSE", "/licenses/go/LICENSE"} {
		if len(files[name].data) == 0 {
			t.Errorf("%s: no %s", arch, name)
		}
	}
	user := stagesOf(t).all("USER")[0]
	for name, e := range files {
		owner := strconv.Itoa(e.uid) + ":" + strconv.Itoa(e.gid)
		switch {
		case !e.time.Equal(r.date):
			t.Errorf("%s: %s is of %v", arch, name, e.time)
		case name == "/data" || name == "/tmp":
			if owner != user || e.mode.Perm() != 0o700 {
				t.Errorf("%s: %s belongs to %s, mode %v", arch, name, owner, e.mode)
			}
		case owner != "0:0" || e.mode.Perm()&0o022 != 0 || e.mode.Perm()&0o044 != 0o044:
			t.Errorf("%s: %s belongs to %s, mode %v", arch, name, owner, e.mode)
		}
	}
	if _, ok := files["/data"]; !ok {
		t.Errorf("%s: no /data", arch)
	}
}

// checkAttached looks for the SBOM that refers to an image.
func (r *release) checkAttached(t *testing.T, layout manifest, image descriptor, arch string) {
	t.Helper()
	// A layout has no referrers API: they are in an index under the fallback tag of the image.
	tag := strings.Replace(image.Digest, ":", "-", 1)
	at := slices.IndexFunc(layout.Manifests, func(d descriptor) bool { return d.Annotations["org.opencontainers.image.ref.name"] == tag })
	if at < 0 {
		t.Fatalf("%s: nothing refers to %s", arch, image.Digest)
	}
	attached := r.manifest(t, layout.Manifests[at]).Manifests
	if len(attached) != 1 || attached[0].ArtifactType != "application/vnd.cyclonedx+json" {
		t.Fatalf("%s: attached is %+v", arch, attached)
	}
	artifact := r.manifest(t, attached[0])
	if artifact.Subject == nil || artifact.Subject.Digest != image.Digest || len(artifact.Layers) != 1 ||
		sum(r.blob(t, artifact.Layers[0])) != sum(r.read(t, "gavel_"+r.version+"_linux_"+arch+".cdx.json")) {
		t.Errorf("%s: attached is %+v", arch, artifact)
	}
}
