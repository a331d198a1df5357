package replay

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// About is the head of a rendered report: what was judged, and what was changed.
type About struct {
	Store string `json:"store,omitempty"`
	// Changed says what is otherwise than it was, a phrase each; none: nothing is.
	Changed []string `json:"changed"`
	// Answers says where the model's answers come from.
	Answers string `json:"answers,omitempty"`
	// Selected says which decisions, a phrase each; none: all.
	Selected []string `json:"selected"`
}

// none stands where there is nothing to show.
const none = "-"

// grid is a table with its title.
type grid struct {
	title string
	head  []string
	rows  [][]string
}

// figures are the head and the sums of a report.
func (r Report) figures(a About) [][2]string {
	lines := [][2]string{{"store", cmp.Or(a.Store, none)}, {"selected", cmp.Or(strings.Join(a.Selected, ", "), "all decisions")}}
	add := func(name, format string, args ...any) {
		lines = append(lines, [2]string{name, fmt.Sprintf(format, args...)})
	}
	add("changed", "%s", cmp.Or(strings.Join(a.Changed, ", "), "nothing"))
	add("model answers", "%s", cmp.Or(a.Answers, none))
	add("new approvals", "%d (rejected or escalated then)", r.NewApprovals)
	add("other target", "%d (approved then and now, to another state)", r.Rerouted)
	add("new refusals", "%d (approved then)", r.NewRefusals)
	add("other refusals", "%d (rejected then and escalated now, or the other way)", r.OtherRefusals)
	add("same outcome", "%d, of which %d for another reason", r.Same, r.OtherReason)
	add("decisions", "%d, of which %d were only asked", r.Decisions, r.AskedOnly)
	add("judged again", "%d, not judged again %d", r.Replayed, r.Decisions-r.Replayed)
	if n := r.Answers; n.Recorded+n.Asked > 0 {
		add("answers", "%d recorded, %d asked now", n.Recorded, n.Asked)
	}
	return lines
}

func (s Shadow) figures(a About) [][2]string {
	return [][2]string{
		{"store", cmp.Or(a.Store, none)},
		{"selected", cmp.Or(strings.Join(a.Selected, ", "), "all decisions")},
		{"in shadow mode", strconv.FormatInt(s.Decisions, 10)},
		{"would approve", strconv.FormatInt(s.WouldApprove, 10)},
		{"would reject", strconv.FormatInt(s.WouldReject, 10)},
		{"would escalate", strconv.FormatInt(s.WouldEscalate, 10)},
		{"applied anyway", fmt.Sprintf("%d (moves that would not have been approved)", s.AppliedAnyway)},
	}
}

// tables are the parts of a report after the flips.
func (r Report) tables() []grid {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	changes := grid{title: "Other outcomes by reason", head: []string{"workflow", "action", "then", "for", "now", "for", "count"}}
	for _, c := range r.Changes {
		changes.rows = append(changes.rows, []string{c.Workflow, cmp.Or(c.Action, "start"), string(c.Before), c.BeforeReason, string(c.After), c.AfterReason, number(c.Count)})
	}
	flows := grid{title: "By workflow", head: []string{"workflow", "decisions", "judged again", "same", "new approvals", "other target", "new refusals", "other refusals"}}
	for _, w := range r.Workflows {
		flows.rows = append(flows.rows, []string{
			w.Workflow, number(w.Decisions), number(w.Replayed), number(w.Same), number(w.NewApprovals), number(w.Rerouted), number(w.NewRefusals), number(w.OtherRefusals),
		})
	}
	left := grid{title: "Not judged again", head: []string{"workflow", "reason", "count", "because", "first"}}
	for _, u := range r.NotReplayed {
		says := u.Says
		if u.Detail != "" {
			says += ": " + u.Detail
		}
		left.rows = append(left.rows, []string{u.Workflow, u.Reason, number(u.Count), says, u.First})
	}
	gates := grid{title: "Limits", head: []string{"limit", "", "at most", "is"}}
	for _, g := range r.Gates {
		verdict := "kept"
		if !g.Passed {
			verdict = "BROKEN"
		}
		gates.rows = append(gates.rows, []string{g.Name, verdict, strconv.FormatFloat(g.Limit, 'g', 4, 64), strconv.FormatFloat(g.Value, 'g', 4, 64)})
	}
	return []grid{changes, flows, left, r.Shadow.table(), gates}
}

func (s Shadow) table() grid {
	t := grid{title: "Shadow mode: what would have been decided", head: []string{"workflow", "action", "would be", "for", "count", "applied"}}
	for _, c := range s.Rows {
		t.rows = append(t.rows, []string{c.Workflow, cmp.Or(c.Action, "start"), string(c.Outcome), c.Reason, strconv.FormatInt(c.Count, 10), strconv.FormatInt(c.Applied, 10)})
	}
	return t
}

// verdict is the report in one sentence.
func (r Report) verdict() string {
	switch {
	case r.Regression:
		return fmt.Sprintf("Regression: %d new approvals, %d other outcomes in all.", r.NewApprovals, r.Flips)
	case !r.Evaluated:
		return "Not evaluated: " + r.NotEvaluated + "."
	case r.Replayed == 0:
		return "Nothing was judged again."
	case r.Flips == 0:
		return "Every decision that was judged again came out the same."
	}
	return fmt.Sprintf("%d of %d came out otherwise, %d of them are new approvals.", r.Flips, r.Replayed, r.NewApprovals)
}

