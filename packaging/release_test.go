package packaging_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

var dist = flag.String("dist", "", "check what make release-snapshot left in this folder")

// entry is a file of an archive.
type entry struct {
	mode     os.FileMode
	time     time.Time
	uid, gid int
	data     []byte
}

// release is the folder that is checked.
type release struct {
	dir, version string
	date         time.Time
	platforms    []string                    // goos_goarch
	archives     map[string]map[string]entry // by platform and name, without the folder that holds them
}

var opened *release // once: the archives are large

func openRelease(t *testing.T) *release {
	t.Helper()
	if opened != nil {
		return opened
	}
	if *dist == "" {
		t.Skip("asked for with -dist")
	}
	r := &release{dir: *dist, archives: map[string]map[string]entry{}}
	var meta struct{ Version, Commit string }
	r.readJSON(t, "metadata.json", &meta)
	if r.version = meta.Version; r.version == "" {
		t.Fatal("metadata.json names no version")
	}
	for _, platform := range npmPlatforms(t) {
		goos, goarch, _ := strings.Cut(strings.NewReplacer("win32", "windows", "x64", "amd64").Replace(platform), "-")
		r.platforms = append(r.platforms, goos+"_"+goarch)
	}
	for _, platform := range r.platforms {
		name := "gavel_" + r.version + "_" + platform
		var in map[string]entry
		if strings.HasPrefix(platform, "windows") {
			in = unzip(t, r.read(t, name+".zip"))
		} else {
			in = untar(t, gunzip(t, r.read(t, name+".tar.gz")))
		}
		r.archives[platform] = map[string]entry{}
		for file, e := range in {
			rest, ok := strings.CutPrefix(file, name+"/")
			if !ok {
				t.Errorf("%s: %s is outside the folder %s", platform, file, name)
			}
			r.archives[platform][rest] = e
		}
	}
	r.date = r.archives["linux_amd64"]["gavel"].time
	opened = r
	return r
}

func (r *release) read(t *testing.T, name string) []byte {
	t.Helper()
	return []byte(read(t, filepath.Join(r.dir, name)))
}

func (r *release) readJSON(t *testing.T, name string, to any) {
	t.Helper()
	if err := json.Unmarshal(r.read(t, name), to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// binary returns the program from a platform's archive.
func (r *release) binary(platform string) entry {
	if strings.HasPrefix(platform, "windows") {
		return r.archives[platform]["gavel.exe"]
	}
	return r.archives[platform]["gavel"]
}

func gunzip(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func untar(t *testing.T, data []byte) map[string]entry {
	t.Helper()
	out := map[string]entry{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = entry{h.FileInfo().Mode(), h.ModTime.UTC(), h.Uid, h.Gid, content}
	}
}

func unzip(t *testing.T, data []byte) map[string]entry {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]entry{}
	for _, f := range r.File {
		from, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name] = entry{mode: f.Mode(), time: f.Modified.UTC(), data: content}
	}
	return out
}

// npmPlatforms returns the platforms of the npm package, such as linux-x64.
func npmPlatforms(t *testing.T) (out []string) {
	t.Helper()
	var npm struct{ OS, CPU []string }
	if err := json.Unmarshal([]byte(read(t, "npm/package.json")), &npm); err != nil {
		t.Fatal(err)
	}
	for _, system := range npm.OS {
		for _, cpu := range npm.CPU {
			out = append(out, system+"-"+cpu)
		}
	}
	if len(out) != 6 {
		t.Fatalf("platforms: %v", out)
	}
	return out
}

// modules returns the modules linked into a program, as go version -m does.
func modules(t *testing.T, program []byte) (out []string) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		out = append(out, m.Path+"@"+m.Version)
	}
	if len(out) < 20 {
		t.Fatalf("only %d modules", len(out))
	}
	slices.Sort(out)
	return out
}

