package gate

import (
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

const (
	maxGates    = 500
	maxMaxCalls = 1_000_000
	maxMaxBytes = 1 << 20 // the engine's limit for arguments
)

// ParseConfig parses the section "gates" of a configuration file; nil means that there is none. The error is
// document.Errors, with one issue and its line for each mistake. Check compares the result with definitions.
func ParseConfig(section *document.Node) (Config, error) {
	var cfg Config
	if section == nil {
		return cfg, nil
	}
	if section.Kind != document.Array {
		return cfg, document.Errors{issueAt(section, "", `expected an array of gates: "- {tool: SERVER__TOOL, workflow: NAME, states: [STATE]}"`)}
	}
	var faults document.Errors
	for i, n := range section.Items {
		if i == maxGates {
			faults = append(faults, issueAt(n, "", "there may be at most %d gates", maxGates))
			break
		}
		g, issues := readGate(n)
		faults = append(faults, issues...)
		if problem := cfg.checkSame(g); problem != "" {
			faults = append(faults, issueAt(n, "/tool", "%s", problem))
		}
		cfg.Gates = append(cfg.Gates, g)
	}
	if len(faults) > 0 {
		return Config{}, faults
	}
	return cfg, nil
}

// checkSame returns the problem of adding g if its tool already has a gate, or "".
func (c Config) checkSame(g Gate) string {
	if other := c.GateOf(g.Tool); g.Builtin == "" && other != nil && g.Tool != "" {
		return fmt.Sprintf("the tool %q already has a gate at line %d; remove one of them", g.Tool, other.node.Line)
	}
	for _, other := range c.Gates {
		switch {
		case g.Builtin == "" || other.Builtin != g.Builtin:
		case other.Tool == g.Tool, g.Tool == g.Builtin, other.Tool == g.Builtin:
			return fmt.Sprintf("%s already has a gate at line %d; give each its own \"name\"", g.Builtin, other.node.Line)
		}
	}
	return ""
}

// issueAt returns an issue at the node that a pointer leads to, or at the nearest one that exists.
func issueAt(n *document.Node, pointer, format string, args ...any) *document.Issue {
	n = n.Nearest(pointer)
	return &document.Issue{Rule: document.RuleValue, Source: n.Source(), Path: n.ShownPath(), Line: n.Line, Column: n.Column, Message: fmt.Sprintf(format, args...)}
}

func readGate(n *document.Node) (Gate, document.Errors) {
	o := document.NewObject(n)
	g := Gate{
		Tool: o.String("tool"), Workflow: o.String("workflow"), States: o.OneOrMore("states"),
		Action: o.String("action"), Success: o.String("success"), Error: o.String("error"),
		Start: o.Bool("start"), Repeatable: o.Bool("repeatable"),
		List: List(o.Enum("list", string(ListAlways), string(ListLegal))), node: n,
	}
	if g.List == "" {
		g.List = ListAlways
	}
	readBuiltin(o, &g)
	g.Data = readTemplate(o, "data", document.Object, rootArguments, rootPrincipal)
	g.Result = readTemplate(o, "result", document.Object, rootArguments, rootPrincipal, rootResult)
	g.Subject = readTemplate(o, "subject", document.String, rootArguments, rootPrincipal)
	readBindings(o, &g)
	if max := o.IntPtr("maxArguments"); max != nil {
		if g.MaxArguments = *max; g.MaxArguments < 1 || g.MaxArguments > maxMaxBytes {
			o.Fail(o.Value("maxArguments"), "maxArguments is a number of bytes from 1 to %d; without it, that many are allowed", maxMaxBytes)
		}
	}
	if max := o.IntPtr("maxCalls"); max != nil {
		if g.MaxCalls = *max; g.MaxCalls < 1 || g.MaxCalls > maxMaxCalls {
			o.Fail(o.Value("maxCalls"), "maxCalls is a number from 1 to %d; without it, any number of calls is allowed", maxMaxCalls)
		}
	}
	o.Require("tool", "workflow", "states")
	o.Unknown()
	if o.Err() == nil { // a gate with syntax errors may be incomplete
		checkGate(o, g)
	}
	issues, _ := o.Err().(document.Errors) //nolint:errorlint // Err returns this type or nil
	return g, issues
}

// checkGate checks that a gate's settings are consistent.
func checkGate(o *document.ObjectReader, g Gate) {
	server, tool, ok := strings.Cut(g.Tool, "__")
	switch {
	case g.Builtin != "":
	case strings.HasPrefix(g.Tool, "builtin"):
		o.Fail(o.Value("tool"), "unknown builtin tool %q; use one of %s", g.Tool, strings.Join(sortedKeys(whenKeys), ", "))
	case !ok || server == "" || tool == "":
		o.Fail(o.Value("tool"), "write the name that clients use, SERVER__TOOL; gavel upstream list prints the names")
	}
	if !workflow.IsName(g.Workflow) {
		o.Fail(o.Value("workflow"), "workflow must be the name of a definition")
	}
	if len(g.States) == 0 {
		o.Fail(o.Value("states"), "name at least one state in which the tool may be called")
	}
	without := func(key string, absent bool, why string) {
		if o.Has(key) && absent {
			o.Fail(o.Value(key), "%s", why)
		}
	}
	without("data", g.Action == "", `"data" needs "action", which is performed with it`)
	without("result", g.Success == "" && g.Error == "", `"result" needs "success" or "error", which are performed with it`)
	without("start", g.Start && g.Subject == nil && g.Builtin == "", `start needs "subject", by which later calls find the workflow that the first call started`)
	if g.Subject != nil && !g.Subject.hasReferences() {
		o.Fail(o.Value("subject"), "the subject refers to no argument, so all calls would share one workflow; write {{arguments.NAME}}")
	}
}

func readBindings(o *document.ObjectReader, g *Gate) {
	for _, m := range o.Entries("bind") {
		b := engine.Binding{Argument: m.Key, Field: m.Value.Text}
		switch {
		case m.Value.Kind != document.String:
			o.Fail(m.Value, "bind maps each argument to the frozen field that it must equal, both as JSON pointers: {/path: /plan/path}")
			continue
		case !isValuePointer(b.Argument):
			o.Fail(m.Value, "%q is not a JSON pointer to an argument; write /%s", b.Argument, strings.TrimPrefix(b.Argument, "/"))
		case !isValuePointer(b.Field):
			o.Fail(m.Value, "%q is not a JSON pointer to a field; write /%s", b.Field, strings.TrimPrefix(b.Field, "/"))
		}
		g.Bind = append(g.Bind, b)
	}
}

// isValuePointer reports whether text is a valid JSON pointer to a value below the document's root.
func isValuePointer(pointer string) bool { return pointer != "" && document.Pointer(pointer).IsValid() }

func tokensOf(pointer string) (tokens []string) {
	for token := range document.Pointer(pointer).Tokens() {
		tokens = append(tokens, token)
	}
	return tokens
}
