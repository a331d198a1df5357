package workflow

import (
	"strings"
	"testing"
)

func TestSplitPointer(t *testing.T) {
	for _, c := range []struct {
		pointer string
		want    string // tokens joined by |, "" when refused
	}{
		{"/a", "a"},
		{"/a/b", "a|b"},
		{"/a~1b/c~0d", "a/b|c~d"},
		{"/~01", "~1"},
		{"/0/*", "0|*"},
		{"", ""},
		{"a", ""},
		{"/", ""},
		{"/a/", ""},
		{"//a", ""},
		{"/a~", ""},
		{"/a~2", ""},
	} {
		tokens, err := splitPointer(c.pointer)
		if got := strings.Join(tokens, "|"); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q: %q, %v; want %q", c.pointer, got, err, c.want)
		}
		if err == nil && joinPointer("", tokens...) != c.pointer {
			t.Errorf("%q does not come back from its tokens: %q", c.pointer, joinPointer("", tokens...))
		}
	}
}

func TestWithoutText(t *testing.T) {
	for _, c := range []struct{ source, reads string }{
		{"(data) => data.total > 0", "total"},
		{"(data) => data.a + data.b > data.a", "a|b"},
		{"(data) => data.comments?.length >= 20", ""},
		{"(data) => (data.a ?? 0) > 1", ""},
		{"(data) => data.a && data.a.length > 1", ""},
		{"(data) => !data.a || data.a > 1", ""},
		{"(data) => typeof data.a === 'number' && data.a > 1", ""},
		{"(data) => data.a !== undefined && data.a > 1", ""},
		{"(data) => 'a' in data && data.a > 1", ""},
		{"(data) => Array.isArray(data.a) && data.a.length > 1", ""},
		{"(data) => ({valid: true, reason: 'data.total is fine'})", ""},
		{"(data) => true // data.total\n", ""},
		{"(data) => /* data.total */ true", ""},
		{"(data) => /* data.total", ""},
		{"(data, context) => context.data.total > 0", ""},
		{"(data) => data . total > 0", "total"},
		{"(mydata) => mydata.total > 0", ""},
		{"(data) => 'it\\'s' + data.x", "x"},
		{"'open data.x", ""},
		{"", ""},
	} {
		if got := strings.Join(listUnguardedReads(c.source), "|"); got != c.reads {
			t.Errorf("%q reads %q, want %q", c.source, got, c.reads)
		}
	}
}