// Each archive has the program, its documents and the licence of every module, with the times of the commit.
func TestReleaseArchives(t *testing.T) {
	r := openRelease(t)
	for platform, files := range r.archives {
		for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "licenses/go/LICENSE"} {
			if len(files[name].data) == 0 {
				t.Errorf("%s: no %s", platform, name)
			}
		}
		program := r.binary(platform)
		if program.mode.Perm() != 0o755 {
			t.Errorf("%s: the program has the mode %v", platform, program.mode)
		}
		for _, module := range modules(t, program.data) {
			name, _, _ := strings.Cut(module, "@")
			found := false
			for file := range files {
				found = found || strings.HasPrefix(file, "licenses/"+name+"/")
			}
			if !found {
				t.Errorf("%s: no licence of %s", platform, name)
			}
		}
		for name, e := range files {
			if !e.time.Equal(r.date) || e.uid != 0 || e.gid != 0 {
				t.Errorf("%s: %s is of %v, owned by %d:%d, and the release of %v", platform, name, e.time, e.uid, e.gid, r.date)
			}
		}
	}
}

// The SBOM of a program lists its modules and no other.
func TestReleaseSBOM(t *testing.T) {
	r := openRelease(t)
	for _, platform := range r.platforms {
		var bom struct {
			BOMFormat, SerialNumber string
			Metadata                struct {
				Timestamp string
				Component struct{ Name, Version string }
			}
			Components []struct{ Name, Version string }
		}
		r.readJSON(t, "gavel_"+r.version+"_"+platform+".cdx.json", &bom)
		if c := bom.Metadata.Component; bom.BOMFormat != "CycloneDX" || c.Version != r.version || !strings.HasSuffix(c.Name, "/gavel") {
			t.Errorf("%s: %s of %s %s", platform, bom.BOMFormat, c.Name, c.Version)
		}
		var listed []string
		for _, c := range bom.Components {
			listed = append(listed, c.Name+"@"+c.Version)
		}
		slices.Sort(listed)
		if linked := modules(t, r.binary(platform).data); !slices.Equal(listed, linked) {
			t.Errorf("%s: the SBOM lists\n%v\nand linked are\n%v", platform, listed, linked)
		}
	}
}

