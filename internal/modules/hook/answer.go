package hook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
	"github.com/gavel-mcp/gavel/internal/term"
)

// answerCommand implements gavel hook CLIENT.
type answerCommand struct {
	Client string `arg:"" name:"client" help:"The coding agent that asks."`
	// Limit only declares --limit for the parser and the help. readArguments reads its value.
	Limit     time.Duration    `name:"limit" default:"60s" placeholder:"DURATION" help:"How long the client waits for a hook (60s). gavel answers a tenth earlier, at least a second."`
	Role      string           `name:"role" enum:"agent,reviewer,operator,auditor" default:"agent" section:"mcp" placeholder:"ROLE" help:"The agent's role: agent (default), reviewer, operator or auditor."`
	Principal string           `name:"principal" section:"mcp" placeholder:"ID" help:"The agent's name in the record, without a colon except after local:. Default: local: and the role."`
	Judging   cli.JudgingFlags `embed:""`
}

func (answerCommand) Help() string {
	return `The client starts it for each event; gavel hook install writes that into the client's settings.
Give it the configuration and the principal that gavel mcp has, so that the agent can advance the
workflows that its tools begin. Where gavel has nothing to decide, the client's own rules apply. gavel
denies whatever it should have decided and could not.

Examples:

    gavel hook claude-code --config gavel.yaml < event.json
    gavel hook cursor --server http://127.0.0.1:4285 --token-file hooks.token < event.json

Exit codes: those that the client expects; 2, which every client treats as a denial, if the event
cannot be read.`
}

// defaultHookLimit is the time limit of a hook if the client's limit is unknown.
const defaultHookLimit = time.Minute

// hookMargin returns how long before the client's limit gavel stops deciding.
func hookMargin(limit time.Duration) time.Duration { return min(max(limit/10, time.Second), limit/2) }

const hookGrace = 300 * time.Millisecond

// readArguments returns the adapter of the client whose event a command line answers, and the client's time limit.
// It works even if the rest of the line is invalid. For any other command, the adapter is nil.
func readArguments(args []string) (adapter *agent.Adapter, limit time.Duration) {
	limit = defaultHookLimit
	if len(args) < 2 || args[0] != "hook" || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return nil, limit
	}
	for i, arg := range args[1:] {
		name, value, ok := strings.Cut(arg, "=")
		if !ok && i+2 < len(args) {
			value = args[i+2]
		}
		switch given, err := time.ParseDuration(value); {
		case name == "--limit" && err == nil && given > 0:
			limit = given
		case adapter == nil && slices.Contains([]string{"install", "uninstall", "trust", "doctor"}, arg):
			return nil, limit
		case adapter == nil:
			adapter, _ = agent.FindAdapter(arg)
		}
	}
	return adapter, limit
}

// guard returns a function that runs gavel hook CLIENT, or nil for any other command. Even if the command fails,
// crashes or hangs, the client gets an answer in its own format and within its time limit.
func guard(args []string) module.Guard {
	adapter, limit := readArguments(args)
	if adapter == nil {
		return nil
	}
	return func(ctx context.Context, p module.Program) int { return answerWithin(ctx, p, adapter, limit) }
}

// pendingAnswer receives the answer for the client. Only the first one is used.
type pendingAnswer chan agent.Output

func (a pendingAnswer) set(o agent.Output) {
	select {
	case a <- o:
	default:
	}
}

// pendingAnswerKey is the context key of the command's answers.
type pendingAnswerKey struct{}

func answerWithin(ctx context.Context, p module.Program, adapter *agent.Adapter, limit time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, limit-hookMargin(limit))
	defer cancel()
	a := make(pendingAnswer, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if r := recover(); r != nil {
				_, _ = fmt.Fprintf(p.Err, "%v\n%s", r, debug.Stack())
				a.set(adapter.EncodeFailure("gavel crashed, so the answer is no. This is a bug in gavel: tell the person who runs you."))
			}
		}()
		err := p.Execute(context.WithValue(ctx, pendingAnswerKey{}, a))
		if err == nil {
			err = errors.New("gavel has no answer") // ignored if the command has answered
		}
		a.set(refuse(p.In, adapter, agent.DescribeFailure(adapter.Client, describe(err))))
	}()
	var out agent.Output
	select {
	case out = <-a:
	case <-ctx.Done():
		select {
		case out = <-a: // answered just in time, or denied by the decider, whose reason is more specific
		case <-time.After(hookGrace):
			out = adapter.EncodeFailure(agent.DescribeFailure(adapter.Client, context.Cause(ctx)))
		}
	}
	if _, err := p.Out.Write(out.Stdout); err != nil {
		out.Exit = cmp.Or(out.Exit, term.ExitUsage)
	}
	_, _ = p.Err.Write(out.Stderr) // a failure could not be reported anywhere
	select {                       // let the store close
	case <-ended:
	case <-time.After(hookGrace):
	}
	return out.Exit
}

