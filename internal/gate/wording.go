package gate

import (
	"fmt"
	"strings"
)

// wording is how sentences speak of what a gate is on.
type wording struct {
	what string // `git push`
	done string // run, as in "was not run"
	do   string // run
}

// wording speaks of another server's tool by its name, and of a builtin one by what the agent does
// with it: that it has a gate's name is the operator's business.
func (g Gate) wording() wording {
	w := map[string]wording{
		"":           {g.Tool, "called", "call"},
		BuiltinShell: {anything + "command", "run", "run"},
		BuiltinEdit:  {anything + "file", "edited", "edit"},
		BuiltinRead:  {anything + "file", "read", "read"},
		BuiltinFetch: {anything + "address", "fetched", "fetch"},
	}[g.Builtin]
	if g.shown != "" {
		w.what = g.shown
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
		w.what = strings.Join(shown, " or ")
	}
	return w
}

// maxShown is how many entries a sentence shows.
const maxShown = 3

// show are the names of what an entry is about.
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
			return []string{"what is about `" + strings.Join(about, "`, `") + "`"}
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

// Name returns the gate with the words by which sentences call one use of it: the line that was
// asked for, and not all that the gate is on.
func (g Gate) Name(use string) Gate {
	g.shown = "`" + use + "`"
	return g
}

// Uses is what the gate is on, as sentences to an agent name it: `git push`, ops__deploy.
func (g Gate) Uses() string { return g.wording().what }

// begin is what as the beginning of a sentence.
func (w wording) begin() string {
	if rest, ok := strings.CutPrefix(w.what, anything); ok {
		return "Any " + rest
	}
	return w.what
}

// not begins a sentence: `git push` was not run.
func (w wording) not() string {
	if rest, ok := strings.CutPrefix(w.what, anything); ok {
		return "No " + rest + " was " + w.done
	}
	return w.what + " was not " + w.done
}

// anything begins what a gate is on that is about every use of a tool.
const anything = "any "

// Describe speaks of a tool with a gate as sentences to an agent do: of a builtin one by what it
// does with it.
func (c Config) Describe(tool string) string {
	if g := c.Of(tool); g != nil && g.Builtin != "" {
		w := g.wording()
		return w.do + " " + w.what
	}
	return tool
}
