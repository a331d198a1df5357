package workflow

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow/layout"
)

// SVGStyle is the style sheet in every drawing of WriteSVG, the text of its style element. A page that shows drawings
// under a Content-Security-Policy allows it by its hash, and may override its rules.
const SVGStyle = `.gavel-diagram{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;max-width:100%;height:auto}` +
	`.gavel-canvas{fill:#fff}` +
	`.gavel-box{fill:#fff;stroke:#b9c3cc;stroke-width:1.5}` +
	`.gavel-ring{fill:none;stroke:#b9c3cc;stroke-width:1.25}` +
	`.gavel-name{fill:#16212b;font-size:14px;font-weight:600;text-anchor:middle}` +
	`.gavel-note{fill:#5b6875;font-size:11px;text-anchor:middle}` +
	`.gavel-line{fill:none;stroke:#8d9aa6;stroke-width:1.5;stroke-linecap:round}` +
	`.gavel-head{fill:#8d9aa6}` +
	`.gavel-start{fill:#16212b}` +
	`.gavel-pill{fill:#f1f4f6}` +
	`.gavel-action{fill:#36434f;font-size:12px;font-weight:500;text-anchor:middle}` +
	`.gavel-badge{fill:#b42318}` +
	`.gavel-count{fill:#fff;font-size:10px;font-weight:700;text-anchor:middle}` +
	`.gavel-key{text-anchor:start}` +
	`.gavel-row{fill:#36434f;font-size:12px}` +
	`.gavel-small{font-size:11px}` +
	`.gavel-visited .gavel-box{fill:#e8f4f5;stroke:#4d9aa5}` +
	`.gavel-visited .gavel-ring{stroke:#4d9aa5}` +
	`.gavel-current .gavel-box{fill:#00707f;stroke:#00707f}` +
	`.gavel-current .gavel-ring{stroke:#fff}` +
	`.gavel-current .gavel-name,.gavel-current .gavel-note{fill:#fff}` +
	`.gavel-next .gavel-line{stroke:#00707f;stroke-width:2;stroke-dasharray:1 5}` +
	`.gavel-path .gavel-line{stroke:#00707f;stroke-width:2.5;stroke-dasharray:none}` +
	`.gavel-path .gavel-head,.gavel-next .gavel-head{fill:#00707f}` +
	`.gavel-next .gavel-pill{fill:#dff1f3}` +
	`.gavel-path .gavel-action,.gavel-next .gavel-action{fill:#005763}` +
	`.gavel-t1 .gavel-line{stroke-width:2}.gavel-t2 .gavel-line{stroke-width:3}.gavel-t3 .gavel-line{stroke-width:4.5}.gavel-t4 .gavel-line{stroke-width:6}` +
	`@media (prefers-color-scheme:dark){` +
	`.gavel-canvas{fill:#11171b}` +
	`.gavel-box{fill:#1a2227;stroke:#4a5862}` +
	`.gavel-ring{stroke:#4a5862}` +
	`.gavel-name{fill:#e9eef1}` +
	`.gavel-note{fill:#9aa8b3}` +
	`.gavel-line{stroke:#6c7a85}` +
	`.gavel-head{fill:#6c7a85}` +
	`.gavel-start{fill:#e9eef1}` +
	`.gavel-pill{fill:#222c33}` +
	`.gavel-action,.gavel-row{fill:#c6d0d7}` +
	`.gavel-badge{fill:#f1776c}` +
	`.gavel-count{fill:#2a0a07}` +
	`.gavel-visited .gavel-box{fill:#16343a;stroke:#3f8c98}` +
	`.gavel-visited .gavel-ring{stroke:#3f8c98}` +
	`.gavel-current .gavel-box{fill:#6fcfdd;stroke:#6fcfdd}` +
	`.gavel-current .gavel-ring{stroke:#0c2a30}` +
	`.gavel-current .gavel-name,.gavel-current .gavel-note{fill:#0c2a30}` +
	`.gavel-path .gavel-line,.gavel-next .gavel-line{stroke:#6fcfdd}` +
	`.gavel-path .gavel-head,.gavel-next .gavel-head{fill:#6fcfdd}` +
	`.gavel-next .gavel-pill{fill:#16343a}` +
	`.gavel-path .gavel-action,.gavel-next .gavel-action{fill:#a5e4ed}}`

