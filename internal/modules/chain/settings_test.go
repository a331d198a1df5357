package chain

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestParseSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "gavel.yaml")
	for _, c := range []struct{ text, wrong string }{
		{`{"definitions": "chains"}`, ""},
		{`{"definitions": ["chains", "/etc/gavel/more"], "repeatable": ["vision/navigate"], "state": "runs.db", "retention": "2h"}`, ""},
		{`{"definitions": "chains", "writers": {"code-mcp": {"tool": "put", "uri": "path", "data": "content"}}}`, ""},
		{`{"definitions": "chains", "writers": {"code-mcp": {"tool": "put", "uri": "path"}}}`, `missing key "data"`},
		{`{"definitions": "chains", "writers": {"code-mcp": {"tool": "put", "uri": "path", "data": "path"}}}`, `"uri" and "data" must name two different arguments of the tool`},
		{`{"definitions": "chains", "writers": {"code-mcp": "put"}}`, `/writers/code-mcp: expected an object, got a string`},
		{`{}`, `gavel.yaml:1:1: missing key "definitions"`},
		{`{"definitions": "chains", "lease": "30s"}`, ""},
		{`{"definitions": "chains", "lease": "1h"}`, `"lease" is a duration from 1s to 10m, such as 15s`},
		{`{"definitions": "chains", "retention": "10m"}`, `"retention" is a duration of at least 1h, such as 720h`},
		{`{"definitions": "chains", "repeatable": ["navigate"]}`, `"repeatable" lists tools as SERVER/TOOL, such as "vision/navigate"`},
		{`{"definitions": "chains", "repeatable": ["a/b", "a/b"]}`, `duplicate tool "a/b"; remove one`},
		{`{"definitions": "chains", "repeatble": ["a/b"]}`, `did you mean "repeatable"?`},
		{`{"definitions": "chains", "runAs": {"principal": "nightly", "workflows": ["chain.nightly-*", "deploy"]}}`, ""},
		{`{"definitions": "chains", "openRuns": 5}`, ""},
		{`{"definitions": "chains", "openRuns": 0}`, `"openRuns" is a number of runs, at least 1`},
		{`{"definitions": "chains", "runAs": {"principal": "nightly"}}`, ""},
		{`{"definitions": "chains", "runAs": {"principal": "nightly", "chains": ["site-*", "deploy"]}}`, ""},
		{`{"definitions": "chains", "runAs": {"principal": "n", "chains": []}}`, `"chains" is empty; leave it out if only schedules act for the principal`},
		{`{"definitions": "chains", "runAs": {"principal": "n", "chains": "a b"}}`, `"chains" lists names, with * for any run of characters, such as "nightly-*"`},
		{`{"definitions": "chains", "runAs": {}}`, `missing key "principal"`},
		{`{"definitions": "chains", "runAs": "nightly"}`, `/runAs: expected an object, got a string`},
		{`{"definitions": "chains", "runAs": {"principal": ""}}`, `"principal" is a name of at most 200 bytes without control characters`},
		{`{"definitions": "chains", "runAs": {"principal": "local:agent"}}`, `the name "local:agent" is reserved for programs on this machine; choose another name for the schedules`},
		{`{"definitions": "chains", "runAs": {"principal": "n", "workflows": []}}`, `"workflows" is empty; leave it out for all workflows and chains`},
		{`{"definitions": "chains", "runAs": {"principal": "n", "workflows": ["a b"]}}`, `"workflows" lists names, with * for any run of characters, such as "chain.nightly-*"`},
		{`{"definitions": "chains", "runAs": {"principal": "n", "role": "operator"}}`, `unknown key "role"`},
	} {
		section, err := document.Parse(file, []byte(c.text), document.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseSettings(section)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, and not %q", c.text, err, c.wrong)
		}
		if c.wrong != "" {
			continue
		}
		if s.Definitions[0] != filepath.Join(dir, "chains") {
			t.Errorf("%s: %q", c.text, s.Definitions)
		}
		if want := map[bool]int{true: 5, false: DefaultOpenRuns}[strings.Contains(c.text, "openRuns")]; s.OpenRuns != want {
			t.Errorf("%s: %d open runs", c.text, s.OpenRuns)
		}
		if w, ok := s.Writer("code-mcp"); ok && w != (Writer{"put", "path", "content"}) || ok != (len(s.Writers) > 0) {
			t.Errorf("%s: %+v", c.text, w)
		}
		for name, want := range map[string]bool{"site-a": true, "deploy": true, "deploy2": false, "other": false} {
			if p, acts := s.ActsFor(name); acts != (want && s.ActingChains != nil) || acts && p != *s.RunAs {
				t.Errorf("%s: the chain %s acts for %+v, %v", c.text, name, p, acts)
			}
		}
		if p := s.RunAs; p != nil && (p.ID != "nightly" || p.Role != engine.RoleAgent || p.Workflows != "" && p.Workflows != "chain.nightly-* deploy") {
			t.Errorf("%s: %+v", c.text, *p)
		}
		if s.State != "" && (s.State != filepath.Join(dir, "runs.db") || s.Retention != 2*time.Hour || !s.IsRepeatable("vision", "navigate") || s.IsRepeatable("vision", "click") || !slices.Contains(s.Definitions, "/etc/gavel/more")) {
			t.Errorf("%s: %+v", c.text, s)
		}
	}
	if s, err := ParseSettings(nil); s != nil || err != nil || s.IsRepeatable("a", "b") {
		t.Errorf("without the section: %v, %v", s, err)
	}
}
