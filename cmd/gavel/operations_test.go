package main

import (
	"io"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Every entry of the table belongs to a command, and names fields that its operation has.
func TestOperationCommands(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&commands{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	commands, specs := map[string]bool{}, maps.Clone(cli.OperationSpecs)
	for _, leaf := range parser.Model.Leaves(false) {
		commands[cli.CommandName(leaf)] = true
		if of, ok := leaf.Target.Addr().Interface().(*cli.OperationCommand); ok {
			specs[cli.CommandName(leaf)] = of.Spec
		}
	}
	if len(specs) < len(cli.OperationSpecs)+5 {
		t.Errorf("%d commands of modules perform an operation", len(specs)-len(cli.OperationSpecs))
	}
	for words, spec := range specs {
		if !commands[words] {
			t.Errorf("there is no command %q", words)
		}
		names := slices.Concat(spec.Positional, spec.Omitted)
		for _, m := range []map[string]string{spec.Fixed, spec.Defaults, spec.Flags} {
			for name := range m {
				names = append(names, name)
			}
		}
		for _, name := range names {
			if !slices.ContainsFunc(spec.Operation.Fields, func(f operation.Field) bool { return f.Name == name }) {
				t.Errorf("%s: %s has no field %q", words, spec.Operation.ID, name)
			}
		}
		if spec.Rows != nil && spec.EmptyText == nil {
			t.Errorf("%s: nothing to say of an empty list", words)
		}
	}
}

func TestRequestsOfCommandLines(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	least, seven := 0.5, int64(7)
	for name, c := range map[string]struct {
		args []string
		of   func(*commands) *cli.OperationFlags
		want any
	}{
		"values": {
			[]string{"history", "search", "--since", "24h", "--kind", "refused,escalated", "--min-confidence", "0.5", "--decided-by", "model", "--after", "c", "--instance", "wf-1"},
			func(c *commands) *cli.OperationFlags { return &c.History.Search.OperationFlags },
			&engine.DecisionsRequest{Cursor: "c", Query: store.DecisionQuery{
				Instance: "wf-1", DecidedBy: judge.LayerModel, MinConfidence: &least, Since: now.Add(-24 * time.Hour), Kinds: []record.Kind{record.Refused, record.Escalated},
			}},
		},
		"documents": {
			[]string{"advance", "wf-1", "submit", "--data", `{"n": 1.50}`, "--expected-revision", "7"},
			func(c *commands) *cli.OperationFlags { return &c.Advance.OperationFlags },
			&engine.AdvanceRequest{ID: "wf-1", Action: "submit", Data: document.ReadTrusted([]byte(`{"n":1.50}`)), ExpectedRevision: &seven},
		},
		"what the command implies, and JSON of any kind": {
			[]string{"review", "approve", "rev-1", "--reason", "Seen.", "--output", `"paid"`},
			func(c *commands) *cli.OperationFlags { return &c.Review.Approve.OperationFlags },
			&engine.ResolveRequest{ID: "rev-1", Decision: judge.Approve, Reason: "Seen.", Output: []byte(`"paid"`)},
		},
		"defaults": {
			[]string{"review", "list"},
			func(c *commands) *cli.OperationFlags { return &c.Review.List.OperationFlags },
			&engine.ReviewsRequest{Status: "open"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cmds commands
			if _, _, err := parseArguments(&cmds, c.args, io.Discard, io.Discard); err != nil {
				t.Fatal(err)
			}
			got, err := c.of(&cmds).BuildRequest(now)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(c.want, got, gocmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
				t.Error(diff)
			}
		})
	}
}
