// Package demo implements gavel demo: an agent drives the real server over MCP, scene by scene, and every answer is
// checked. Only cmd/gavel may import it.
package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/term"
)

// Options configures a demo.
type Options struct {
	Part  string // "workflow", "evidence", "gateway" or "chain"
	Store string // path of the server's store
	// Kept reports that the store outlives the demo. The last lines then explain how to look at it.
	Kept    bool
	JSON    bool
	Version string   // of the client
	Env     []string // of the server
	Out     *term.Terminal
	// Tables returns the tables that show a history.
	Tables func(engine.HistoryResult) [][][]string
}

// Play starts a server, plays a part with it, and prints the transcript.
func Play(ctx context.Context, o Options) error {
	what := plays[o.Part]
	set, err := openStage(ctx, o.Part)
	if err != nil {
		return err
	}
	defer set.Close() //nolint:errcheck // already closed after a successful demo
	agent, err := startServer(ctx, o, set)
	if err != nil {
		return err
	}
	t := &transcript{Options: o, show: o.Out, StorePath: o.Store, Server: agent.server, Exchange: []Exchange{}}
	if o.JSON {
		t.show = term.New(io.Discard)
	}
	t.show.Printf("%s\n", t.show.Bold(what.headline))
	t.show.Printf("%s\n", t.show.Dim(fmt.Sprintf("%s %s over MCP %s, store %s", t.Server.Name, t.Server.Version, t.Server.Protocol, t.StorePath)))
	err = what.run(ctx, agent, set, t)
	if cerr := agent.close(); err == nil && cerr != nil {
		err = fmt.Errorf("the server did not exit cleanly: %w", cerr)
	}
	if err != nil {
		return t.fail(err, agent.log.String())
	}
	return errors.Join(t.finish(), set.Close())
}

func openStage(ctx context.Context, part string) (stage, error) {
	switch part {
	case "evidence":
		return OpenWorkshop()
	case "gateway":
		return OpenInfra()
	case "chain":
		return OpenShop()
	default:
		return StartModel(ctx)
	}
}

// Check plays a part against recorded answers. It returns an error for the first answer that is not as expected.
func Check(ctx context.Context, part string, recorded []Exchange) error {
	what := plays[part]
	if want := what.countScenes(); len(recorded) != want {
		return fmt.Errorf("%d answers for %d scenes", len(recorded), want)
	}
	silent := &transcript{show: term.New(io.Discard), Options: Options{Tables: func(engine.HistoryResult) [][][]string { return nil }}}
	return what.run(ctx, &recording{recorded}, noMoods{}, silent)
}

type recording struct{ rest []Exchange }

func (r *recording) call(_ context.Context, tool string, _ map[string]any) (answer, error) {
	e := r.rest[0]
	r.rest = r.rest[1:]
	if e.Tool != tool {
		return answer{}, fmt.Errorf("asked for %s, got the answer of %s", tool, e.Tool)
	}
	return newAnswer(e)
}

// noMoods is a performer without moods.
type noMoods struct{}

func (noMoods) Become(Mood) error { return nil }

// stage is the environment of the agent that a demo controls.
type stage interface {
	performer
	// settings returns the arguments and environment with which the server is started.
	settings() (arguments, environment []string)
	// folder returns the folder of the operator's files; "" for none.
	folder() string
	Close() error
}

// transcript is the output of the demo: line by line for people, or as a whole in JSON.
type transcript struct {
	Options `json:"-"`
	show    *term.Terminal // for people

	OK        bool             `json:"ok"`
	Error     string           `json:"error,omitempty"`
	Server    serverInfo       `json:"server"`
	StorePath string           `json:"store"`
	Exchange  []Exchange       `json:"exchange"`
	Decisions []map[string]any `json:"decisions"`

	instance string
}

