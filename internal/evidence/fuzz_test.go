package evidence_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/evidence"
)

// seeds are typical attempts at injection.
var seeds = []string{
	"", "main", "-c", "--output=/etc/x", "a b", "a\nb", "; id", "$(id)", "{{b}}", "{{{{", "../admin", "%2e%2e", "..%2f", "%", "a&admin=1",
	"evil.com#", "@evil", "//evil", "\\\\evil", "?x=1", "é世🙂", "\xff", "\x00", ".", "..;", "a/b", "+", "a=b",
}

// Whatever the values are, a command has exactly the arguments of its template. No value becomes an option, is split,
// or is parsed again.
func FuzzArgv(f *testing.F) {
	for _, a := range seeds {
		f.Add(a, "x")
		f.Add("", a)
	}
	argv := []string{"git", "show", "{{a}}", "--name={{a}}", "-n{{b}}", "{{a}}{{b}}", "x{{b}}y"}
	f.Fuzz(func(t *testing.T, a, b string) {
		if evidence.CheckValue(b) != "" && b != "" || evidence.CheckValue(a) != "" && a != "" {
			t.Skip()
		}
		out, problem, err := evidence.ExpandArgv(argv, map[string]string{"a": a, "b": b})
		if err != nil {
			t.Fatal(err)
		}
		if problem != "" {
			if !strings.HasPrefix(a+b, "-") {
				t.Errorf("%q and %q are refused: %s", a, b, problem)
			}
			return
		}
		if len(out) != len(argv) {
			t.Fatalf("%d arguments became %d: %q", len(argv), len(out), out)
		}
		want := []string{"git", "show", a, "--name=" + a, "-n" + b, a + b, "x" + b + "y"}
		for i, o := range out {
			if o != want[i] {
				t.Errorf("argument %d is %q, want %q", i, o, want[i])
			}
			if strings.HasPrefix(o, "-") != strings.HasPrefix(argv[i], "-") {
				t.Errorf("argument %d became an option: %q", i, o)
			}
		}
	})
}

// Whatever the values are, an address keeps its scheme, host, number of segments and query keys. Decoding yields the
// original values.
func FuzzAddress(f *testing.F) {
	for _, a := range seeds {
		f.Add(a, "x")
		f.Add("x", a)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if evidence.CheckValue(b) != "" && b != "" || evidence.CheckValue(a) != "" && a != "" {
			t.Skip()
		}
		out, problem, err := evidence.ExpandURL("https://h.example:8443/api/{{a}}/v-{{a}}?k={{b}}&fixed=1&m=x{{b}}", map[string]string{"a": a, "b": b})
		if err != nil {
			t.Fatal(err)
		}
		if problem != "" {
			return
		}
		u, err := url.Parse(out)
		if err != nil {
			t.Fatalf("%q and %q make %q: %v", a, b, out, err)
		}
		if u.Scheme != "https" || u.Host != "h.example:8443" || u.User != nil || u.Fragment != "" || u.Opaque != "" || strings.Contains(out, "#") {
			t.Errorf("%q and %q lead elsewhere: %q", a, b, out)
		}
		segments := strings.Split(u.EscapedPath(), "/")
		if len(segments) != 4 || u.JoinPath().EscapedPath() != u.EscapedPath() {
			t.Fatalf("%q and %q lead to another path: %q", a, b, out)
		}
		if got, err := url.PathUnescape(segments[2]); err != nil || got != a {
			t.Errorf("%q arrives as %q: %v", a, got, err)
		}
		query, err := url.ParseQuery(u.RawQuery)
		if err != nil || len(query) != 3 || query.Get("k") != b || query.Get("fixed") != "1" || query.Get("m") != "x"+b || len(query["k"]) != 1 {
			t.Errorf("%q makes another query: %q: %v", b, out, err)
		}
	})
}
