package measure

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/modules/measure/label"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

type labelCommand struct {
	Paths  []string `arg:"" name:"path" help:"Files of cases, or folders with .jsonl files. Expect, label and split may be absent."`
	By     string   `name:"by" required:"" placeholder:"NAME" help:"Who labels."`
	Labels string   `name:"labels" required:"" placeholder:"FILE" help:"The file for this person's labels. An existing file is continued."`
	Settle []string `name:"settle" placeholder:"FILE" help:"Ask only about cases on which two files of labels disagree, and show both labels. Give it twice."`
}

func (labelCommand) Help() string {
	return `Shows one case at a time, as a judge would see it, and records your label. The case's id, tags and
label are hidden, and so are the labels of others. Each person gets the cases in a different order.
Lines are read from stdin:

` + labelWords + `
Examples:

    gavel eval label cases.jsonl --by ada --labels ada.labels
    gavel eval label cases.jsonl --by bob --labels bob.labels
    gavel eval agree cases.jsonl --labels ada.labels --labels bob.labels
    gavel eval label cases.jsonl --by eve --labels eve.labels --settle ada.labels --settle bob.labels

Exit codes: 0 the input ended, 2 wrong usage, 3 could not find out.`
}

const labelWords = `    a WHY            approve: every criterion is met
    r c2 c3 WHY      reject: these criteria are not met
    e c1 WHY         escalate: only a person can judge these criteria
    :back, :skip     the previous case; the next one, without a label
    :show            the case again
    :help, :quit
`

// labelSession is the session of one person who labels.
type labelSession struct {
	con    *cli.Console
	by     string
	file   *os.File
	labels label.Labels
	cases  []labelCase
	at     int // index in cases; len(cases) at the end
}

type labelCase struct {
	eval.Golden
	definition *workflow.Definition
	criteria   []string
	said       []label.Labelling // the two labels that this person decides between
}

func (c *labelCommand) Run(ctx context.Context, con *cli.Console) error {
	if len(c.Settle) != 0 && len(c.Settle) != 2 {
		return term.UsageErrorf("", "--settle names %s; give it twice, with the labels of two people", term.Count(len(c.Settle), "file"))
	}
	cases, err := readUnlabelled(ctx, c.Paths)
	if err != nil {
		return err
	}
	mine, err := readLabels(c.Labels)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if mine.By != "" && mine.By != c.By {
		return term.UsageErrorf("use a separate file for each person", "%s has the labels of %q", c.Labels, mine.By)
	}
	if mine.Of == nil {
		mine.Of = map[string]label.Labelling{}
	}
	session := &labelSession{con: con, by: c.By, labels: mine}
	if err := session.chooseCases(cases, c.Settle); err != nil {
		return err
	}
	if session.file, err = os.OpenFile(c.Labels, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return term.UsageErrorf("", "cannot write the labels: %w", err)
	}
	err = session.run(ctx)
	if closed := session.file.Close(); err == nil && closed != nil {
		err = term.UnknownErrorf("", "cannot write the labels: %w", closed)
	}
	return err
}

// chooseCases selects the cases to label, in an order that is specific to the person. It starts at the first case
// without a label.
func (s *labelSession) chooseCases(cases []eval.Golden, settle []string) error {
	said := map[string][]label.Labelling{}
	if len(settle) == 2 {
		agreement, _, err := compareLabels(cases, settle)
		if err != nil {
			return err
		}
		for _, dispute := range agreement.Disputes {
			said[dispute.Case] = dispute.Said[:]
		}
	}
	done, definitions := 0, NewDefinitionCache()
	var rest []labelCase
	for _, g := range cases {
		if len(settle) == 2 && said[g.ID] == nil {
			continue
		}
		d := definitions.Find(g.File, g.Workflow)
		if d.Err != nil {
			return term.UsageErrorf("", "%s:%d: %w", g.File, g.Line, d.Err)
		}
		one := labelCase{g, d.Definition, d.Criteria[g.State][g.Action], said[g.ID]}
		if _, labelled, _ := s.labels.LabelOf(g.Case); labelled {
			s.cases = append(s.cases, one)
			done++
			continue
		}
		rest = append(rest, one)
	}
	place := func(c labelCase) string {
		sum := sha256.Sum256([]byte(s.by + "\x00" + c.ID))
		return string(sum[:])
	}
	slices.SortFunc(rest, func(a, b labelCase) int { return cmp.Compare(place(a), place(b)) })
	s.cases, s.at = append(s.cases, rest...), done
	if done > 0 {
		s.con.Err.Printf("gavel: %d of %s already labelled\n", done, term.Count(len(s.cases), "case"))
	}
	return nil
}