// A drawing shows at most so many states and lines; a definition with more is shown as a list.
const (
	maxDrawnStates = 200
	maxDrawnLines  = 400
)

// Sizes of a drawing.
const (
	svgMargin    = 24
	nameSize     = 14
	actionSize   = 12
	noteSize     = 11
	nameWidth    = 170 // of a line of a state's name, at most
	actionWidth  = 190
	maxPillRows  = 9
	maxTitle     = 300 // characters
	legendHeight = 22
	startRadius  = 7
)

// WriteSVG draws the definition as a standalone SVG image, which is also valid inside a page. It has no script, no
// link, no id and no style attribute, and the same definition and marks give the same bytes. Names and conditions
// are untrusted text; they are always drawn as text, with hidden characters made visible, and cut where they are
// long. Each state is a g element with its name in data-state. Definitions with more than 200 states, or 400 pairs of
// joined states, are listed.
func (d *Definition) WriteSVG(w io.Writer, m Marks) error {
	p := d.layOutDiagram(m)
	lines := p.groupArrows(m)
	b := svgWriter{bufio.NewWriter(w)}
	if len(p.nodes) > maxDrawnStates || len(lines) > maxDrawnLines {
		b.writeList(p, m)
	} else {
		b.writeDrawing(p, lines, m)
	}
	return b.Flush()
}

// svgLine is all arrows from one node to another, drawn as one line.
type svgLine struct {
	from, to   int
	rows       []pillRow
	path, next bool
	traffic    int64
	label      layout.Size
	title      string
}

// pillRow is a row of a line's label.
type pillRow struct {
	text   string
	class  string
	height float64
	badge  int // refusals, behind the text
	width  float64
}

// groupArrows returns the lines of a diagram, with their labels, in the order of the document.
func (d diagram) groupArrows(m Marks) []*svgLine {
	type ends struct{ from, to int }
	type step struct{ state, action string }
	known := map[ends]*svgLine{}
	refused, traffic, moved := map[step]int{}, map[step]Traffic{}, map[Move]bool{}
	for _, r := range m.Refusals {
		refused[step{r.State, r.Action}] += r.Count
	}
	for _, t := range m.Traffic {
		traffic[step{t.State, t.Action}] = t
	}
	for _, move := range m.Path {
		moved[move] = true
	}
	var lines []*svgLine
	for _, a := range d.arrows {
		l := known[ends{a.from, a.to}]
		if l == nil {
			l = &svgLine{from: a.from, to: a.to}
			known[ends{a.from, a.to}] = l
			lines = append(lines, l)
		}
		l.path = l.path || moved[Move{a.edge.from, a.edge.action, a.edge.to}]
		l.next = l.next || a.edge.from == m.Current && slices.Contains(m.Next, a.edge.action)
		at := step{a.edge.from, a.edge.action}
		l.traffic += traffic[at].Asked
		l.addRows(a, refused[at], traffic[at])
	}
	for _, l := range lines {
		l.measure()
	}
	return lines
}

// addRows adds the rows of an arrow to the label.
func (l *svgLine) addRows(a arrow, refused int, t Traffic) {
	if l.title != "" {
		l.title += ", "
	}
	l.title += a.edge.action
	if a.edge.condition != "" {
		l.title += " [" + a.edge.condition + "]"
	}
	text := wrapText(a.edge.action, actionWidth, actionSize, 2)
	for i, line := range text {
		row := pillRow{text: line, class: "gavel-action", height: 16}
		if a.first && i == len(text)-1 {
			row.badge = refused
		}
		l.rows = append(l.rows, row)
	}
	if a.edge.condition != "" {
		text := wrapText("if "+a.edge.condition, actionWidth, noteSize, 2)
		for _, line := range text {
			l.rows = append(l.rows, pillRow{text: line, class: "gavel-note", height: 14})
		}
	}
	if a.first && t.Asked > 0 {
		l.rows = append(l.rows, pillRow{text: t.describe(), class: "gavel-note", height: 14})
	}
}

