package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/validators/document"
)

// write writes a file in a new folder and makes that the working directory, so that messages do not depend on the
// path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Load uses the pinned text, under every name of the file, until it is unpinned. Read always reads the file.
func TestPin(t *testing.T) {
	file := write(t, "gavel.yaml", "store: before\n")
	unpin, err := config.Pin(file, []byte("store: pinned\n"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := config.Pin(file, []byte("store: again\n"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		for _, name := range []string{file, filepath.Join(".", "x", "..", file)} {
			if f, err := config.Load(name); err != nil || f.Text(config.KeyStore) != want {
				t.Errorf("%s: %q, %v; want %q", name, f.Text(config.KeyStore), err, want)
			}
		}
	}
	check("again")
	unpin() // another text is pinned now
	check("again")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	check("again")
	if err := os.WriteFile(file, []byte("store: now\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := config.Read(file); err != nil || string(text) != "store: now\n" {
		t.Errorf("Read: %q, %v", text, err)
	}
	again()
	check("now")
}

func TestLoad(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"yaml", "gavel.yaml", "# first\ngates:\n  sources: {}\n", ""},
		{"json", "gavel.json", `{"gates":{"sources":{}}}`, ""},
		{"sniffed", "gavelrc", `{"gates":{"sources":{}}}`, ""},
		{"a slip", "gavel.yaml", "gates:\n  sources: {}\ngattes: {}\n", `gavel.yaml:3:1: /gattes: unknown key "gattes"; did you mean "gates"?`},
		{"nothing near", "gavel.yaml", "\nbananas: 1\n", `gavel.yaml:2:1: /bananas: unknown key "bananas"; known keys are "store", "storeKey", "definitions",`},
		{"twice", "gavel.json", "{\"gates\":{},\n\"gates\":{}}", `gavel.json:2:1: /gates: duplicate key "gates"`},
		{"a list", "gavel.yaml", "- gates\n", `gavel.yaml:1:1: expected an object, got an array`},
		{"no yaml", "gavel.yaml", "gates: [\n", "gavel.yaml:"},
		{"empty", "gavel.yaml", "", "gavel.yaml:1:1: the document is empty"},
		{"comments", "gavel.yaml", "# gates:\n#   sources: {}\n", "gavel.yaml:1:1: the document is empty"},
		{"longest", "gavel.yaml", "gates: {}\n#" + strings.Repeat("x", config.MaxBytes-11), ""},
		{"too long", "gavel.yaml", "gates: {}\n#" + strings.Repeat("x", config.MaxBytes-10), "gavel.yaml: the configuration file has more than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := loadStrictly(write(t, c.file, c.text))
			if c.want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.want) {
					t.Fatalf("got %v, want %s", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := f.Section(config.SectionGates); n == nil || n.Kind != document.Object {
				t.Errorf("section gates is %v", n)
			}
			if n := f.Section("chains"); n != nil {
				t.Errorf("a section that is not there is %v", n)
			}
			if f.Path() != c.file || f.Dir() != "." {
				t.Errorf("path %q, folder %q", f.Path(), f.Dir())
			}
		})
	}
}

// loadStrictly is Load followed by a check of the top-level keys.
func loadStrictly(path string) (*config.File, error) {
	f, err := config.Load(path)
	if err == nil {
		_, err = f.Values(nil)
	}
	return f, err
}

func TestLoadReportsEveryMistake(t *testing.T) {
	_, err := loadStrictly(write(t, "gavel.yaml", "gatse: {}\nlisten: 1\n"))
	var all document.Errors
	if !errors.As(err, &all) || len(all) != 2 || all[1].Line != 2 {
		t.Errorf("got %v, want two issues", err)
	}
}

func TestNoFileHasNoSections(t *testing.T) {
	if n := (*config.File)(nil).Section(config.SectionGates); n != nil {
		t.Errorf("got %v from no file", n)
	}
}

func TestLoadAcceptsOnlyFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := config.Load("gavel.yaml"); !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), "gavel.yaml") != 1 {
		t.Errorf("missing: %v", err)
	}
	if err := os.Mkdir("folder.yaml", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load("folder.yaml"); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("folder: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if _, err := config.Load(os.DevNull); err == nil || !strings.Contains(err.Error(), "not a device") {
		t.Errorf("device: %v", err)
	}
	link := filepath.Join(t.TempDir(), "gavel.yaml")
	if err := os.WriteFile("real.yaml", []byte("gates: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	target, err := filepath.Abs("real.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(link); err != nil {
		t.Errorf("a link to a file: %v", err)
	}
}
