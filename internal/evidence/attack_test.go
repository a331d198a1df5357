package evidence_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/judge"
)

// Each row is a value that an agent may put into an argument, and the result. The command could run, but a rejected
// value must not start it.
func TestAttackOnACommand(t *testing.T) {
	t.Parallel()
	s := this(t, "arguments", "show", "{{name}}", "{{short}}", "{{any}}{{name}}")
	s.Arguments = map[string]evidence.Argument{
		"name":  {Pattern: "[a-z.-]*|--[a-z]+=.*", MaxLength: 20},
		"short": {Pattern: "(?i)^[0-9a-f]{7,40}$", Optional: true},
		"any":   {Optional: true},
	}
	m := manager(t, evidence.Options{}, map[string]evidence.Source{"it": s})
	for _, c := range []struct {
		name, arguments, detail string // "" if accepted
	}{
		{"as it is meant", `{"name":"main","short":"abcdef0"}`, ""},
		{"a dash within", `{"name":"a-c"}`, ""},
		{"an option with a file", `{"name":"--output=/etc/x"}`, "would become an option"},
		{"a short option", `{"name":"-c"}`, "would become an option"},
		{"a dash alone", `{"name":"-"}`, "would become an option"},
		{"an option in two parts", `{"name":"c","any":"-"}`, "would become an option"},
		{"a negative number", `{"name":"main","any":-1}`, "would become an option"},
		{"a line end", `{"name":"main","any":"x\nrm"}`, `"any" contains a control character`},
		{"a line end after a match", `{"name":"main","short":"abcdef0\n"}`, `"short" does not match`},
		{"an escape", `{"name":"main","any":"\u001b[2J"}`, `"any" contains a control character`},
		{"a C1 control", `{"name":"main","any":"\u009b2J"}`, `"any" contains a control character`},
		{"NUL", `{"name":"main","any":"x\u0000y"}`, "must be a JSON object"},
		{"not UTF-8", "{\"name\":\"main\",\"any\":\"\xff\"}", "must be a JSON object"},
		{"half a surrogate", `{"name":"main","any":"\ud800"}`, "must be a JSON object"},
		{"only a part matches", `{"name":"main","short":"abcdef0; id"}`, `"short" does not match`},
		{"only a part of an alternative", `{"name":"main; id"}`, `"name" does not match`},
		{"too long", `{"name":"` + strings.Repeat("a", 21) + `"}`, "longer than 20 bytes"},
		{"too long by default", `{"name":"main","any":"` + strings.Repeat("a", 1025) + `"}`, "longer than 1024 bytes"},
		{"a name nobody declared", `{"name":"main","environment":"x"}`, `takes no argument "environment"`},
		{"the name of another case", `{"name":"main","Short":"abcdef0"}`, `takes no argument "Short"`},
		{"a list where there is a pattern", `{"name":["-c","id"]}`, `"name" has a pattern, so it must be a string, a number or a boolean`},
		{"null where there is a pattern", `{"name":null}`, `"name" has a pattern, so it must be a string, a number or a boolean`},
		{"a list", `{"name":"main","any":["-c","id"]}`, `"any" is not a string, a number or a boolean`},
		{"an object", `{"name":"main","any":{"a":1}}`, `"any" is not a string, a number or a boolean`},
		{"null", `{"name":"main","any":null}`, `"any" is not a string, a number or a boolean`},
		{"twice", `{"name":"a","name":"--output=x"}`, "must be a JSON object"},
		{"no object", `["main"]`, "must be a JSON object"},
		{"null for all", `null`, "must be a JSON object"},
		{"nothing", `{}`, `missing value for "name"`},
		{"empty", `{"name":""}`, `"name" is empty`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := fetch(t, m, c.arguments)
			if c.detail == "" {
				result(t, f)
				return
			}
			wantFailure(t, f, judge.FailureArgument)
			if !strings.Contains(f.Detail, c.detail) || strings.Contains(f.Detail, "/etc/x") {
				t.Errorf("detail %q, want %q and no value", f.Detail, c.detail)
			}
		})
	}
}

func TestImproperRequestsFailWithAReason(t *testing.T) {
	t.Parallel()
	yes := true
	marked := this(t, "print=fine")
	marked.ReadOnly = &yes
	m := manager(t, evidence.Options{}, map[string]evidence.Source{
		"it": this(t, "print=fine", "{{a}}"), "marked": marked,
	})
	for _, c := range []struct {
		name     string
		request  judge.EvidenceRequest
		readOnly bool
		want     judge.EvidenceFailure
		detail   string
	}{
		{"no such source", judge.EvidenceRequest{Source: "its"}, false, judge.FailureNotConfigured, `"its"`},
		{"a pre-check", judge.EvidenceRequest{Source: "it", Arguments: json.RawMessage(`{"a":"x"}`)}, true, judge.FailureNotReadOnly, "readOnly"},
		{"a pre-check of what may be", judge.EvidenceRequest{Source: "marked"}, true, "", ""},
		{"fields are missing", judge.EvidenceRequest{Source: "it", Arguments: json.RawMessage(`{"a":"x"}`), Missing: []string{"sha", "b"}}, false, judge.FailureArgument, `"sha", "b"`},
		{"many and long ones", judge.EvidenceRequest{Source: "it", Missing: strings.Split(strings.Repeat(strings.Repeat("é", 99)+" ", 99), " ")}, false, judge.FailureArgument, "others"},
	} {
		f, err := m.Fetch(t.Context(), c.request, c.readOnly)
		if err != nil {
			t.Fatal(err)
		}
		wantFailure(t, f, c.want)
		if !strings.Contains(f.Detail, c.detail) || len(f.Detail) > 1000 {
			t.Errorf("%s: detail %q, want %q", c.name, f.Detail, c.detail)
		}
	}
}