// describe formats traffic, such as "1,204 asked, 12% refused".
func (t Traffic) describe() string {
	if t.Refused <= 0 {
		return groupDigits(t.Asked) + " asked"
	}
	share := "under 1"
	if percent := (t.Refused*200 + t.Asked) / (2 * t.Asked); percent > 0 {
		share = strconv.FormatInt(percent, 10)
	}
	return groupDigits(t.Asked) + " asked, " + share + "% refused"
}

func groupDigits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// measure cuts the rows of a label and computes its size.
func (l *svgLine) measure() {
	if more := len(l.rows) - maxPillRows; more > 1 {
		l.rows = append(l.rows[:maxPillRows:maxPillRows], pillRow{text: "…", class: "gavel-note", height: 14})
	}
	for i := range l.rows {
		r := &l.rows[i]
		size := float64(noteSize)
		if r.class == "gavel-action" {
			size = actionSize
		}
		r.width = measureText(r.text, size)
		l.label.W = max(l.label.W, r.width+r.badgeWidth())
		l.label.H += r.height
	}
	l.label.W = float64(int(l.label.W) + 21)
	l.label.H += 8
}

func (r pillRow) badgeWidth() float64 {
	if r.badge == 0 {
		return 0
	}
	return 6 + max(16, 10+6.5*float64(len(strconv.Itoa(r.badge))))
}

// svgNode is a node's text and size.
type svgNode struct {
	layout.Size
	lines []string
	note  string
}

func (n node) measure() svgNode {
	out := svgNode{}
	out.lines = wrapText(n.label, nameWidth, nameSize, 2)
	for _, line := range out.lines {
		out.W = max(out.W, measureText(line, nameSize))
	}
	out.H = 22 + 18*float64(len(out.lines))
	if n.outcome != "" {
		note := wrapText(n.outcome, nameWidth, noteSize, 1)
		out.note = note[0]
		out.W = max(out.W, measureText(out.note, noteSize))
		out.H += 14
	}
	out.W = max(92, float64(int(out.W)+37))
	return out
}

type svgWriter struct{ *bufio.Writer }

func (w svgWriter) put(parts ...string) {
	for _, part := range parts {
		_, _ = w.WriteString(part)
	}
}

// escapeXML returns text for an element or an attribute, with hidden characters made visible.
func escapeXML(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(showHidden(text))) // a Builder returns no error
	return b.String()
}

// escapeLabel is escapeXML for a text that may be long.
func escapeLabel(text string) string {
	return escapeXML(cutText(showHidden(cutText(text, maxTitle)), maxTitle))
}

