package gate

import (
	"fmt"
	"strings"
)

// wording is how sentences refer to a gate's tool.
type wording struct {
	subject string // for example, `git push`
	done    string // for example, run, as in "was not run"
	do      string // for example, run
}

// wording names another server's tool by its name, and a builtin tool by what the agent does with it. A gate's name
// concerns only the operator.
func (g Gate) wording() wording {
	w := map[string]wording{
		"":           {g.Tool, "called", "call"},
		BuiltinShell: {anyUsePrefix + "command", "run", "run"},
		BuiltinEdit:  {anyUsePrefix + "file", "edited", "edit"},
		BuiltinRead:  {anyUsePrefix + "file", "read", "read"},
		BuiltinFetch: {anyUsePrefix + "address", "fetched", "fetch"},
	}[g.Builtin]
	if g.shown != "" {
		w.subject = g.shown
		return w
	}
	var shown []string
	for _, entry := range g.When {
		shown = append(shown, entry.show(g.Builtin)...)
	}
	if len(shown) > maxShown {
		shown = append(shown[:maxShown:maxShown], "the like")
	}
	if len(shown) > 0 {
		w.subject = strings.Join(shown, " or ")
	}
	return w
}

// maxShown limits the entries that a sentence shows.
const maxShown = 3

// show returns quoted names for what an entry covers.
func (w When) show(builtin string) (shown []string) {
	switch builtin {
	case BuiltinShell:
		line := strings.Join(w.Args, " ")
		if len(w.Programs) > 0 {
			line = strings.TrimSpace(strings.Join(w.Programs, "|") + " " + line)
		}
		about := append(append([]string{}, w.Paths...), w.Hosts...)
		switch {
		case line == "":
			return []string{"lines about `" + strings.Join(about, "`, `") + "`"}
		case len(about) > 0:
			return []string{fmt.Sprintf("`%s` (of %s)", line, strings.Join(about, ", "))}
		}
		return []string{"`" + line + "`"}
	case BuiltinFetch:
		shown = w.Hosts
	default:
		shown = w.Paths
	}
	quoted := make([]string, len(shown))
	for i, name := range shown {
		quoted[i] = "`" + name + "`"
	}
	return quoted
}

// Name returns a copy of the gate that messages describe as this use: the requested line rather than everything that
// the gate covers.
func (g Gate) Name(use string) Gate {
	g.shown = "`" + use + "`"
	return g
}

// Uses returns what the gate covers, as sentences to an agent name it: `git push`, ops__deploy.
func (g Gate) Uses() string { return g.wording().subject }

// sentenceStart returns w.what for the beginning of a sentence.
func (w wording) sentenceStart() string {
	if rest, ok := strings.CutPrefix(w.subject, anyUsePrefix); ok {
		return "Any " + rest
	}
	return w.subject
}

// negation returns the beginning of a sentence, for example "`git push` was not run".
func (w wording) negation() string {
	if rest, ok := strings.CutPrefix(w.subject, anyUsePrefix); ok {
		return "No " + rest + " was " + w.done
	}
	return w.subject + " was not " + w.done
}

// anyUsePrefix is the prefix of w.what for a gate that covers every use of a tool.
const anyUsePrefix = "any "

// Describe returns how sentences to an agent refer to a gated tool. A builtin tool is described by what the agent
// does with it.
func (c Config) Describe(tool string) string {
	if g := c.GateOf(tool); g != nil && g.Builtin != "" {
		w := g.wording()
		return w.do + " " + w.subject
	}
	return tool
}
