//go:build unix

package folder_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Links and pipes in a folder are reported and never followed, wherever they lead.
func TestLinksAreNotFollowed(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	files{
		"secret.json":    `{"id":"wf-1","type":"guarded","state":"draft","context":{"secret":"s3cret"}}`,
		"secret.log":     `{"to":"draft","data":{"secret":"s3cret"}}` + "\n",
		"inner/d.json":   guarded,
		"inner/cp1.json": `{"checkpointId":"c","workflowId":"wf-2","state":"draft","context":{"secret":"s3cret"}}`,
	}.write(t, outside)
	files{
		"wf-2.json":                `{"id":"wf-2","type":"guarded","state":"draft","context":{}}`,
		"definitions/guarded.json": guarded,
		"checkpoints/x/y/z.json":   `{`, // deeper than any checkpoint
	}.write(t, dir)
	for from, to := range map[string]string{
		"secret.json": "wf-1.json", "secret.log": "wf-2.log", "inner/cp1.json": "checkpoints/c.json", "inner/d.json": "definitions/d.json",
	} {
		if err := os.Symlink(filepath.Join(outside, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "wf-3.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	h := newHouse(t, "a")
	report := h.bring(root.FS(), nil)
	said := text(report)
	for _, file := range []string{"wf-1.json", "wf-3.json", "checkpoints/c.json", "definitions/d.json"} {
		if !strings.Contains(said, `{"file":"`+file+`","status":"refused","reason":"it is not a regular file`) {
			t.Errorf("%s is not refused: %s", file, said)
		}
	}
	for _, reason := range []string{`"wf-2.log: it is not a regular file`, `{"file":"checkpoints/x","status":"refused","reason":"it is a folder`} {
		if !strings.Contains(said, reason) {
			t.Errorf("no %s in %s", reason, said)
		}
	}
	for name, content := range h.export() {
		if strings.Contains(content, "s3cret") {
			t.Errorf("%s has what lay outside: %s", name, content)
		}
	}
	// A linked folder is rejected, too.
	other := t.TempDir()
	if err := os.Symlink(filepath.Join(outside, "inner"), filepath.Join(other, "definitions")); err != nil {
		t.Fatal(err)
	}
	report = h.bring(os.DirFS(other), nil)
	if len(report.Definitions) > 0 || report.Refused != 1 || !strings.Contains(report.Instances[0].Reason, "it is not a folder") {
		t.Errorf("got %s", text(report))
	}
}