func TestAttackOnAnAddress(t *testing.T) {
	t.Parallel()
	const template = "https://tickets.example.com/api/t-{{ticket}}/{{ticket}}/x?v=1&fields={{fields}}&flag"
	for _, c := range []struct{ name, ticket, fields, want string }{
		{"as it is meant", "OPS-1", "status", "https://tickets.example.com/api/t-OPS-1/OPS-1/x?v=1&fields=status&flag"},
		{"another resource", "42/comments/7", "", ""},
		{"a slash in the query", "42", "a/b", "https://tickets.example.com/api/t-42/42/x?v=1&fields=a%2Fb&flag"},
		{"a slash, encoded", "42%2fcomments", "", ""},
		{"a slash, encoded twice", "42%252Fcomments", "", ""},
		{"a slash of Windows", `42\comments`, "", ""},
		{"a slash at the end", "42/", "", ""},
		{"up", "../admin", "", ""},
		{"up, encoded", "%2e%2e", "", ""},
		{"up, encoded twice", "%252e%252e%252fadmin", "", ""},
		{"up, encoded six times", "%2525252525252e", "", ""},
		{"up, of Windows", `..\admin`, "", ""},
		{"up, with a parameter", "..;a/b", "", ""},
		{"up in the middle", "a/../../b", "", ""},
		{"here", ".", "", ""},
		{"nothing", "", "", ""},
		{"a query", "1?admin=1", "", "https://tickets.example.com/api/t-1%3Fadmin=1/1%3Fadmin=1/x?v=1&fields=&flag"},
		{"a fragment", "1#x", "", "https://tickets.example.com/api/t-1%23x/1%23x/x?v=1&fields=&flag"},
		{"another key", "1", "a&admin=1", "https://tickets.example.com/api/t-1/1/x?v=1&fields=a%26admin%3D1&flag"},
		{"another key, of old", "1", "a;admin=1", "https://tickets.example.com/api/t-1/1/x?v=1&fields=a%3Badmin%3D1&flag"},
		{"a fragment in the query", "1", "#x+y z%00", "https://tickets.example.com/api/t-1/1/x?v=1&fields=%23x%2By+z%2500&flag"},
		{"another host", "evil.com#", "", "https://tickets.example.com/api/t-evil.com%23/evil.com%23/x?v=1&fields=&flag"},
		{"a user", "@evil.com", "@evil.com", "https://tickets.example.com/api/t-@evil.com/@evil.com/x?v=1&fields=%40evil.com&flag"},
		{"an address", "//evil.com/x", "", ""},
	} {
		url, problem, err := evidence.ExpandURL(template, map[string]string{"ticket": c.ticket, "fields": c.fields})
		if err != nil {
			t.Fatal(err)
		}
		if url != c.want || (problem == "") != (c.want != "") {
			t.Errorf("%s: %q (%s), want %q", c.name, url, problem, c.want)
		}
	}
}

// A pattern decides what an argument may contain, including slashes. Values that lead to another path are still
// refused.
func TestPatternAllowsSlashes(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	server := plain(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.EscapedPath())
		fmt.Fprint(w, "1")
	})
	m := manager(t, evidence.Options{}, map[string]evidence.Source{"it": {
		HTTP: server.URL + "/projects/{{project}}/x{{a}}{{b}}", PrivateNetwork: true,
		Arguments: map[string]evidence.Argument{"project": {Pattern: "[a-z./]+"}, "a": {Optional: true}, "b": {Optional: true}},
	}})
	for arguments, want := range map[string]string{
		`{"project":"group/tool"}`:                      "/projects/group%2Ftool/x",
		`{"project":"group/tool","a":"1","b":"2"}`:      "/projects/group%2Ftool/x12",
		`{"project":"../tool"}`:                         "",
		`{"project":"group/tool","a":"1/2"}`:            "",
		`{"project":"group/tool","a":"1%2","b":"Fx"}`:   "",
		`{"project":"group/tool","a":"1%25","b":"2Fx"}`: "",
	} {
		asked.Store("")
		f := fetch(t, m, arguments)
		if got := asked.Load(); got != want {
			t.Errorf("%s asks for %q, want %q", arguments, got, want)
		}
		if want == "" {
			wantFailure(t, f, judge.FailureArgument)
		}
	}
}
