// Package packaging_test checks the packaging of gavel: the image, the compose file, the npm package, and the MCP
// registry entry. It needs no container engine.
package packaging_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc.(map[string]any)
}

// The registry entry matches its schema, and the schema rejects bad entries.
func TestServerJSON(t *testing.T) {
	t.Parallel()
	compiler := jsonschema.NewCompiler()
	schema := decode(t, read(t, "testdata/server.schema.json"))
	id := schema["$id"].(string)
	if err := compiler.AddResource(id, schema); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile(id)
	if err != nil {
		t.Fatal(err)
	}
	server := decode(t, read(t, "server.json"))
	if server["$schema"] != id {
		t.Errorf("server.json names the schema %v, and %s is here", server["$schema"], id)
	}
	if err := compiled.Validate(server); err != nil {
		t.Errorf("server.json: %v", err)
	}
	for what, spoil := range map[string]func(map[string]any){
		"no name":           func(s map[string]any) { delete(s, "name") },
		"a long sentence":   func(s map[string]any) { s["description"] = strings.Repeat("x", 101) },
		"no transport":      func(s map[string]any) { delete(s["packages"].([]any)[0].(map[string]any), "transport") },
		"the version today": func(s map[string]any) { s["packages"].([]any)[0].(map[string]any)["version"] = "latest" },
		"no address":        func(s map[string]any) { delete(s["remotes"].([]any)[0].(map[string]any), "url") },
	} {
		spoiled := decode(t, read(t, "server.json"))
		spoil(spoiled)
		if compiled.Validate(spoiled) == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// The package, the image and the registry entry name each other. The registry checks this.
func TestNamesAgree(t *testing.T) {
	t.Parallel()
	var server struct {
		Name, Version string
		Packages      []struct{ RegistryType, Identifier, Version string }
	}
	var npm struct {
		Name, Version, MCPName string
		Scripts                map[string]string
		Dependencies           map[string]string
		Bin                    map[string]string
	}
	for file, to := range map[string]any{"server.json": &server, "npm/package.json": &npm} {
		if err := json.Unmarshal([]byte(read(t, file)), to); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if npm.MCPName != server.Name {
		t.Errorf("package.json: mcpName %q, and server.json is %q", npm.MCPName, server.Name)
	}
	if len(server.Packages) != 1 || server.Packages[0].Identifier != npm.Name || server.Packages[0].Version != npm.Version || server.Version != npm.Version {
		t.Errorf("server.json has %s %+v, and the package is %s %s", server.Version, server.Packages, npm.Name, npm.Version)
	}
	if label := `io.modelcontextprotocol.server.name="` + server.Name + `"`; !strings.Contains(read(t, "../Dockerfile"), label) {
		t.Errorf("the Dockerfile has no LABEL %s", label)
	}
	if len(npm.Scripts) > 0 || len(npm.Dependencies) > 0 {
		t.Errorf("the package must run nothing and bring nothing when it is installed: %v %v", npm.Scripts, npm.Dependencies)
	}
	for command, file := range npm.Bin {
		if _, err := os.Stat(filepath.Join("npm", file)); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// stage is one FROM of a Dockerfile with its instructions.
type stage struct {
	from  string
	steps [][2]string // instruction and arguments
}

// stages parses a Dockerfile and substitutes the ARGs before the first FROM.
func stages(t *testing.T, text string) []stage {
	t.Helper()
	text = regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	var out []stage
	args := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		switch {
		case instruction == "":
		case instruction == "FROM":
			out = append(out, stage{from: os.Expand(rest, func(name string) string { return args[name] })})
		case len(out) == 0 && instruction == "ARG":
			name, value, _ := strings.Cut(rest, "=")
			args[name] = value
		case len(out) == 0:
			t.Fatalf("%s before FROM", instruction)
		default:
			s := &out[len(out)-1]
			s.steps = append(s.steps, [2]string{instruction, rest})
		}
	}
	return out
}

func (s stage) all(instruction string) []string {
	var out []string
	for _, step := range s.steps {
		if step[0] == instruction {
			out = append(out, step[1])
		}
	}
	return out
}

// The image contains only gavel, and starts it without a shell and without root.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	for _, complaint := range faults(stages(t, read(t, "../Dockerfile"))) {
		t.Error(complaint)
	}
	text := read(t, "../Dockerfile")
	for spoiled, by := range map[string]string{
		"\nUSER 65532:65532": "", "FROM scratch": "FROM alpine", `ENTRYPOINT ["/gavel"]`: "ENTRYPOINT /gavel", "CGO_ENABLED=0": "CGO_ENABLED=1",
		`CMD ["/gavel", "health"]`:        "CMD /gavel health",
		"GO_IMAGE=golang:1.26.8-bookworm": "GO_IMAGE=golang", "COPY --from=build /out/gavel /gavel": "ADD https://example.org/gavel /gavel",
	} {
		if !strings.Contains(text, spoiled) || len(faults(stages(t, strings.Replace(text, spoiled, by, -1)))) == 0 {
			t.Errorf("a Dockerfile with %q for %q passes", by, spoiled)
		}
	}
}

func faults(all []stage) []string {
	var out []string
	complain := func(bad bool, what string) {
		if bad {
			out = append(out, what)
		}
	}
	image, build := all[len(all)-1], all[0]
	complain(image.from != "scratch", "the image is made from "+image.from)
	for _, s := range all {
		words := strings.Fields(s.from)
		base := words[slices.IndexFunc(words, func(w string) bool { return !strings.HasPrefix(w, "--") })]
		complain(base != "scratch" && !regexp.MustCompile(`:[^:/]*\d`).MatchString(base), base+" has no version")
		complain(len(s.all("ADD")) > 0, "ADD unpacks and downloads; use COPY")
		for _, env := range append(s.all("ENV"), s.all("ARG")...) {
			complain(regexp.MustCompile(`(?i)(token|key|secret|password)`).MatchString(env), "a secret in the image: "+env)
		}
	}
	for _, c := range image.all("COPY") {
		complain(!strings.HasPrefix(c, "--from=build "), "COPY "+c+" takes something that was not built")
	}
	user := image.all("USER")
	complain(len(user) != 1 || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user[0]), "USER must be a number that is not 0")
	for _, instruction := range []string{"ENTRYPOINT", "CMD"} {
		var words []string
		form := image.all(instruction)
		complain(len(form) != 1 || json.Unmarshal([]byte(form[0]), &words) != nil || len(words) == 0, instruction+" must be in exec form: there is no shell")
	}
	check := image.all("HEALTHCHECK")
	complain(len(check) != 1 || !strings.HasSuffix(check[0], ` CMD ["/gavel", "health"]`), "HEALTHCHECK must ask gavel, without a shell")
	complain(len(image.all("RUN")) > 0, "RUN in an image without a shell")
	complain(!slices.ContainsFunc(image.all("COPY"), func(c string) bool { return strings.HasSuffix(c, "ca-certificates.crt") }), "no certificates of authorities")
	complain(!strings.Contains(strings.Join(build.all("RUN"), " "), "CGO_ENABLED=0"), "the binary must be static")
	return out
}

// The build context has every source file of the binary, and no secrets.
func TestDockerignore(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSpace(read(t, "../.dockerignore")), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
	if lines[0] != "*" {
		t.Fatal("it must leave out everything first, so that no token or store gets into a layer")
	}
	var in []string
	var not []*regexp.Regexp
	for _, l := range lines[1:] {
		if name, ok := strings.CutPrefix(l, "!"); ok {
			in = append(in, name)
			continue
		}
		pattern := regexp.QuoteMeta(strings.TrimPrefix(l, "**/"))
		not = append(not, regexp.MustCompile(`(^|/)`+strings.ReplaceAll(pattern, `\*`, `[^/]*`)+`(/|$)`))
	}
	sent := func(file string) bool {
		return slices.ContainsFunc(in, func(n string) bool {
			inRoot, _ := path.Match(n, file)
			return inRoot || strings.HasPrefix(file, n+"/")
		}) &&
			!slices.ContainsFunc(not, func(r *regexp.Regexp) bool { return r.MatchString(file) })
	}
	needed := append(sources(t), "go.mod", "go.sum", "LICENSE")
	if len(needed) < 100 {
		t.Fatalf("gavel is made of %d files only: %v", len(needed), needed)
	}
	for _, file := range needed {
		if !sent(file) {
			t.Errorf(".dockerignore keeps %s from the build", file)
		}
	}
	for _, file := range []string{".git/config", "ops.token", "cmd/gavel/.workflows/gavel.db", ".workflows/operator.token", ".env", "cmd/gavel/testdata/x"} {
		if sent(file) {
			t.Errorf(".dockerignore lets %s into the build", file)
		}
	}
}

// sources returns the module's files that the binary is built from.
func sources(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Module,GoFiles,EmbedFiles", "./cmd/gavel")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	listed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for dec := json.NewDecoder(bytes.NewReader(listed)); dec.More(); {
		var p struct {
			ImportPath          string
			Module              *struct{ Main bool }
			GoFiles, EmbedFiles []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		dir := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, "github.com/gavel-mcp/gavel"), "/")
		for _, file := range append(p.GoFiles, p.EmbedFiles...) {
			out = append(out, path.Join(dir, file))
		}
	}
	return out
}

// stagesOf returns the image's stage.
func stagesOf(t *testing.T) stage {
	all := stages(t, read(t, "../Dockerfile"))
	return all[len(all)-1]
}
