package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/validators/script"
)

// access is the table of engine/access.go, read from its source, because only the engine may use it.
type access struct {
	order   []string            // constants in source order
	words   map[string]string   // names in messages
	allowed map[string][]string // roles
}

func accessTable(t *testing.T) access {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../engine/access.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	a := access{words: map[string]string{}, allowed: map[string][]string{}}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
			return true
		}
		switch value := spec.Values[0].(type) {
		case *ast.BasicLit:
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Right" {
				word, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				a.order = append(a.order, spec.Names[0].Name)
				a.words[spec.Names[0].Name] = word
			}
		case *ast.CompositeLit:
			if spec.Names[0].Name == "allowed" {
				for _, element := range value.Elts {
					a.add(element.(*ast.KeyValueExpr))
				}
			}
		}
		return true
	})
	if len(a.order) < 15 || len(a.allowed) != len(a.order) {
		t.Fatalf("engine/access.go has %d operations, and roles for %d", len(a.order), len(a.allowed))
	}
	return a
}

func (a access) add(row *ast.KeyValueExpr) {
	roles := []string{}
	for _, e := range row.Value.(*ast.CompositeLit).Elts {
		roles = append(roles, strings.ToLower(strings.TrimPrefix(e.(*ast.Ident).Name, "Role")))
	}
	a.allowed[row.Key.(*ast.Ident).Name] = roles
}

// The threat model's tables match the code.
func TestThreatModelPage(t *testing.T) {
	t.Parallel()
	const page = "../../docs/threat-model.md"
	var b bytes.Buffer
	b.WriteString("| operation | agent | reviewer | operator | auditor | proxy |\n|---|---|---|---|---|---|\n")
	table := accessTable(t)
	for _, operation := range table.order {
		fmt.Fprintf(&b, "| %s |", table.words[operation])
		for _, role := range []string{"agent", "reviewer", "operator", "auditor", "proxy"} {
			mark := ""
			if slices.Contains(table.allowed[operation], role) {
				mark = "yes"
			}
			fmt.Fprintf(&b, " %s |", mark)
		}
		b.WriteString("\n")
	}
	showsTable(t, page, "roles", b.String())

	b.Reset()
	b.WriteString("| what | limit | where to set it |\n|---|---|---|\n")
	for _, l := range limits(t) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", l.what, l.value, cmp.Or(l.flag, "fixed"))
	}
	showsTable(t, "../../docs/reference/limits.md", "limits", b.String())

	suite, err := os.ReadFile("../../docs/reference/injection-suite.md")
	if err != nil {
		t.Fatal(err)
	}
	measured := unseen.FindStringSubmatch(strings.Join(strings.Fields(string(suite)), " "))
	if len(measured) != 3 {
		t.Fatal("the page on the injection suite has no figures of the independent half")
	}
	for _, name := range []string{page, "../../docs/evaluation.md"} {
		text := strings.ReplaceAll(strings.Join(strings.Fields(pages(t)[name]), " "), "**", "")
		for _, figure := range measured[1:] {
			if !strings.Contains(text, figure) {
				t.Errorf("%s does not have the measured figure %q", name, figure)
			}
		}
	}
}

// unseen matches how many attacks were stopped and how many benign texts were wrongly stopped, in the half of the
// suite that the rules had not seen.
var unseen = regexp.MustCompile(`\| independent, attacks \| [^|]* \| \*\*(\d+ of \d+).*?\| independent, benign \| [^|]* \| \*\*(\d+ of \d+)`)

// limit is a row of the table of limits.
type limit struct{ what, value, flag string }