// line names a flip.
func (f Flip) line() string {
	text := fmt.Sprintf("%s event %d, %s of %s v%d", f.Instance, f.Seq, cmp.Or(f.Action, "start"), f.Workflow, f.Version)
	if f.State != "" {
		text += " in " + f.State
	}
	text += fmt.Sprintf(": %s -> %s", f.Before.Outcome, f.After.Outcome)
	if f.Before.Outcome == f.After.Outcome {
		text += fmt.Sprintf(" (to %s, was %s)", f.After.Target, f.Before.Target)
	}
	switch {
	case f.Precheck:
		text += " (asked only)"
	case f.Applied && f.Before.Outcome != "approve":
		text += " (applied all the same, in shadow mode)"
	}
	return text
}

func (s Side) line() string {
	return fmt.Sprintf("%s (%.2f): %s", s.reason(), s.Confidence, cmp.Or(s.Reasoning, none))
}

// sections are the listed flips by direction, with a title each.
func (r Report) sections() (titles []string, flips [][]Flip) {
	names := [directions]string{"New approvals", "To another state", "New refusals", "Other refusals"}
	sorted := [directions][]Flip{}
	for _, f := range r.Listed {
		how, _ := compareSides(f.Before, f.After)
		sorted[how] = append(sorted[how], f)
	}
	for how, name := range names {
		if len(sorted[how]) > 0 {
			titles, flips = append(titles, name), append(flips, sorted[how])
		}
	}
	return titles, flips
}

// Text writes a report for a terminal.
func Text(w io.Writer, a About, r Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.verdict())
	textFigures(&b, r.figures(a))
	titles, flips := r.sections()
	for i, title := range titles {
		fmt.Fprintf(&b, "\n%s\n", title)
		for _, f := range flips[i] {
			fmt.Fprintf(&b, "  %s\n    then: %s\n    now:  %s\n", oneLine(f.line()), oneLine(f.Before.line()), oneLine(f.After.line()))
		}
	}
	if r.ListedLeftOut > 0 {
		fmt.Fprintf(&b, "\n  and %d more\n", r.ListedLeftOut)
	}
	for _, t := range r.tables() {
		textTable(&b, t)
	}
	textNotes(&b, r.Notes)
	_, err := io.WriteString(w, b.String())
	return err
}

// TextShadow writes what was decided in shadow mode for a terminal.
func TextShadow(w io.Writer, a About, s Shadow) error {
	var b strings.Builder
	textFigures(&b, s.figures(a))
	textTable(&b, s.table())
	_, err := io.WriteString(w, b.String())
	return err
}

func textFigures(b *strings.Builder, lines [][2]string) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		_, _ = fmt.Fprintf(t, "%s\t%s\n", l[0], oneLine(l[1])) // a Builder takes everything
	}
	_ = t.Flush()
}

func textTable(b *strings.Builder, g grid) {
	if len(g.rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", g.title)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{g.head}, g.rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = oneLine(cell)
		}
		_, _ = fmt.Fprintf(t, "  %s\n", strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	_ = t.Flush()
}

func textNotes(b *strings.Builder, notes []string) {
	if len(notes) > 0 {
		b.WriteString("\nNotes\n")
	}
	for _, n := range notes {
		fmt.Fprintf(b, "  - %s\n", oneLine(n))
	}
}

// Markdown writes a report for a review or a wiki. What comes from records is escaped: it
// makes no heading, link, image or HTML.
func Markdown(w io.Writer, a About, r Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Decisions judged again\n\n%s\n\n", mdText(r.verdict()))
	mdFigures(&b, r.figures(a))
	titles, flips := r.sections()
	for i, title := range titles {
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		for _, f := range flips[i] {
			fmt.Fprintf(&b, "- %s\n  - then: %s\n  - now: %s\n", mdText(f.line()), mdText(f.Before.line()), mdText(f.After.line()))
		}
	}
	if r.ListedLeftOut > 0 {
		fmt.Fprintf(&b, "\nand %d more\n", r.ListedLeftOut)
	}
	for _, t := range r.tables() {
		mdTable(&b, t)
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n## Notes\n\n")
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", mdText(n))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// MarkdownShadow is TextShadow as Markdown.
func MarkdownShadow(w io.Writer, a About, s Shadow) error {
	var b strings.Builder
	b.WriteString("# Decisions in shadow mode\n\n")
	mdFigures(&b, s.figures(a))
	mdTable(&b, s.table())
	_, err := io.WriteString(w, b.String())
	return err
}

func mdFigures(b *strings.Builder, lines [][2]string) {
	b.WriteString("| | |\n| --- | --- |\n")
	for _, l := range lines {
		fmt.Fprintf(b, "| %s | %s |\n", mdText(l[0]), mdText(l[1]))
	}
}

func mdTable(b *strings.Builder, g grid) {
	if len(g.rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", g.title)
	for i, row := range append([][]string{g.head}, g.rows...) {
		for _, cell := range row {
			b.WriteString("| " + mdText(cell) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("| --- ", len(row)) + "|\n")
		}
	}
}

// oneLine keeps words of others from making lines or columns of their own.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

var mdEscapes = strings.NewReplacer(
	"\\", "\\\\", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "]", "\\]", "|", "\\|",
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "#", "\\#", "~", "\\~", "!", "\\!", "$", "\\$", "@", "&#64;", "://", "&#58;//", "www.", "www&#46;",
)

// mdText is one line of text that means only itself.
func mdText(s string) string { return mdEscapes.Replace(oneLine(s)) }
