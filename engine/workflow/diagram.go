package workflow

import (
	"bufio"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Marks selects what a diagram highlights: of one instance, or of the traffic of all. The zero value marks nothing.
// Mermaid and DOT show Current and Visited only. Marks of unknown states and actions are ignored.
type Marks struct {
	// Current is the current state, "" for none.
	Current string
	// Visited are the states entered so far.
	Visited []string
	// Path are the moves made so far, oldest first.
	Path []Move
	// Next are the actions that are possible in Current.
	Next []string
	// Refusals count the requests that were refused, by state and action.
	Refusals []Refusals
	// Traffic counts the requests of all instances, by state and action.
	Traffic []Traffic
}

// Move is one move along a diagram.
type Move struct{ From, Action, To string }

// Refusals counts the refused requests of an action in a state.
type Refusals struct {
	State, Action string
	Count         int
}

// Traffic counts the requests of an action in a state, and the refused ones among them.
type Traffic struct {
	State, Action  string
	Asked, Refused int64
}

// diagram is a definition laid out for drawing, in the order of the document, with labels in
// plain text. Every format draws from it.
type diagram struct {
	title  string
	nodes  []node
	arrows []arrow
	start  int // index of the initial node, nowhere when unknown
}

type node struct {
	label            string
	final            bool
	outcome          string
	current, visited bool
}

// arrow joins two nodes; its label includes the route's condition, truncated.
type arrow struct {
	edge     edge
	from, to int
	label    string
	first    bool // of the action's routes: counts are written once
}

// maxCondition limits how many characters of a condition a diagram shows.
const maxCondition = 48

func (d *Definition) layOutDiagram(m Marks) diagram {
	g := newGraph(d)
	p := diagram{title: d.Name, start: g.initial}
	for _, name := range d.StateNames {
		s := d.States[name]
		p.nodes = append(p.nodes, node{
			label: name, final: s.Final, outcome: s.Outcome,
			current: name == m.Current, visited: slices.Contains(m.Visited, name),
		})
	}
	for i, e := range g.edges {
		to := g.findState(e.to)
		if to == noNode {
			continue // Lint rejects it
		}
		label := e.action
		if e.condition != "" {
			label += " [" + shortenCondition(e.condition) + "]"
		}
		first := i == 0 || g.edges[i-1].from != e.from || g.edges[i-1].action != e.action
		p.arrows = append(p.arrows, arrow{edge: e, from: g.index[e.from], to: to, label: label, first: first})
	}
	return p
}

// lineWriter writes lines; Flush returns the first error.
type lineWriter struct{ *bufio.Writer }

func (w lineWriter) put(parts ...string) {
	for _, part := range parts {
		_, _ = w.WriteString(part)
	}
	_ = w.WriteByte('\n')
}

func shortenCondition(condition string) string {
	text := strings.Join(strings.Fields(condition), " ")
	if r := []rune(text); len(r) > maxCondition {
		return string(r[:maxCondition-1]) + "…"
	}
	return text
}

// WriteMermaid draws the definition as a Mermaid state diagram. Names and conditions are
// untrusted text; they are always drawn as labels, whatever they contain.
func (d *Definition) WriteMermaid(w io.Writer, m Marks) error {
	p := d.layOutDiagram(m)
	ids := p.assignMermaidIDs()
	b := lineWriter{bufio.NewWriter(w)}
	b.put("stateDiagram-v2")
	for i, n := range p.nodes {
		if ids[i] != n.label || n.outcome != "" {
			b.put(`    state "`, escapeMermaid(n.formatCaption()), `" as `, ids[i])
		}
	}
	if p.start != noNode {
		b.put("    [*] --> ", ids[p.start])
	}
	for _, l := range p.arrows {
		b.put("    ", ids[l.from], " --> ", ids[l.to], " : ", escapeMermaid(l.label))
	}
	for i, n := range p.nodes {
		if n.final {
			b.put("    ", ids[i], " --> [*]")
		}
	}
	p.writeMermaidMarks(ids, b)
	return b.Flush()
}

func (n node) formatCaption() string {
	if n.outcome == "" {
		return n.label
	}
	return n.label + " (" + n.outcome + ")"
}

// The colours of marked states, in both formats.
const (
	currentFill, currentLine = "#ffe08a", "#8a5a00"
	visitedFill, visitedLine = "#dcefdc", "#3c7a3c"
)

func (d diagram) writeMermaidMarks(ids []string, b lineWriter) {
	var current, visited []string
	for i, n := range d.nodes {
		switch {
		case n.current:
			current = append(current, ids[i])
		case n.visited:
			visited = append(visited, ids[i])
		}
	}
	if len(visited) > 0 {
		b.put("    classDef visited fill:", visitedFill, ",stroke:", visitedLine, ",color:#000000")
		b.put("    class ", strings.Join(visited, ","), " visited")
	}
	if len(current) > 0 {
		b.put("    classDef current fill:", currentFill, ",stroke:", currentLine, ",stroke-width:3px,color:#000000")
		b.put("    class ", strings.Join(current, ","), " current")
	}
}

// plainIDPattern matches names that Mermaid accepts unchanged.
var plainIDPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,63}$`) })

// reservedMermaidWords have another meaning to Mermaid, in upper or lower case.
var reservedMermaidWords = []string{
	"acctitle", "accdescr", "as", "class", "classdef", "click", "default", "direction", "end", "hide", "href",
	"left", "note", "of", "over", "right", "root", "scale", "state", "statediagram", "style", "to", "width",
	"bt", "lr", "rl", "tb", "td", "current", "visited", "constructor", "prototype",
}

func (d diagram) assignMermaidIDs() []string {
	taken := map[string]bool{}
	for _, n := range d.nodes {
		taken[n.label] = true
	}
	ids := make([]string, len(d.nodes))
	for i, n := range d.nodes {
		id := n.label
		if !plainIDPattern().MatchString(id) || slices.Contains(reservedMermaidWords, strings.ToLower(id)) {
			id = "s" + strconv.Itoa(i+1)
			for taken[id] {
				id += "_"
			}
			taken[id] = true
		}
		ids[i] = id
	}
	return ids
}

// mermaidKeywords matches the keywords that Mermaid's lexer finds in the middle of a line, labels
// included. Writing their first character as an entity hides them.
var mermaidKeywords = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)direction|\[\[`) })

