//go:build unix

package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An operator's program reads its input and gets a minimal environment. No shell parses its arguments, and it ends in
// time with its child processes.
func TestRunWithInput(t *testing.T) {
	t.Setenv("GAVEL_TEST_SECRET", "secret")
	out := filepath.Join(t.TempDir(), "out")
	run := func(ctx context.Context, argv ...string) error {
		return Run(ctx, argv, []byte("the input"))
	}
	if err := run(t.Context(), "sh", "-c", `cat > "$0"; env >> "$0"; printf %s "$1" >> "$0"`, out, "$(id) ;"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if text := string(got); err != nil || !strings.HasPrefix(text, "the input") || strings.Contains(text, "GAVEL_TEST_SECRET") || !strings.HasSuffix(text, "$(id) ;") {
		t.Errorf("the program saw %q (%v)", got, err)
	}
	if err := run(t.Context(), "true"); err != nil { // does not read its input
		t.Error(err)
	}
	for want, argv := range map[string][]string{
		"exit status 3":  {"sh", "-c", "exit 3"},
		"does not exist": {"gavel-has-no-such-program"},
	} {
		if err := run(t.Context(), argv...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", argv, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := run(ctx, "sh", "-c", "sleep 60 & wait"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
