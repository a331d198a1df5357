package main

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	_ "github.com/gavel-mcp/gavel/internal/modules/measure" // has the page; without it this file is removed
	"github.com/gavel-mcp/gavel/internal/term"
)

// The page of the judge shows how often the model agreed with persons, and lets their decisions be downloaded: the same
// lines as the command writes.
func TestConsoleShowsAgreementWithPersons(t *testing.T) {
	t.Parallel()
	store := reviewedStore(t, 30)
	var imported, errs bytes.Buffer
	if got := run(t.Context(), []string{"eval", "import", "history", "--store", store}, strings.NewReader(""), &imported, &errs); got != term.ExitOK {
		t.Fatalf("exit code %d: %s", got, errs.String())
	}
	s := serveStore(t, store)
	c := browser(t)
	if code, _, _ := browse(t, c, s.url+"/console/sign-in", url.Values{"token": {s.owner}}); code != http.StatusSeeOther {
		t.Fatalf("sign in: %d", code)
	}
	_, page, _ := browse(t, c, s.url+"/console/judge", nil)
	// The model approved everything. Rob approved 24 of 30, and Ann 5 of 10.
	for _, want := range []string{"Agreement with persons", "72.5 % (29 of 40)", "The comment says what was tested", "80.0 % (24 of 30)"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of the judge does not show %q", want)
		}
	}
	if strings.Contains(page, "<b>m") {
		t.Error("the name of a model is markup")
	}
	link := regexp.MustCompile(`href="(/console/[^"]*labels\.jsonl)"`).FindStringSubmatch(page)
	if link == nil {
		t.Fatalf("no download on %s", page)
	}
	code, lines, _ := browse(t, c, s.url+link[1], nil)
	if code != http.StatusOK || strings.Count(lines, "\n") != 30+5 {
		t.Errorf("%d: %.300s", code, lines)
	}
	for line := range strings.Lines(lines) {
		if !strings.Contains(imported.String(), line) {
			t.Errorf("the command does not write %.300s", line)
		}
	}
}