// refuse returns the answer for a command that failed before it read the event. It decodes the event because the
// answer depends on it: an agent that a hook already kept from stopping may stop now.
func refuse(from io.Reader, adapter *agent.Adapter, reason string) agent.Output {
	if event, err := readEvent(adapter.Client, adapter.Decode, from); err == nil && event.Phase != agent.PhaseBefore {
		return adapter.Encode(event, agent.Refuse(event, reason))
	}
	return adapter.EncodeFailure(reason)
}

// describe converts a command's error to one for agents, with all its lines and its hint.
func describe(err error) error {
	f, ok := errors.AsType[*term.ExitError](err)
	if !ok {
		return err
	}
	message := strings.Join(append(slices.Clone(f.Lines), f.Error()), "; ")
	return &engine.Error{Code: engine.CodeUnavailable, Message: agent.EndSentence(message), Hint: agent.EndSentence(f.Hint), Err: err}
}

func (c *answerCommand) Run(ctx context.Context, con *cli.Console) error {
	adapter, ok := agent.FindAdapter(c.Client)
	if !ok {
		return term.UsageErrorf("it is one of "+strings.Join(agent.Clients(), ", "), "there is no client %q", c.Client)
	}
	principal, err := cli.AgentPrincipal(c.Role, c.Principal)
	if err != nil {
		return err
	}
	to, _ := ctx.Value(pendingAnswerKey{}).(pendingAnswer)
	var input bytes.Buffer
	event, err := readEvent(c.Client, adapter.Decode, io.TeeReader(con.In, &input))
	if err != nil {
		how := c.onFailure(ctx, input.Bytes())
		if how == gate.OnFailureNeutral { // any other answer contains the error
			con.Log.WarnContext(ctx, "cannot read an event", "client", c.Client, "error", err)
		}
		to.set(adapter.EncodeUnreadable(how, err))
		return nil
	}
	event.Headless = adapter.IsHeadless(os.Getenv)
	if folder := os.Getenv(adapter.ProjectVariable); filepath.IsAbs(folder) {
		event.Project = folder
	}
	event.Places, event.Said = agent.FindPlaces(event), agent.OfferSaid(event)
	answer, done, err := c.answer(ctx, con, adapter, principal, event, input.Bytes())
	if err != nil {
		answer = agent.Refuse(event, agent.DescribeFailure(c.Client, describe(cli.ListMistakes(err))))
	}
	to.set(adapter.Encode(event, answer))
	return done()
}

// onFailure returns how to answer an event that cannot be read.
func (c *answerCommand) onFailure(ctx context.Context, input []byte) gate.OnFailure {
	if c.Judging.Server == "" {
		rules, _ := readRules(c.Judging.Config) // if they are invalid, the event is denied
		return rules.Hooks.OnFailure
	}
	if a, err := c.relay(ctx, agent.Event{}, input); err == nil && a.Verdict == agent.Neutral {
		return gate.OnFailureNeutral
	}
	return gate.OnFailureDeny
}

// readEvent reads and decodes the event that a client writes to a hook.
func readEvent(client string, decode func([]byte) (agent.Event, error), from io.Reader) (agent.Event, error) {
	input, err := io.ReadAll(io.LimitReader(from, agent.MaxInput+1))
	if err != nil {
		return agent.Event{}, term.UnknownErrorf("", "cannot read the event: %w", err)
	}
	event, err := decode(input)
	if err != nil {
		return event, term.UnknownErrorf("", "cannot decode the event of %s: %w", client, err)
	}
	return event, nil
}