// Exchange is a call with its answer.
type Exchange struct {
	Say       string          `json:"say"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	IsError   bool            `json:"isError"`
	Text      string          `json:"text"`
	Answer    json.RawMessage `json:"answer,omitempty"`
}

// printAnswer records an answer and prints it with its call.
func (t *transcript) printAnswer(a answer) {
	t.Exchange = append(t.Exchange, a.Exchange)
	decisions, _ := a.at("decisions").([]any)
	for _, d := range decisions {
		if entry, ok := d.(map[string]any); ok {
			t.Decisions = append(t.Decisions, entry)
		}
	}
	out := t.show
	if a.Tool == commandTool {
		out.Printf("    %s %s\n\n", out.Dim("$ gavel"), a.text("line"))
		out.Text(a.text("output"))
		return
	}
	out.Printf("    %s %s %s\n", out.Dim(">"), a.Tool, out.Dim(shortArguments(a.Exchange)))
	switch {
	case a.Tool == listTools:
		out.Printf("    %s %v of gavel's own, and of other servers: %s\n", out.Dim("<"), a.at("own"), cmp.Or(strings.Join(a.list("tools"), ", "), "none"))
	case a.Tool == killTool:
		out.Printf("    %s %s the server runs again\n", out.Dim("<"), out.Green("ok"))
	case strings.HasPrefix(a.Tool, "chain.") && !a.IsError:
		t.printRun(a)
	case a.Tool == "workflow.judge.history":
		out.Printf("\n")
		t.printDecisions(a)
	case isForeign(a.Tool) && a.text("error", "code") == "":
		word := out.Green("ok")
		if a.IsError {
			word = out.Red("failed")
		}
		out.Printf("    %s %s %s\n", out.Dim("<"), word, a.text("text"))
	case a.text("error", "code") != "":
		out.Printf("    %s %s %s\n", out.Dim("<"), out.Red("ERROR"), a.text("error", "code"))
		out.Printf("        - %s\n", longID().ReplaceAllString(a.text("error", "message"), "$1-..."))
		if hint := a.text("error", "hint"); isForeign(a.Tool) && hint != "" {
			out.Printf("        - %s\n", hint)
		}
	case a.IsError:
		out.Printf("    %s %s by %s, confidence %s, assurance %s\n", out.Dim("<"), out.Red("REJECTED"),
			describeDecider(a), fmt.Sprint(a.at("decision", "confidence")), a.text("decision", "assurance"))
		for _, v := range a.objections() {
			out.Printf("        - %s\n", v)
		}
		out.Printf("      still in state %s; next: %s\n", a.text("state"), strings.Join(a.list("nextActions"), ", "))
	default:
		out.Printf("    %s %s %s\n", out.Dim("<"), out.Green("ok"), summarize(a))
	}
}

// isForeign reports whether a tool belongs to another server.
func isForeign(tool string) bool { return strings.Contains(tool, "__") }

// summarize returns the important part of the answer to a successful call.
func summarize(a answer) string {
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
	} else if next := append(a.list("nextTools"), a.list("nextActions")...); len(next) > 0 {
		text += "; next: " + strings.Join(next, ", ")
	}
	if by := a.text("decision", "decidedBy"); by != "" {
		text += fmt.Sprintf(" (approved by %s, confidence %v, assurance %s)", describeDecider(a), a.at("decision", "confidence"), a.text("decision", "assurance"))
		if degraded, _ := a.at("decision", "degraded").(bool); degraded {
			text += ", DEGRADED"
		}
	}
	return text
}

func describeDecider(a answer) string {
	switch by := a.text("decision", "decidedBy"); by {
	case "policy", "fallback":
		return by
	default:
		return "the " + by + " layer"
	}
}

var definedName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"name":"[^"]*"`) })

// shortArguments returns the important part of the arguments.
func shortArguments(e Exchange) string {
	if e.Tool == "workflow.define" {
		return fmt.Sprintf(`{%s,"states":{...},...}`, definedName().FindString(string(e.Arguments)))
	}
	return longID().ReplaceAllString(string(e.Arguments), "$1-...")
}

// longID matches ids. The transcript shows each id in full when it first appears.
var longID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b(wf|cp|run|rev)-[0-9a-f-]{36}`) })

func (t *transcript) printDecisions(a answer) {
	var history engine.HistoryResult
	if err := json.NewDecoder(bytes.NewReader(a.Answer)).Decode(&history); err != nil {
		return // the check of the scene reports it
	}
	for i, rows := range t.Tables(history) {
		if i > 0 {
			t.show.Printf("\n")
		}
		t.show.Table(rows)
	}
}

func (t *transcript) finish() error {
	t.OK = true
	if t.JSON {
		return t.Out.JSON(t)
	}
	out := t.Out
	out.Printf("\n%s\n", out.Green("Everything was as it should be."))
	if t.Kept {
		out.Printf("\nThe store is kept. Look at it with\n\n")
		for _, command := range []string{"list", "show " + t.instance, "history " + t.instance} {
			out.Printf("    gavel instances %s --store %s\n", command, t.StorePath)
		}
		out.Printf("    gavel graph --instance %s --store %s\n", t.instance, t.StorePath)
	}
	return nil
}

func (t *transcript) fail(err error, serverLog string) error {
	t.Error = err.Error()
	f := &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("the demo failed: %w", err)}
	if serverLog != "" {
		f.Lines = append([]string{"the server wrote:"}, strings.Split(strings.TrimSpace(serverLog), "\n")...)
	}
	if t.JSON {
		return errors.Join(f, t.Out.JSON(t))
	}
	return f
}