func (s *labelSession) run(ctx context.Context) error {
	if s.at == len(s.cases) {
		s.con.Out.Printf("%s\n", s.describeRest())
		return nil
	}
	s.con.Out.Text(labelWords)
	s.show()
	return s.con.Converse(ctx, "> ", func(line string) (done bool, err error) {
		switch word, _, _ := strings.Cut(line, " "); {
		case word == "":
			return false, nil
		case word == ":quit":
			return true, nil
		case word == ":help":
			s.con.Out.Text(labelWords)
			return false, nil
		case word == ":back":
			s.at = max(0, s.at-1)
		case word == ":skip":
			s.at++
		case word == ":show":
		case strings.HasPrefix(word, ":"):
			s.con.Out.Printf("unknown command %s; :help lists the commands\n", word)
			return false, nil
		default:
			answer, problem := s.parseLabel(line)
			if problem != "" {
				s.con.Out.Printf("%s\n", problem)
				return false, nil
			}
			if err := s.write(answer); err != nil {
				return true, err
			}
			s.at++
		}
		if s.at == len(s.cases) {
			s.con.Out.Printf("that was the last one; %s\n", s.describeRest())
			return true, nil
		}
		s.show()
		return false, nil
	})
}

func (s *labelSession) describeRest() string {
	left := 0
	for _, c := range s.cases {
		if _, labelled, _ := s.labels.LabelOf(c.Case); !labelled {
			left++
		}
	}
	if left == 0 {
		return "nothing is left to label"
	}
	return term.Count(left, "case") + " without a label"
}

func (s *labelSession) write(answer label.Labelling) error {
	line, err := json.Marshal(answer)
	if err == nil {
		_, err = s.file.Write(append(line, '\n'))
	}
	if err != nil {
		return term.UnknownErrorf("", "cannot write the label: %w", err)
	}
	s.labels.Of[answer.Case] = answer
	return nil
}

var labelOutcomes = map[string]judge.Outcome{
	"a": judge.Approve, "approve": judge.Approve, "r": judge.Reject, "reject": judge.Reject, "e": judge.Escalate, "escalate": judge.Escalate,
}

// parseLabel parses a person's label of the current case.
func (s *labelSession) parseLabel(line string) (answer label.Labelling, problem string) {
	c := s.cases[s.at]
	words := strings.Fields(line)
	outcome, known := labelOutcomes[strings.ToLower(words[0])]
	if !known {
		return answer, fmt.Sprintf("%q is not an outcome; begin with a, r or e, or see :help", words[0])
	}
	answer = label.Labelling{Case: c.ID, Content: eval.ContentOf(c.Case), By: s.by, Outcome: outcome, Criteria: map[string]string{}}
	criteria := c.criteria
	status := map[judge.Outcome]string{judge.Reject: "not_met", judge.Escalate: "cannot_assess"}[outcome]
	for words = words[1:]; len(words) > 0; words = words[1:] {
		id, n := record.ParseCriterion(words[0])
		if id == "" {
			break
		}
		switch {
		case n < 1 || n > len(criteria):
			return answer, fmt.Sprintf("there is no criterion %s; the case has %d", id, len(criteria))
		case outcome == judge.Approve:
			return answer, "an approval meets every criterion; leave " + id + " out"
		}
		answer.Criteria[id] = status
	}
	if outcome == judge.Approve {
		for i := range criteria {
			answer.Criteria["c"+strconv.Itoa(i+1)] = "met"
		}
	}
	answer.Why = strings.Join(words, " ")
	return answer, ""
}