// limits returns the limits from constants and flag defaults.
func limits(t *testing.T) []limit {
	t.Helper()
	d, box := engine.DefaultLimits(), script.Config{}.WithDefaults()
	out := []limit{
		{"a definition", size(workflow.MaxDefinition), ""},
		{"a validator or condition", size(workflow.MaxScript), ""},
		{"an action's data, a start context", size(d.Data), ""},
		{"an instance's context", size(d.Context), ""},
		{"one event of a history", size(record.MaxEvent), ""},
		{"events of one instance between two moves, operators apart", strconv.Itoa(d.Events), ""},
		{"an idempotency key", size(d.Key), ""},
		{"a description or reason", size(d.Text), ""},
		{"reviews that wait, of what one principal asked for", strconv.Itoa(d.OpenReviews), ""},
		{"evidence of one transition", strconv.Itoa(workflow.MaxEvidence) + " facts", ""},
		{"processes that run scripts, of which one caller may use all but one", strconv.Itoa(box.Workers), ""},
		{"calls that wait for one of them", strconv.Itoa(box.Queue), ""},
		{"how long a call waits for one", box.Wait.String(), ""},
		{"how long an operator's script is held for a caller whose data got it killed", box.CallerQuarantineFor.String(), ""},
		{"a message over stdio", size(wire.DefaultMaxLine), ""},
		{"calls in flight over stdio", strconv.Itoa(wire.DefaultMaxInFlight), ""},
		{"tokens", strconv.Itoa(auth.MaxTokens), ""},
	}
	for _, flag := range []limit{
		{"the body of a request", "", "max-body"},
		{"the headers of a request", "", "max-header"},
		{"connections", "", "max-conns"},
		{"requests in flight", "", "max-requests"},
		{"event streams", "", "max-streams"},
		{"how long headers may take", "", "read-header-timeout"},
		{"how long a body may take", "", "body-timeout"},
		{"how long a part of an answer may wait to be read", "", "write-timeout"},
		{"a connection without a request", "", "idle-timeout"},
		{"requests a second of one principal; none with `--auth none`, where everybody is one", "", "rate"},
		{"workflows that one principal owns", "", "quota-definitions"},
		{"states of a definition that no operator brings", "", "quota-states"},
		{"transitions of it, each route counted", "", "quota-transitions"},
		{"its schemas together", "", "quota-schema-bytes"},
		{"instances of one principal that have not ended", "", "quota-instances"},
		{"what is recorded for one principal in an hour, definitions too", "", "quota-bytes"},
		{"time of the sandbox for one principal in an hour, for requests and definitions", "", "quota-worker-time"},
		{"tokens of models for one principal in an hour", "", "quota-model-tokens"},
		{"refusals of the same data before a person has to decide", "", "llm-refusals"},
		{"how long such a refusal counts", "", "llm-refusal-window"},
		{"how long a decision waits for a model, without thinking", "", "llm-deadline"},
		{"requests to a model for one principal in a minute", "", "llm-rate"},
		{"tokens of models for one principal in a minute", "", "llm-token-rate"},
	} {
		flag.value, flag.flag = defaultOf(t, flag.flag), "`--"+flag.flag+"`"
		out = append(out, flag)
	}
	return out
}

func size(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// defaultOf returns a flag's default in gavel serve: from its definition, or from the end of its help.
func defaultOf(t *testing.T, name string) string {
	t.Helper()
	var cmds commands
	parser, err := newParser(&cmds, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == "serve" })
	for _, flag := range parser.Model.Children[at].Flags {
		if flag.Name != name {
			continue
		}
		value := flag.Default
		if _, said, ok := strings.Cut(flag.Help, "Default: "); ok && value == "" {
			value, _, _ = strings.Cut(strings.TrimSuffix(said, "."), ",")
		}
		if n, err := strconv.Atoi(value); err == nil && strings.Contains(flag.FormatPlaceHolder(), "BYTES") {
			return size(n)
		}
		if value == "" {
			t.Errorf("--%s has no default that could be read", name)
		}
		return value
	}
	t.Errorf("gavel serve has no --%s", name)
	return ""
}

// showsTable fails the test if a page does not show a table between its marks. With -update it rewrites the page.
func showsTable(t *testing.T, file, place, table string) {
	t.Helper()
	begins, ends := "<!-- "+place+":begin -->\n\n", "\n<!-- "+place+":end -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begins)
	shown, after, ok2 := strings.Cut(rest, ends)
	switch {
	case !ok1 || !ok2:
		t.Fatalf("%s has no %q ... %q", file, begins, ends)
	case shown == table:
	case *update:
		if err := os.WriteFile(file, []byte(before+begins+table+ends+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is stale; run: go test ./cmd/gavel -run %s -update\nit should show:\n%s", file, t.Name(), table)
	}
}
