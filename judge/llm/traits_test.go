package llm_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// classes reads the constants from the source, so that every new class needs traits.
func classes(t testing.TB) []llm.Class {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []llm.Class
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if name, err := strconv.Unquote(lit.Value); err == nil {
				out = append(out, llm.Class(name))
			}
		}
		return true
	})
	if len(out) < 20 {
		t.Fatalf("found only %d classes", len(out))
	}
	return out
}

// These rules apply to every class.
func TestTraits(t *testing.T) {
	t.Parallel()
	unknown := llm.Class("no such class").Traits()
	for _, c := range classes(t) {
		got := c.Traits()
		switch {
		case got == unknown && c != llm.ClassTooLong && c != llm.ClassQuality:
			t.Errorf("%s has no row of its own", c)
		case got.Failure && got.Success:
			t.Errorf("%s is a failure and a success", c)
		case got.FromCase && (got.Chain || got.Retry || got.Failure || got.Busy):
			t.Errorf("%s: who can bring it about could have other models asked, or the breaker opened", c)
		case got.Reask && !got.Poor, got.Reask && !got.FromCase:
			t.Errorf("%s: what is asked again is an unusable answer", c)
		case !got.FromCase && !got.Chain && c != llm.ClassBusy && c != llm.ClassShareSpent:
			t.Errorf("%s: another model could be had", c)
		}
	}
	if !unknown.FromCase || unknown.Retry || unknown.Chain {
		t.Errorf("an unknown class: %+v", unknown)
	}
}

// The traits that are easiest to get wrong, by class.
func TestUnavailableAndUnreadable(t *testing.T) {
	t.Parallel()
	busy := []llm.Class{llm.ClassTimeout, llm.ClassBusy, llm.ClassShareSpent}
	for _, class := range classes(t) {
		if got := class.Traits().Busy; got != slices.Contains(busy, class) {
			t.Errorf("%s: busy: %t", class, got)
		}
	}
	for class, fromCase := range map[llm.Class]bool{
		llm.ClassTimeout: false, llm.ClassNetwork: false, llm.ClassUpstream: false, llm.ClassOverloaded: false, llm.ClassNoChoices: false,
		llm.ClassRateLimited: false, llm.ClassQuota: false, llm.ClassAuth: false, llm.ClassNotFound: false, llm.ClassConfig: false,
		llm.ClassCapability: false, llm.ClassBreakerOpen: false, llm.ClassNotBefore: false,
		llm.ClassTooLong: true, llm.ClassFilter: true, llm.ClassRefusal: true, llm.ClassMalformed: true, llm.ClassEmpty: true,
		llm.ClassTruncated: true, llm.ClassAmbiguous: true, llm.ClassInconsistent: true, llm.ClassBusy: false, llm.ClassShareSpent: false, llm.ClassQuality: true,
	} {
		if got := class.Traits().FromCase; got != fromCase {
			t.Errorf("%s: from the case: %t", class, got)
		}
	}
}
