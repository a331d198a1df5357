package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
)

func (t *transcript) begin(headline string) {
	t.Exchange = []exchange{}
	if t.quiet {
		return
	}
	t.con.out.Printf("%s\n", t.con.out.Bold(headline))
	t.con.out.Printf("%s\n", t.con.out.Dim(fmt.Sprintf("%s %s over MCP %s, store %s", t.Server.Name, t.Server.Version, t.Server.Protocol, t.Store)))
}

// act announces a part of the demo.
func (t *transcript) act(title string) {
	if !t.quiet {
		t.con.out.Printf("\n%s\n", t.con.out.Bold(title))
	}
}

// ask announces a scene.
func (t *transcript) ask(number int, s scene) {
	if !t.quiet {
		t.con.out.Printf("\n%2d. %s\n", number, t.con.out.Bold(s.say))
	}
}

// hear records an answer and prints the call with it.
func (t *transcript) hear(a answer) {
	t.Exchange = append(t.Exchange, a.exchange)
	if decisions, ok := a.at("decisions").([]any); ok {
		t.keepDecisions(decisions)
	}
	if t.quiet {
		return
	}
	out := t.con.out
	out.Printf("    %s %s %s\n", out.Dim(">"), a.Tool, out.Dim(shortArguments(a.exchange)))
	switch {
	case a.Tool == "workflow.judge.history":
		out.Printf("\n")
		t.printDecisions(a)
	case a.text("error", "code") != "":
		out.Printf("    %s %s %s\n", out.Dim("<"), out.Red("ERROR"), a.text("error", "code"))
		out.Printf("        - %s\n", a.text("error", "message"))
	case a.IsError:
		out.Printf("    %s %s by %s, confidence %s, assurance %s\n", out.Dim("<"), out.Red("REJECTED"),
			decider(a), fmt.Sprint(a.at("decision", "confidence")), a.text("decision", "assurance"))
		for _, v := range a.list("decision", "violations") {
			out.Printf("        - %s\n", v)
		}
		out.Printf("      still in state %s; next: %s\n", a.text("state"), strings.Join(a.list("nextActions"), ", "))
	default:
		out.Printf("    %s %s %s\n", out.Dim("<"), out.Green("ok"), summary(a))
	}
}

// summary is what matters in the answer of a call that went through.
func summary(a answer) string {
	switch a.Tool {
	case "workflow.define":
		return fmt.Sprintf("version %v, starts in state %s", a.at("version"), a.text("initialState"))
	case "workflow.judge.config":
		return a.text("message")
	case "workflow.checkpoint":
		return "checkpoint " + a.text("checkpointId")
	}
	text := "now in state " + a.text("state")
	if a.Tool == "workflow.start" {
		text = a.text("id") + " is in state " + a.text("state")
	}
	if complete, _ := a.at("complete").(bool); complete {
		text += ", complete"
	} else if next := a.list("nextActions"); len(next) > 0 {
		text += "; next: " + strings.Join(next, ", ")
	}
	if by := a.text("decision", "decidedBy"); by != "" {
		text += fmt.Sprintf(" (approved by %s, confidence %v, assurance %s)", decider(a), a.at("decision", "confidence"), a.text("decision", "assurance"))
		if degraded, _ := a.at("decision", "degraded").(bool); degraded {
			text += ", DEGRADED"
		}
	}
	return text
}

// decider is who settled it.
func decider(a answer) string {
	switch by := a.text("decision", "decidedBy"); by {
	case "policy", "fallback":
		return by
	default:
		return "the " + by + " layer"
	}
}

// definedName is what a reader needs of a definition.
var definedName = regexp.MustCompile(`"name":"[^"]*"`)

// shortArguments shows what a reader needs of the arguments.
func shortArguments(e exchange) string {
	if e.Tool == "workflow.define" {
		return fmt.Sprintf(`{%s,"states":{...},...}`, definedName.FindString(string(e.Arguments)))
	}
	return longID.ReplaceAllString(string(e.Arguments), "$1-...")
}

// longID is an id; the transcript shows each where it comes up first.
var longID = regexp.MustCompile(`\b(wf|cp)-[0-9a-f-]{36}`)

func (t *transcript) keepDecisions(decisions []any) {
	for _, d := range decisions {
		if entry, ok := d.(map[string]any); ok {
			t.Decisions = append(t.Decisions, entry)
		}
	}
}

func (t *transcript) printDecisions(a answer) {
	var history engine.HistoryResult
	if err := json.NewDecoder(bytes.NewReader(a.Answer)).Decode(&history); err != nil {
		return // the check of the scene says so
	}
	t.con.out.Table(decisionRows(history.Decisions))
	var fetched []fetchedFor
	for _, d := range history.Decisions {
		for _, e := range d.Evidence {
			fetched = append(fetched, fetchedFor{d.Seq, d.Action, e})
		}
	}
	if len(fetched) > 0 {
		t.con.out.Printf("\n")
		t.con.out.Table(fetchedRows(fetched))
	}
}

// end prints the close of a demo that went as it should.
func (t *transcript) end(kept bool) error {
	t.OK = true
	if t.quiet {
		return t.con.out.JSON(t)
	}
	out := t.con.out
	out.Printf("\n%s\n", out.Green("Everything was as it should be."))
	if kept {
		out.Printf("\nThe store is kept. Look at it with\n\n")
		for _, command := range []string{"list", "show " + t.instance, "history " + t.instance} {
			out.Printf("    gavel instances %s --store %s\n", command, t.Store)
		}
		out.Printf("    gavel graph --instance %s --store %s\n", t.instance, t.Store)
	}
	return nil
}

// fail reports an answer that was not as it should be.
func (t *transcript) fail(err error, serverLog string) error {
	t.Error = err.Error()
	f := &term.Failure{Code: term.ExitBad, Err: fmt.Errorf("the demo did not go as it should: %w", err)}
	if serverLog != "" {
		f.Lines = append([]string{"the server wrote:"}, strings.Split(strings.TrimSpace(serverLog), "\n")...)
	}
	if t.quiet {
		return errors.Join(f, t.con.out.JSON(t))
	}
	return f
}