// escapeMermaid writes a label with every character that Mermaid could read as syntax
// or HTML as a numeric entity.
func escapeMermaid(label string) string {
	words := mermaidKeywords().FindAllStringIndex(label, -1)
	var b strings.Builder
	for i, r := range label {
		if len(words) > 0 && i == words[0][0] {
			words = words[1:]
			b.WriteString("#" + strconv.Itoa(int(r)) + ";")
			continue
		}
		switch {
		case r > 0x7F, r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', strings.ContainsRune(" _-.,/()[]+=!?'", r):
			b.WriteRune(r)
		case r == '\n' || r == '\r' || r == '\t':
			b.WriteByte(' ')
		default:
			b.WriteString("#" + strconv.Itoa(int(r)) + ";")
		}
	}
	return b.String()
}

// WriteDOT draws the definition for Graphviz. Names and conditions are untrusted text; they are
// always drawn as labels, whatever they contain.
func (d *Definition) WriteDOT(w io.Writer, m Marks) error {
	p := d.layOutDiagram(m)
	b := lineWriter{bufio.NewWriter(w)}
	b.put("digraph ", quoteDOT(p.title), " {")
	b.put("  rankdir=LR;")
	b.put(`  node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="Helvetica"];`)
	b.put(`  edge [fontname="Helvetica", fontsize=10];`)
	if p.start != noNode {
		b.put(`  start [shape=circle, label="", width=0.2, fillcolor="#000000"];`)
	}
	for i, n := range p.nodes {
		b.put("  ", formatDOTID(i), " [label=", quoteDOT(n.formatCaption()), n.formatDOTStyle(), "];")
	}
	if p.start != noNode {
		b.put("  start -> ", formatDOTID(p.start), ";")
	}
	for _, l := range p.arrows {
		b.put("  ", formatDOTID(l.from), " -> ", formatDOTID(l.to), " [label=", quoteDOT(l.label), "];")
	}
	b.put("}")
	return b.Flush()
}

func formatDOTID(i int) string { return "s" + strconv.Itoa(i+1) }

func (n node) formatDOTStyle() string {
	look := ""
	if n.final {
		look = ", peripheries=2"
	}
	switch {
	case n.current:
		look += `, penwidth=3, fillcolor="` + currentFill + `", color="` + currentLine + `"`
	case n.visited:
		look += `, fillcolor="` + visitedFill + `", color="` + visitedLine + `"`
	}
	return look
}

var dotEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", "&amp;", "\n", " ", "\r", " ", "\t", " ")

// quoteDOT quotes a label. Graphviz reads backslashes and HTML entities in labels,
// so both are escaped.
func quoteDOT(label string) string { return `"` + dotEscaper.Replace(label) + `"` }