// answer decides in this process, or asks the server if one is configured. Callers must call done, which waits for
// the decision to finish and closes the store.
func (c *answerCommand) answer(ctx context.Context, con *cli.Console, adapter *agent.Adapter, p engine.Principal, e agent.Event, input []byte) (a agent.Answer, done func() error, err error) {
	done = func() error { return nil }
	if e.Phase == agent.PhaseOther {
		return agent.Answer{Verdict: agent.Neutral}, done, nil
	}
	if c.Judging.Server != "" {
		if a, err = c.relay(ctx, e, input); err == nil && a.NeedsTranscript {
			e.Said = agent.ReadSaid(e)
			a, err = c.relay(ctx, e, input)
		}
		return a, done, err
	}
	rules, err := readRules(c.Judging.Config)
	if err != nil {
		return a, done, err
	}
	var sys *cli.System
	approved, _ := con.Approval().(*approval)
	open := func(ctx context.Context) (_ *cli.System, err error) {
		if sys == nil {
			sys, err = c.open(ctx, con, approved)
		}
		return sys, err
	}
	decider := agent.NewDecider(agent.DeciderConfig{
		Rules: func() agent.Rules { return rules }, Logger: con.Log,
		Engine: func(ctx context.Context) (agent.Engine, error) {
			sys, err := open(ctx)
			if err != nil {
				return nil, describe(cli.ListMistakes(err))
			}
			return sys.Engine, nil
		},
	})
	if a = decider.Decide(ctx, p, e); a.NeedsTranscript {
		e.Said = agent.ReadSaid(e)
		a = decider.Decide(ctx, p, e)
	}
	if approved != nil && ctx.Err() == nil && acceptsText(adapter, e, a) { // otherwise the next event reports it
		a = appendText(a, approved.report(ctx, open))
		if e.Phase == agent.PhaseStart {
			a = appendText(a, strings.Join(approved.listMissingHooks(), " "))
		}
	}
	return a, func() error {
		decider.Wait()
		if sys == nil {
			return nil
		}
		return sys.Close()
	}, nil
}

// appendText adds text to an answer.
func appendText(a agent.Answer, text string) agent.Answer {
	if a.Verdict == agent.Neutral {
		a.Context = strings.TrimSpace(a.Context + "\n" + text)
	} else {
		a.Reason = strings.TrimSpace(a.Reason + "\n" + text)
	}
	return a
}

// acceptsText reports whether the client passes text in this answer to the agent.
func acceptsText(adapter *agent.Adapter, e agent.Event, a agent.Answer) bool {
	without, with := adapter.Encode(e, a), adapter.Encode(e, appendText(a, "."))
	return !bytes.Equal(without.Stdout, with.Stdout) || !bytes.Equal(without.Stderr, with.Stderr)
}

// relay lets the server decide.
func (c *answerCommand) relay(ctx context.Context, e agent.Event, input []byte) (a agent.Answer, err error) {
	server, err := c.Judging.Connect(strings.NewReader(""))
	if err != nil {
		return a, err
	}
	defer server.Close()
	sent, err := agent.EncodeRelayed(e, input)
	if err != nil {
		return a, err
	}
	body, err := server.Post(ctx, facePath+c.Client+"?form="+answerForm, sent)
	if err != nil {
		return a, cli.EngineFailure(err)
	}
	if err := json.Unmarshal(body, &a); err != nil || a.Verdict == "" {
		return a, term.UnknownErrorf("check the address", "%s does not answer like a gavel server", c.Judging.Server)
	}
	return a, nil
}

// open opens the store and loads the definitions. It creates the store if there never was one.
func (c *answerCommand) open(ctx context.Context, con *cli.Console, approved *approval) (*cli.System, error) {
	if c.Judging.Store == inMemory {
		return nil, term.UsageErrorf("give the path of a store file", "hooks need a store that outlives them")
	}
	sys, err := c.Judging.OpenToJudge(ctx, con)
	if err == nil {
		if err = loadChanged(ctx, con, sys, approved, c.Judging.Definitions); err != nil {
			err = errors.Join(err, sys.Close())
		}
	}
	return sys, err
}

// loadChanged loads the definitions that differ from the operator's newest stored versions. It skips the others
// because checking a definition runs its scripts.
func loadChanged(ctx context.Context, con *cli.Console, sys *cli.System, approved *approval, patterns []string) error {
	changed, err := approved.load(patterns)
	if err != nil {
		return err
	}
	maps.DeleteFunc(changed, func(_ string, d *workflow.Definition) bool {
		stored, _, err := sys.Engine.LoadDefinition(ctx, operator, engine.RightRead, d.Name, 0)
		return err == nil && stored.Operator && stored.Hash == d.Hash
	})
	return cli.DefineParsed(ctx, con.Log, sys.Engine, changed)
}