func formatNumber(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// begin opens the image.
func (w svgWriter) begin(p diagram, width, height float64, m Marks) {
	size := formatNumber(width) + `" height="` + formatNumber(height)
	w.put(`<svg xmlns="http://www.w3.org/2000/svg" class="gavel-diagram" role="img" width="`, size,
		`" viewBox="0 0 `, formatNumber(width), " ", formatNumber(height), `">`, "\n",
		"<title>", escapeLabel(p.title), "</title>\n<desc>", escapeLabel(p.describe(m)), "</desc>\n",
		"<style>", SVGStyle, "</style>\n",
		`<rect class="gavel-canvas" width="`, size, `" rx="12"/>`, "\n")
}

// describe says in a sentence or two what the diagram shows.
func (d diagram) describe(m Marks) string {
	out := fmt.Sprintf("A diagram of %s and %s", countNoun(len(d.nodes), "state"), countNoun(len(d.arrows), "transition"))
	if d.start != noNode {
		out += ", starting in " + d.nodes[d.start].label
	}
	out += "."
	if slices.ContainsFunc(d.nodes, func(n node) bool { return n.current }) {
		out += " The instance is in " + m.Current
		if len(m.Next) > 0 {
			out += "; possible next actions: " + strings.Join(m.Next, ", ")
		}
		out += "."
	}
	return out
}

func countNoun(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func (w svgWriter) writeDrawing(p diagram, lines []*svgLine, m Marks) {
	var g layout.Graph
	mark := 0 // how many nodes are marks: the black disc above the initial state
	if p.start != noNode {
		mark = 1
		g.Nodes = append(g.Nodes, layout.Size{W: 2 * startRadius, H: 2 * startRadius})
		g.Edges = append(g.Edges, layout.Edge{From: 0, To: 1 + p.start})
	}
	nodes := make([]svgNode, len(p.nodes))
	for i, n := range p.nodes {
		nodes[i] = n.measure()
		g.Nodes = append(g.Nodes, nodes[i].Size)
	}
	var busiest int64
	for _, l := range lines {
		g.Edges = append(g.Edges, layout.Edge{From: mark + l.from, To: mark + l.to, Label: l.label})
		busiest = max(busiest, l.traffic)
	}
	placed := layout.Place(g)
	legend := listLegend(p, lines)
	width, height := max(placed.W, 240), placed.H
	rows := legend.flow(width)
	if rows > 0 {
		height += svgMargin + float64(rows*legendHeight) - 6
	}
	w.begin(p, width+2*svgMargin, height+2*svgMargin, m)
	left := float64(int((width - placed.W) / 2))
	w.put(`<g transform="translate(`, formatNumber(svgMargin+left), " ", strconv.Itoa(svgMargin), `)">`, "\n")
	if mark > 0 {
		at := placed.Nodes[0]
		w.put(`<circle class="gavel-start" cx="`, formatNumber(at.X+startRadius), `" cy="`, formatNumber(at.Y+startRadius), `" r="`, strconv.Itoa(startRadius), `"/>`, "\n")
		w.putArrow(placed.Edges[0])
		w.put("\n")
	}
	boxes, routes := placed.Nodes[mark:], placed.Edges[mark:]
	// Marked lines are drawn over others.
	order := make([]int, 0, len(lines))
	for _, marked := range []bool{false, true} {
		for i, l := range lines {
			if (l.path || l.next) == marked {
				order = append(order, i)
			}
		}
	}
	for _, i := range order {
		w.put(`<g class="`, lines[i].classes(busiest), `">`)
		w.putArrow(routes[i])
		w.put("</g>\n")
	}
	for i, n := range p.nodes {
		w.putNode(n, nodes[i], boxes[i])
	}
	for _, i := range order {
		w.putPill(p, lines[i], routes[i].Label, busiest)
	}
	w.put("</g>\n")
	w.putLegend(legend, placed.H+2*svgMargin)
	w.put("</svg>\n")
}

// classes returns the classes of a line and its label.
func (l *svgLine) classes(busiest int64) string {
	out := "gavel-edge"
	if l.path {
		out += " gavel-path"
	}
	if l.next {
		out += " gavel-next"
	}
	if l.traffic > 0 {
		step := 4
		for n := l.traffic; n < busiest && step > 0; n *= 4 {
			step--
		}
		if step > 0 {
			out += " gavel-t" + strconv.Itoa(step)
		}
	}
	return out
}

// putArrow draws the way of an arrow, and its head.
func (w svgWriter) putArrow(r layout.Route) {
	points := slices.Clone(r.Points)
	n := len(points)
	end := points[n-1]
	const head, half = 8.0, 4.5
	w.put(`<path class="gavel-line" d="`)
	if r.Loop {
		points[n-1].X += head - 1
		w.put("M", formatPoint(points[0]), "C", formatPoint(points[1]), " ", formatPoint(points[2]), " ", formatPoint(points[3]), `"/>`)
		w.put(`<path class="gavel-head" d="M`, formatPoint(end), "l", formatNumber(head), " ", formatNumber(-half), "v", formatNumber(2*half), `z"/>`)
		return
	}
	back := -head // the head's base, seen from its tip
	if points[n-2].Y > end.Y {
		back = head
	}
	points[n-1].Y += back * 0.9
	for i, at := range points {
		switch {
		case i == 0:
			w.put("M", formatPoint(at))
		case points[i-1].X == at.X:
			w.put("V", formatNumber(at.Y))
		default:
			middle := formatNumber((points[i-1].Y + at.Y) / 2)
			w.put("C", formatNumber(points[i-1].X), " ", middle, " ", formatNumber(at.X), " ", middle, " ", formatPoint(at))
		}
	}
	w.put(`"/><path class="gavel-head" d="M`, formatPoint(end), "l", formatNumber(-half), " ", formatNumber(back), "h", formatNumber(2*half), `z"/>`)
}

func formatPoint(p layout.Point) string { return formatNumber(p.X) + " " + formatNumber(p.Y) }

func (w svgWriter) putRect(class string, r layout.Rect, round float64) {
	w.put(`<rect class="`, class, `" x="`, formatNumber(r.X), `" y="`, formatNumber(r.Y), `" width="`, formatNumber(r.W), `" height="`, formatNumber(r.H), `" rx="`, formatNumber(round), `"/>`)
}

func (w svgWriter) putText(class string, x, y float64, text string) {
	w.put(`<text class="`, class, `" x="`, formatNumber(x), `" y="`, formatNumber(y), `">`, escapeXML(text), "</text>")
}

func (w svgWriter) putNode(n node, s svgNode, r layout.Rect) {
	class := "gavel-state"
	switch {
	case n.current:
		class += " gavel-current"
	case n.visited:
		class += " gavel-visited"
	}
	if n.final {
		class += " gavel-final"
	}
	w.put(`<g class="`, class, `" data-state="`, escapeLabel(n.label), `"><title>`, escapeLabel(n.formatCaption()), "</title>")
	round := 12.0
	if n.final {
		round = 20
	}
	w.putRect("gavel-box", r, round)
	if n.final {
		w.putRect("gavel-ring", layout.Rect{X: r.X + 4, Y: r.Y + 4, W: r.W - 8, H: r.H - 8}, round-4)
	}
	x, y := r.X+r.W/2, r.Y+25
	for _, line := range s.lines {
		w.putText("gavel-name", x, y, line)
		y += 18
	}
	if s.note != "" {
		w.putText("gavel-note", x, y-2, s.note)
	}
	w.put("</g>\n")
}

func (w svgWriter) putPill(p diagram, l *svgLine, r layout.Rect, busiest int64) {
	w.put(`<g class="`, l.classes(busiest), `" data-from="`, escapeLabel(p.nodes[l.from].label), `" data-to="`, escapeLabel(p.nodes[l.to].label),
		`"><title>`, escapeLabel(l.title), "</title>")
	w.putRect("gavel-pill", r, 8)
	y := r.Y + 4
	for _, row := range l.rows {
		shift := row.badgeWidth() / 2
		x := r.X + r.W/2
		w.putText(row.class, x-shift, y+row.height*0.75, row.text)
		if row.badge > 0 {
			wide := row.badgeWidth() - 6
			box := layout.Rect{X: x + row.width/2 - shift + 6, Y: y + 1, W: wide, H: 14}
			w.put("<g><title>", escapeXML(countNoun(row.badge, "refusal")), "</title>")
			w.putRect("gavel-badge", box, 7)
			w.putText("gavel-count", box.X+wide/2, box.Y+10.5, strconv.Itoa(row.badge))
			w.put("</g>")
		}
		y += row.height
	}
	w.put("</g>\n")
}

// svgLegend explains the marks of a drawing.
type svgLegend []legendEntry

type legendEntry struct {
	kind, text string
	x          float64
	row        int
}

func listLegend(p diagram, lines []*svgLine) svgLegend {
	var out svgLegend
	add := func(kind, text string, shown bool) {
		if shown {
			out = append(out, legendEntry{kind: kind, text: text})
		}
	}
	hasLine := func(is func(*svgLine) bool) bool { return slices.ContainsFunc(lines, is) }
	add("current", "now", slices.ContainsFunc(p.nodes, func(n node) bool { return n.current }))
	add("visited", "visited", slices.ContainsFunc(p.nodes, func(n node) bool { return n.visited && !n.current }))
	add("path", "path taken", hasLine(func(l *svgLine) bool { return l.path }))
	add("next", "possible next", hasLine(func(l *svgLine) bool { return l.next && !l.path }))
	add("badge", "refusals", hasLine(func(l *svgLine) bool {
		return slices.ContainsFunc(l.rows, func(r pillRow) bool { return r.badge > 0 })
	}))
	return out
}

// flow places the entries in rows of a width and returns the number of rows.
func (l svgLegend) flow(width float64) int {
	x, row := 0.0, 0
	for i := range l {
		wide := 26 + measureText(l[i].text, noteSize)
		if x > 0 && x+wide > width {
			x, row = 0, row+1
		}
		l[i].x, l[i].row = float64(int(x)), row
		x += wide + 18
	}
	if len(l) == 0 {
		return 0
	}
	return row + 1
}

func (w svgWriter) putLegend(legend svgLegend, y float64) {
	for _, e := range legend {
		x, y := svgMargin+e.x, y+float64(e.row*legendHeight)-2
		switch e.kind {
		case "current", "visited":
			w.put(`<g class="gavel-`, e.kind, `">`)
			w.putRect("gavel-box", layout.Rect{X: x, Y: y, W: 18, H: 12}, 4)
			w.put("</g>")
		case "badge":
			w.putRect("gavel-badge", layout.Rect{X: x, Y: y, W: 18, H: 12}, 6)
		default:
			w.put(`<g class="gavel-`, e.kind, `"><path class="gavel-line" d="M`, formatNumber(x), " ", formatNumber(y+6), `h18"/></g>`)
		}
		w.putText("gavel-note gavel-key", x+25, y+10, e.text)
		w.put("\n")
	}
}

// writeList lists the states and their actions, for definitions that are too large to draw.
func (w svgWriter) writeList(p diagram, m Marks) {
	const row, width = 22.0, 720.0
	states := make([][]string, len(p.nodes))
	for _, a := range p.arrows {
		if a.first && len(states[a.from]) < 12 {
			states[a.from] = append(states[a.from], a.edge.action)
		}
	}
	shown := min(len(p.nodes), maxDrawnStates)
	rows := make([]int, 0, shown+1)
	if i := slices.IndexFunc(p.nodes, func(n node) bool { return n.current }); i >= shown {
		rows = append(rows, i)
		shown--
	}
	for i := range shown {
		rows = append(rows, i)
	}
	last := fmt.Sprintf("The drawing would be too large; this lists the states and their actions. Left out: %s.", countNoun(len(p.nodes)-len(rows), "state"))
	height := float64(len(rows)+1)*row + 2*svgMargin
	w.begin(p, width, height, m)
	y := float64(svgMargin)
	for _, i := range rows {
		n := p.nodes[i]
		class := "gavel-state"
		switch {
		case n.current:
			class += " gavel-current"
		case n.visited:
			class += " gavel-visited"
		}
		w.put(`<g class="`, class, `" data-state="`, escapeLabel(n.label), `"><title>`, escapeLabel(n.formatCaption()), "</title>")
		w.putRect("gavel-box", layout.Rect{X: svgMargin, Y: y + 4, W: 10, H: 10}, 3)
		name := wrapText(n.label, 220, 12, 1)
		w.putText("gavel-row", svgMargin+20, y+13, name[0])
		actions := "(no actions)"
		if n.final {
			actions = "(final)"
		}
		if len(states[i]) > 0 {
			actions = strings.Join(states[i], ", ")
		}
		text := wrapText(actions, width-2*svgMargin-260, noteSize, 1)
		w.putText("gavel-row gavel-small", svgMargin+260, y+13, text[0])
		w.put("</g>\n")
		y += row
	}
	w.putText("gavel-row", svgMargin, y+13, last)
	w.put("\n</svg>\n")
}