// The list of checksums covers every file that is published beside it, and is right.
func TestReleaseChecksums(t *testing.T) {
	r := openRelease(t)
	listed := map[string]bool{}
	for line := range strings.Lines(string(r.read(t, "gavel_"+r.version+"_checksums.txt"))) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			t.Fatalf("%q", line)
		}
		if sum := sum(r.read(t, fields[1])); sum != fields[0] {
			t.Errorf("%s: %s, and listed is %s", fields[1], sum, fields[0])
		}
		listed[fields[1]] = true
	}
	want := 0
	for _, pattern := range []string{"*.tar.gz", "*.zip", "*.deb", "*.rpm", "*.apk", "*.cdx.json"} {
		found, err := filepath.Glob(filepath.Join(r.dir, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		for _, file := range found {
			if want++; !listed[filepath.Base(file)] {
				t.Errorf("%s has no checksum", file)
			}
		}
	}
	if want != 6+2+2+2+6 || len(listed) != want {
		t.Errorf("%d files, and %d checksums", want, len(listed))
	}
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// The npm packages, the registry's entry and the formula are of the same version and the same programs.
func TestReleaseOfOtherRegistries(t *testing.T) {
	r := openRelease(t)
	var main struct {
		Version              string
		OptionalDependencies map[string]string
	}
	tgz := func(name string) map[string]entry {
		return untar(t, gunzip(t, r.read(t, "npm/"+name+"-"+r.version+".tgz")))
	}
	if err := json.Unmarshal(tgz("gavel-mcp")["package/package.json"].data, &main); err != nil {
		t.Fatal(err)
	}
	platforms := npmPlatforms(t)
	if main.Version != r.version || len(main.OptionalDependencies) != len(platforms) {
		t.Errorf("gavel-mcp %s depends on %v", main.Version, main.OptionalDependencies)
	}
	for i, platform := range platforms {
		name := "gavel-mcp-" + platform
		in := tgz(name)
		program := in["package/gavel"].data
		if strings.HasPrefix(platform, "win32") {
			program = in["package/gavel.exe"].data
		}
		if sum(program) != sum(r.binary(r.platforms[i]).data) {
			t.Errorf("%s has another program than the archive", name)
		}
		if len(in["package/licenses/go/LICENSE"].data) == 0 {
			t.Errorf("%s has no licences", name)
		}
		if regexp.MustCompile(`(?i)not (been )?(published|reserved)|unpublished`).Match(in["package/README.md"].data) || len(in["package/README.md"].data) < 500 {
			t.Errorf("%s: what is published must not say that it is not:\n%s", name, in["package/README.md"].data)
		}
		if main.OptionalDependencies[name] != r.version {
			t.Errorf("gavel-mcp depends on %s %q", name, main.OptionalDependencies[name])
		}
	}

	var server struct {
		Version  string
		Packages []struct{ Version string }
	}
	r.readJSON(t, "server.json", &server)
	if server.Version != r.version || len(server.Packages) != 1 || server.Packages[0].Version != r.version {
		t.Errorf("server.json: %+v", server)
	}

	formula := string(r.read(t, "homebrew/Formula/gavel.rb"))
	for _, platform := range r.platforms {
		file := "gavel_" + r.version + "_" + platform + ".tar.gz"
		if strings.HasPrefix(platform, "windows") {
			continue
		}
		digest := sum(r.read(t, file))
		if !regexp.MustCompile(regexp.QuoteMeta(file) + `"\s+sha256 "` + digest + `"`).MatchString(formula) {
			t.Errorf("the formula lacks %s with %s:\n%s", file, digest, formula)
		}
	}
}

// The build is configured for the platforms of the npm package; the unit, the configuration and the package agree.
func TestReleaseConfiguration(t *testing.T) {
	t.Parallel()
	var config struct {
		Builds []struct{ Goos, Goarch []string }
		NFPMs  []struct {
			Formats  []string
			Contents []struct{ Src, Dst, Type string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../.goreleaser.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	var built []string
	for _, goos := range config.Builds[0].Goos {
		for _, goarch := range config.Builds[0].Goarch {
			built = append(built, strings.NewReplacer("windows", "win32", "amd64", "x64").Replace(goos+"-"+goarch))
		}
	}
	packed := npmPlatforms(t)
	slices.Sort(built)
	slices.Sort(packed)
	if !slices.Equal(built, packed) {
		t.Errorf("built are %v, and packed for npm %v", built, packed)
	}

	in := map[string]string{} // from destination to type
	for _, c := range config.NFPMs[0].Contents {
		in[c.Dst] = c.Type
		if c.Src != "" && !strings.HasPrefix(c.Src, ".tmp/") {
			if _, err := os.Stat(filepath.Join("..", c.Src)); err != nil {
				t.Error(err)
			}
		}
	}
	if in["/etc/gavel/gavel.yaml"] != "config|noreplace" {
		t.Errorf("an upgrade replaces a changed configuration: %v", in)
	}
	unit := read(t, "system/gavel.service")
	setting := func(name string) string {
		found := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(unit)
		if found == nil {
			t.Fatalf("the unit has no %s", name)
		}
		return found[1]
	}
	if start := setting("ExecStart"); start != "/usr/bin/gavel serve --config /etc/gavel/gavel.yaml" {
		t.Errorf("the unit starts %q", start)
	}
	var file struct {
		Store string
		Serve struct{ Listen string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "system/gavel.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	if folder := "/var/lib/" + setting("StateDirectory"); filepath.Dir(file.Store) != folder || setting("WorkingDirectory") != folder {
		t.Errorf("the store is %s, and the unit may write to %s", file.Store, folder)
	}
	if !strings.HasPrefix(file.Serve.Listen, "127.0.0.1:") {
		t.Errorf("the package listens on %q", file.Serve.Listen)
	}
	if user := fmt.Sprintf("u %s - ", setting("User")); !strings.HasPrefix(read(t, "system/sysusers.conf"), user) {
		t.Errorf("no line %q in sysusers.conf", user)
	}
}