func (s *labelSession) show() {
	c, out := s.cases[s.at], s.con.Out
	out.Printf("\n%s\n", out.Bold(fmt.Sprintf("case %d of %d", s.at+1, len(s.cases))))
	def := c.definition
	out.Printf("%q asked for in %q of the workflow %q\n", c.Action, c.State, def.Name)
	if from := def.States[c.State]; from != nil && from.Transitions[c.Action] != nil && from.Transitions[c.Action].Description != "" {
		out.PrintBlock(from.Transitions[c.Action].Description)
	}
	out.Printf("%s\n", out.Bold("criteria"))
	for i, text := range c.criteria {
		out.PrintBlock(fmt.Sprintf("c%d: %s", i+1, text))
	}
	if len(c.History) > 0 {
		out.Printf("%s\n", out.Bold("path so far"))
		for _, step := range c.History {
			out.PrintBlock(fmt.Sprintf("%s by %s, to %s", step.Action, cmp.Or(step.By, "somebody"), step.State))
		}
	}
	out.Printf("%s\n", out.Bold("context"))
	out.PrintBlock(term.IndentJSON(orEmpty(c.Context)))
	for _, name := range slices.Sorted(maps.Keys(c.Evidence)) {
		out.Printf("%s\n", out.Bold("evidence "+name+", fetched by the gate"))
		out.PrintContent(c.Evidence[name])
	}
	out.Printf("%s\n", out.Bold("data"))
	out.PrintBlock(term.IndentJSON(orEmpty(c.Data)))
	for _, l := range c.said {
		out.Printf("label of %s: %s\n", l.By, out.Outcome(describeLabel(l)))
	}
	if mine, labelled, changed := s.labels.LabelOf(c.Case); labelled {
		out.Printf("your label: %s; enter another one to change it\n", out.Outcome(describeLabel(mine)))
	} else if changed {
		out.Printf("the case changed after you labelled it\n")
	}
}

func orEmpty(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return json.RawMessage("{}")
	}
	return doc
}

func describeLabel(l label.Labelling) string {
	text := string(l.Outcome)
	if l.Outcome != judge.Approve && len(l.Criteria) > 0 {
		text += " for " + strings.Join(slices.Sorted(maps.Keys(l.Criteria)), ", ")
	}
	if l.Why != "" {
		text += ": " + l.Why
	}
	return text
}

// readUnlabelled reads all questions; labels may be absent. Equal ones count once, such as those on which persons
// disagreed.
func readUnlabelled(ctx context.Context, paths []string) ([]eval.Golden, error) {
	files, err := GoldenFiles(paths)
	if err != nil {
		return nil, err
	}
	var out []eval.Golden
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, term.UnknownErrorf("", "cannot read the cases: %w", err)
		}
		for g, err := range label.ReadCases(file, bytes.NewReader(text)) {
			if err := cmp.Or(ctx.Err(), err); err != nil {
				return nil, term.UsageErrorf("", "%w", err)
			}
			content := eval.ContentOf(g.Case)
			if seen[g.ID] {
				return nil, term.UsageErrorf("give every case a unique id", "%s:%d: duplicate case %q", file, g.Line, g.ID)
			}
			if !seen[content] { // a question is asked once
				out = append(out, g)
			}
			seen[g.ID], seen[content] = true, true
		}
	}
	if len(out) == 0 {
		return nil, term.UsageErrorf("each line is a case; docs/evaluation.md lists every key", "there are no cases in %s", strings.Join(paths, " "))
	}
	return out, nil
}

