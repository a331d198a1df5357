package workflow

import (
	"bufio"
	"io"
	"slices"
	"strings"
)

// Sizes of a drawing as text: every line fits into 80 columns.
const (
	textState  = 26 // columns of a state's name
	textAction = 26
	textMoves  = 2 // moves before the present state
	textNext   = 8 // actions after it
)

// WriteText draws the present state in a few lines for a terminal: the moves before it, and the possible actions with
// the states that they lead to. Without a present state it draws the initial one with all its actions. Names are
// untrusted text; hidden characters, escape sequences included, are made visible.
func (d *Definition) WriteText(w io.Writer, m Marks) error {
	p := d.layOutDiagram(m)
	at := slices.IndexFunc(p.nodes, func(n node) bool { return n.current })
	if at < 0 {
		at = p.start
	}
	b := lineWriter{bufio.NewWriter(w)}
	if at == noNode {
		return b.Flush()
	}
	shown := max(0, len(m.Path)-textMoves)
	if shown > 0 {
		b.put("  ⋮ after ", countNoun(shown, "move"))
	}
	for _, move := range m.Path[shown:] {
		b.put("  ○ ", fitText(move.From, textState))
		b.put("  │ ", fitText(move.Action, textAction))
	}
	b.put("  ● ", p.formatTextNode(at))
	p.putNextText(b, at, m)
	return b.Flush()
}

func (d diagram) formatTextNode(i int) string {
	n := d.nodes[i]
	out := fitText(n.label, textState)
	if n.outcome != "" {
		return out + " (final: " + fitText(n.outcome, 10) + ")"
	}
	if n.final {
		return out + " (final)"
	}
	return out
}

// putNextText writes the possible actions of a state with their targets.
func (d diagram) putNextText(b lineWriter, at int, m Marks) {
	type choice struct{ action, targets string }
	var next []choice
	wide := 0
	for _, a := range d.arrows {
		if a.from != at || m.Current != "" && !slices.Contains(m.Next, a.edge.action) {
			continue
		}
		if !a.first && len(next) > 0 {
			next[len(next)-1].targets = fitText(next[len(next)-1].targets, textState-4) + ", …"
			continue
		}
		next = append(next, choice{fitText(a.edge.action, textAction), d.formatTextNode(a.to)})
	}
	more := len(next) - textNext
	if more > 1 {
		next = next[:textNext]
	}
	for _, c := range next {
		wide = max(wide, countColumns(c.action))
	}
	for i, c := range next {
		branch := "├─ "
		if i == len(next)-1 && more <= 1 {
			branch = "└─ "
		}
		b.put("  ", branch, c.action, " ", strings.Repeat("─", wide-countColumns(c.action)), "→ ", c.targets)
	}
	if more > 1 {
		b.put("  └─ … and ", countNoun(more, "other action"))
	}
}

// fitText cuts a text to a number of columns.
func fitText(s string, n int) string {
	s = showHidden(strings.Join(strings.Fields(cutText(s, 4*n)), " "))
	if countColumns(s) <= n {
		return s
	}
	used := 1 // for the ellipsis
	for i, r := range s {
		if used += countColumns(string(r)); used > n {
			return s[:i] + "…"
		}
	}
	return s
}

// countColumns returns how wide a terminal shows a text.
func countColumns(s string) int {
	n := 0
	for _, r := range s {
		switch wide := measureRune(r); {
		case wide > 1: // mostly characters of two columns
			n += 2
		case wide > 0:
			n++
		}
	}
	return n
}
