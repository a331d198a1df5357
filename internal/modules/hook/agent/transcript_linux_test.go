package agent

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe to which nobody writes does not hang the hook.
func TestTranscriptPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "transcript.jsonl")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := ReadSaid(Event{Client: "claude-code", Transcript: path}); !strings.Contains(said.Problem, "names no file") {
		t.Errorf("got %+v", said)
	}
}