func readLabels(path string) (label.Labels, error) {
	f, err := os.Open(path)
	if err != nil {
		return label.Labels{}, term.UsageErrorf("", "cannot read the labels: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	labels, err := label.ReadLabels(path, f)
	if err != nil {
		return label.Labels{}, term.UsageErrorf("", "%w", err)
	}
	return labels, nil
}

// compareLabels compares two files of labels.
func compareLabels(cases []eval.Golden, files []string) (label.Agreement, [2]label.Labels, error) {
	var of [2]label.Labels
	for i, file := range files {
		var err error
		if of[i], err = readLabels(file); err != nil {
			return label.Agreement{}, of, err
		}
	}
	if of[0].By == of[1].By {
		return label.Agreement{}, of, term.UsageErrorf("give the labels of two people", "%s and %s are both by %q", files[0], files[1], of[0].By)
	}
	plain := make([]eval.Case, len(cases))
	for i, g := range cases {
		plain[i] = g.Case
	}
	return label.Agree(plain, of[0], of[1]), of, nil
}

type agreeCommand struct {
	Paths   []string `arg:"" name:"path" help:"The files of cases that were labelled."`
	Labels  []string `name:"labels" required:"" placeholder:"FILE" help:"One person's labels. Give it twice."`
	Settled string   `name:"settled" placeholder:"FILE" help:"The labels of a third person for cases on which the two disagree."`
	Out     string   `name:"out" placeholder:"FILE" help:"Write the cases with an agreed or settled label to this file, as golden cases."`
	JSON    bool     `name:"json" help:"Print JSON."`
}

func (agreeCommand) Help() string {
	return `Measures how far two people agree (Cohen's kappa with its interval), and lists the cases on which
they disagree. --out writes the other cases as golden cases. label.source is human if both agree,
and adjudicated if --settled has a label. Cases without a split get one by group.

Examples:

    gavel eval agree cases.jsonl --labels ada.labels --labels bob.labels
    gavel eval agree cases.jsonl --labels ada.labels --labels bob.labels --settled eve.labels --out golden.jsonl

Exit codes: 0 every case has a label, 1 cases are left without one, 2 wrong usage, 3 could not find out.`
}

type agreeReport struct {
	label.Agreement
	Settled int `json:"settled"`
	Merged  int `json:"merged"` // cases whose label is agreed on or settled
}

func (c *agreeCommand) Run(ctx context.Context, con *cli.Console) error {
	if len(c.Labels) != 2 {
		return term.UsageErrorf("", "--labels names %s; give it twice, with the labels of two people", term.Count(len(c.Labels), "file"))
	}
	cases, err := readUnlabelled(ctx, c.Paths)
	if err != nil {
		return err
	}
	read := append([]string{c.Settled}, c.Labels...)
	for _, g := range cases {
		read = appendNew(read, g.File)
	}
	if err := checkOverwrite([]string{c.Out}, read...); err != nil {
		return err
	}
	agreement, of, err := compareLabels(cases, c.Labels)
	if err != nil {
		return err
	}
	var settled label.Labels
	if c.Settled != "" {
		if settled, err = readLabels(c.Settled); err != nil {
			return err
		}
	}
	report := agreeReport{Agreement: agreement}
	var lines bytes.Buffer
	for _, g := range cases {
		merged, ok := label.Merge(g.Case, of[0], of[1], settled)
		if !ok {
			continue
		}
		report.Merged++
		if merged.Label.Source == "adjudicated" {
			report.Settled++
		}
		if merged.Workflow, err = moveReference(g.File, c.Out, merged.Workflow); err != nil {
			return err
		}
		line, err := json.Marshal(merged)
		if err != nil {
			return term.UnknownErrorf("", "write case %s: %w", merged.ID, err)
		}
		lines.Write(append(line, '\n'))
	}
	if c.Out != "" {
		if err := os.WriteFile(c.Out, lines.Bytes(), 0o600); err != nil {
			return term.UnknownErrorf("", "cannot write the cases: %w", err)
		}
	}
	err = con.Print(c.JSON, report, func() { printAgreement(con, report, settled, len(cases)) })
	if err == nil && report.Merged < len(cases) {
		err = term.ErrBad
	}
	return err
}

// moveReference rewrites a reference to a definition so that it is relative to another file.
func moveReference(from, to string, workflow json.RawMessage) (json.RawMessage, error) {
	var ref struct {
		Ref string `json:"ref"`
	}
	if json.Unmarshal(workflow, &ref) != nil || ref.Ref == "" || to == "" {
		return workflow, nil
	}
	file, name, named := strings.Cut(ref.Ref, "#")
	base, err := filepath.Abs(filepath.Dir(to))
	if err != nil {
		return nil, term.UnknownErrorf("", "--out %s: %w", to, err)
	}
	target, err := filepath.Abs(filepath.Join(filepath.Dir(from), filepath.FromSlash(file)))
	if err == nil {
		target, err = filepath.Rel(base, target)
	}
	if err != nil {
		return nil, term.UsageErrorf("", "--out %s: there is no relative path to the definition %s: %w", to, file, err)
	}
	ref.Ref = filepath.ToSlash(target)
	if named {
		ref.Ref += "#" + name
	}
	return json.Marshal(ref)
}

func printAgreement(con *cli.Console, r agreeReport, settled label.Labels, cases int) {
	out := con.Out
	out.Printf("%s and %s have both labelled %d of %s, in %s", r.By[0], r.By[1], r.Cases, term.Count(cases, "case"), term.Count(r.Groups, "group"))
	if r.Changed > 0 {
		out.Printf("; %d changed after they were labelled", r.Changed)
	}
	out.Printf("\n")
	out.Text(term.Align(r.Figures()))
	if r.Groups < 30 && r.Cases > 0 {
		out.Printf("with fewer than 30 groups the interval can miss the truth more often than its level allows\n")
	}
	for i, d := range r.Disputes {
		if i == 0 {
			out.Printf("\n%s\n", out.Bold("disagreements"))
		}
		out.Printf("%s\n", d.Case)
		said := d.Said[:]
		if third, ok := settled.Of[d.Case]; ok {
			said = append(said, third)
		}
		for _, l := range said {
			out.Printf("  %s: %s\n", l.By, out.Outcome(describeLabel(l)))
		}
	}
	out.Printf("\n%s: %d agreed on, %d settled, %d without a label\n", term.Count(cases, "case"), r.Merged-r.Settled, r.Settled, cases-r.Merged)
}
