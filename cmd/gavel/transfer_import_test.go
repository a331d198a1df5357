package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/testdata"
)

// The page on imports shows the actual output.
func TestImportPageShowsTheOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"documented", "torn"} {
		from, err := fs.Sub(testdata.DFA, "dfa/"+name)
		if err != nil {
			t.Fatal(err)
		}
		copyInto(t, from, filepath.Join(dir, ".workflows"))
	}
	const page = "../../docs/import.md"
	showsAt(t, page, "import", played(t, dir, "import .workflows", "import .workflows"))
	out := played(t, dir, "export out --instance wf-4c1d2f6e")
	for _, name := range []string{"wf-4c1d2f6e.json", "wf-4c1d2f6e.log"} {
		content, err := os.ReadFile(filepath.Join(dir, "out", name))
		if err != nil {
			t.Fatal(err)
		}
		out += fmt.Sprintf("$ head -n 1 out/%s\n%s\n", name, folded(strings.SplitN(string(content), "\n", 2)[0]))
	}
	showsAt(t, page, "export", out)
}

// played returns the output of commands, and their exit code if it is not 0.
func played(t *testing.T, dir string, commands ...string) string {
	t.Helper()
	needsProgram(t)
	var out strings.Builder
	for _, args := range commands {
		var stdout bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "gavel", strings.Fields(args)...)
		cmd.Dir, cmd.Env, cmd.Stdout = dir, cli.WithoutSettings(os.Environ()), &stdout
		err := cmd.Run()
		fmt.Fprintf(&out, "$ gavel %s\n%s", args, stdout.String())
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			fmt.Fprintf(&out, "(exit code %d)\n", exit.ExitCode())
		case err != nil:
			t.Fatal(err)
		}
	}
	return out.String()
}

// copyInto writes all files of a file system to a folder.
func copyInto(t *testing.T, from fs.FS, dir string) {
	t.Helper()
	err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		return errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, content, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// anyDigest matches a hash. Hashes of events depend on the time of the import.
var anyDigest = regexp.MustCompile(`"((?:sha256:)?)[0-9a-f]{64}"`)

// folded removes digests and wraps long lines.
func folded(line string) string {
	line = anyDigest.ReplaceAllString(line, `"${1}..."`)
	const width = 120
	var out strings.Builder
	for len(line) > width {
		at := strings.LastIndexByte(line[:width], ',') + 1
		if at == 0 {
			at = width
		}
		out.WriteString(line[:at] + "\n ")
		line = line[at:]
	}
	out.WriteString(line)
	return out.String()
}
