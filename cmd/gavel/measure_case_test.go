package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
)

// Cases are read again for each pass. A file that changed in between is an error, not a result of the judge.
func TestGoldenSetIsReadAgain(t *testing.T) {
	t.Parallel()
	path := smallSet(t, 4)
	set, err := measure.ReadGolden(t.Context(), []string{path}, []eval.Split{eval.Test}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var ids []string
		for c, err := range set.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, c.ID)
		}
		if got := strings.Join(ids, " "); got != "c0 c1 c2 c3" {
			t.Fatalf("cases: %s", got)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	for name, changed := range map[string]string{"shorter": first + "\n", "broken": first + "\n{", "gone": ""} {
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		var last error
		for _, err := range set.All(t.Context()) {
			last = err
		}
		if said := new(term.ExitError); !errors.As(last, &said) || said.Code == term.ExitOK {
			t.Errorf("%s: %v", name, last)
		}
	}
}

// A file that can be read only once is rejected.
func TestGoldenSetIsAFile(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(os.DevNull); err != nil || filepath.Separator != '/' {
		t.Skip("there is no file here that is none")
	}
	var said *term.ExitError
	if _, err := measure.ReadGolden(t.Context(), []string{os.DevNull}, nil, nil); !errors.As(err, &said) || said.Code != term.ExitUsage || !strings.Contains(err.Error(), "more than once") {
		t.Errorf("a device: %v", err)
	}
}
