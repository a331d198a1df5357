package packaging_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// composeFile is what the tests read of compose.yaml.
type composeFile struct {
	Services map[string]*service       `yaml:"services"`
	Networks map[string]map[string]any `yaml:"networks"`
	Volumes  map[string]any            `yaml:"volumes"`
	Secrets  map[string]struct {
		File string `yaml:"file"`
	} `yaml:"secrets"`
}

type service struct {
	Image       string                       `yaml:"image"`
	Build       string                       `yaml:"build"`
	Command     []string                     `yaml:"command"`
	Environment map[string]string            `yaml:"environment"`
	Secrets     []string                     `yaml:"secrets"`
	Volumes     []string                     `yaml:"volumes"`
	Networks    []string                     `yaml:"networks"`
	NetworkMode string                       `yaml:"network_mode"`
	Ports       []string                     `yaml:"ports"`
	User        string                       `yaml:"user"`
	ReadOnly    bool                         `yaml:"read_only"`
	Privileged  bool                         `yaml:"privileged"`
	CapDrop     []string                     `yaml:"cap_drop"`
	CapAdd      []string                     `yaml:"cap_add"`
	SecurityOpt []string                     `yaml:"security_opt"`
	Tmpfs       []string                     `yaml:"tmpfs"`
	MemLimit    string                       `yaml:"mem_limit"`
	PidsLimit   int                          `yaml:"pids_limit"`
	DependsOn   map[string]map[string]string `yaml:"depends_on"`
	Restart     string                       `yaml:"restart"`
	StopSignal  string                       `yaml:"stop_signal"`
	StopGrace   time.Duration                `yaml:"stop_grace_period"`
	Healthcheck healthcheck                  `yaml:"healthcheck"`
}

type healthcheck struct {
	Test        []string      `yaml:"test"`
	Interval    time.Duration `yaml:"interval"`
	Timeout     time.Duration `yaml:"timeout"`
	StartPeriod time.Duration `yaml:"start_period"`
	Retries     int           `yaml:"retries"`
	Disable     bool          `yaml:"disable"`
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	var file composeFile
	if err := yaml.Unmarshal([]byte(read(t, "../compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	return file
}

// once reports whether a service runs to its end before others start.
func (f composeFile) once(name string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(f.Services)), func(s *service) bool {
		return s.DependsOn[name]["condition"] == "service_completed_successfully"
	})
}

// The compose file removes privileges that its services do not need.
func TestCompose(t *testing.T) {
	t.Parallel()
	file := readCompose(t)
	if names := slices.Sorted(maps.Keys(file.Services)); !slices.Equal(names, []string{"gavel-1", "gavel-2", "postgres", "proxy", "store"}) {
		t.Fatalf("services: %v", names)
	}
	for name, s := range file.Services {
		for what, holds := range map[string]bool{
			"read_only: true":                    s.ReadOnly,
			"cap_drop: [ALL], and none added":    slices.Equal(s.CapDrop, []string{"ALL"}) && len(s.CapAdd) == 0,
			"no-new-privileges, and nothing off": slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}),
			"not privileged, not the host's net": !s.Privileged && s.NetworkMode == "",
			"a user by number, not root":         regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(s.User),
			"memory and processes bounded":       s.MemLimit != "" && s.PidsLimit > 0,
			"time to finish":                     file.once(name) || s.StopGrace > 30*time.Second,
			"a health check without a shell":     file.once(name) && s.Healthcheck.Disable || len(s.Healthcheck.Test) > 1 && s.Healthcheck.Test[0] == "CMD",
			"an image with a version":            s.Build != "" || regexp.MustCompile(`:\d`).MatchString(s.Image),
			"a network that compose.yaml makes":  len(s.Networks) > 0 && !slices.ContainsFunc(s.Networks, func(n string) bool { _, ok := file.Networks[n]; return !ok }),
		} {
			if !holds {
				t.Errorf("%s lacks: %s", name, what)
			}
		}
		for _, mount := range s.Tmpfs {
			if !strings.Contains(mount, "noexec,nosuid,nodev") {
				t.Errorf("%s: tmpfs %s", name, mount)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to other machines, without TLS", name, port)
			}
		}
		for _, volume := range s.Volumes {
			if strings.HasPrefix(volume, ".") && !strings.HasSuffix(volume, ":ro") || strings.HasPrefix(volume, "/") {
				t.Errorf("%s: volume %s: the host's folders are read only", name, volume)
			}
		}
		for variable, value := range s.Environment {
			if regexp.MustCompile(`TOKEN|PASSWORD|KEY|PASSFILE`).MatchString(variable) && !strings.HasPrefix(value, "/run/secrets/") && value != "/data/store.key" {
				t.Errorf("%s: %s is written into the file", name, variable)
			}
			if secret, ok := strings.CutPrefix(value, "/run/secrets/"); ok && !slices.Contains(s.Secrets, secret) {
				t.Errorf("%s: %s names a secret that the service does not get", name, variable)
			}
		}
		if strings.HasPrefix(s.Image, "gavel:") && !slices.Contains(stagesOf(t).all("USER"), s.User) {
			t.Errorf("%s: user %s is not the image's", name, s.User)
		}
	}
	if database := file.Services["postgres"]; file.Networks["database"]["internal"] != true || len(database.Networks) != 1 || len(database.Ports) > 0 {
		t.Error("the database can be reached from outside")
	}
	one, two := *file.Services["gavel-1"], *file.Services["gavel-2"]
	if one.Image != two.Image || !slices.Equal(one.Command, two.Command) || !maps.Equal(one.Environment, two.Environment) {
		t.Error("the replicas differ")
	}
}

// The script creates every secret that compose.yaml names, readable in the containers but not past the folder, and
// never replaces one.
func TestComposeSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "packaging", "compose", "secrets.sh")
	if err := os.MkdirAll(filepath.Dir(script), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte(read(t, "compose/secrets.sh")), 0o600); err != nil {
		t.Fatal(err)
	}
	create := func() map[string]string {
		if out, err := exec.CommandContext(t.Context(), "sh", script).CombinedOutput(); err != nil {
			t.Skipf("sh: %v: %s", err, out)
		}
		out := map[string]string{}
		for name, secret := range readCompose(t).Secrets {
			out[name] = read(t, filepath.Join(dir, secret.File))
			if info, err := os.Stat(filepath.Join(dir, secret.File)); err != nil || info.Mode().Perm() != 0o644 {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
		return out
	}
	first := create()
	if info, err := os.Stat(filepath.Join(dir, "secrets")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("secrets: %v, %v", info.Mode(), err)
	}
	if password := first["postgres_password"]; len(password) != 48 || first["pgpass"] != "postgres:5432:gavel:gavel:"+password+"\n" {
		t.Errorf("the password %q, and for clients %q", password, first["pgpass"])
	}
	if first["llm_key"] != "" {
		t.Errorf("the model's key %q", first["llm_key"])
	}
	if again := create(); !maps.Equal(first, again) {
		t.Errorf("%v, and a second time %v", first, again)
	}
	for _, folder := range []string{"/secrets/", "/flows/"} {
		if !strings.Contains("\n"+read(t, "../.gitignore"), "\n"+folder+"\n") {
			t.Errorf(".gitignore lacks %s", folder)
		}
	}
}
