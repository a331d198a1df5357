package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/hook"
	"github.com/gavel-mcp/gavel/internal/term"
)

type hookAnswerCmd struct {
	Client string `arg:"" name:"client" help:"The coding agent that asks."`
	// Limit is read by readHookArgs.
	Limit     time.Duration `name:"limit" default:"60s" placeholder:"DURATION" help:"How long the client waits for a hook (60s). gavel denies a tenth before, and at least a second."`
	Role      string        `name:"role" enum:"agent,reviewer,operator,auditor" default:"agent" placeholder:"ROLE" help:"What the agent may do: agent, reviewer, operator or auditor. Default: agent."`
	Principal string        `name:"principal" placeholder:"ID" help:"Who the agent is, for the record: a name without a colon, except behind local:. Default: local: and the role."`
	judgingFlags
}

func (hookAnswerCmd) Help() string {
	return `The client starts it for each event; gavel hook install writes that into the client's settings.
Give it the configuration and the principal that gavel mcp has, so that the agent can advance the
workflows that its tools begin. Where gavel has nothing to say the client's own rules hold. What it
should have decided and could not is denied, whatever the reason.

Examples:

    gavel hook claude-code --config gavel.yaml < event.json
    gavel hook cursor --server http://127.0.0.1:4285 --token-file hooks.token < event.json

Exit codes: as the client wants them; 2, which all of them take as a no, where it cannot be told
what the client asked.`
}

// defaultHookLimit is how long clients wait that do not say it.
const defaultHookLimit = time.Minute

// hookMargin is how long before the client's limit gavel answers, and hookGrace how long after that it
// waits for a decision that takes back what it began.
func hookMargin(limit time.Duration) time.Duration { return min(max(limit/10, time.Second), limit/2) }

const hookGrace = 300 * time.Millisecond

// readHookArgs finds the client that a command line answers, and how long it waits for that, also where
// the rest of the line is wrong. The adapter is nil for another command.
func readHookArgs(args []string) (adapter *hook.Adapter, limit time.Duration) {
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
			adapter, _ = hook.FindAdapter(arg)
		}
	}
	return adapter, limit
}

// answerHook runs gavel hook CLIENT. Whatever happens in it, the client gets an answer in its own form
// and in time.
func answerHook(ctx context.Context, con *console, adapter *hook.Adapter, limit time.Duration, args []string, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, limit-hookMargin(limit))
	defer cancel()
	answered := make(chan hook.Output, 1)
	con.answered = func(o hook.Output) {
		select {
		case answered <- o:
		default: // the answer is given
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if r := recover(); r != nil {
				con.err.Printf("%v\n%s", r, debug.Stack())
				con.answered(adapter.EncodeFailure("gavel crashed, so the answer is no. This is a bug of gavel: tell the person who runs you."))
			}
		}()
		err := execute(ctx, con, args, stderr)
		if err == nil {
			err = errors.New("gavel has no answer") // only where there was none before
		}
		con.answered(refuseHook(con.stdin, adapter, hook.DescribeFailure(adapter.Client, hookError(err))))
	}()
	var out hook.Output
	select {
	case out = <-answered:
	case <-ctx.Done():
		select {
		case out = <-answered: // in time, or denied by the door in better words
		case <-time.After(hookGrace):
			out = adapter.EncodeFailure(hook.DescribeFailure(adapter.Client, context.Cause(ctx)))
		}
	}
	if _, err := con.rawOut.Write(out.Stdout); err != nil {
		out.Exit = cmp.Or(out.Exit, term.ExitUsage)
	}
	_, _ = stderr.Write(out.Stderr) // there is no other place
	select {                        // the store closes
	case <-ended:
	case <-time.After(hookGrace):
	}
	return out.Exit
}

// refuseHook is the answer where the command failed before it read the event. An agent that went on
// once because of it may end.
func refuseHook(from io.Reader, adapter *hook.Adapter, reason string) hook.Output {
	if event, err := readHookEvent(adapter.Client, adapter.Decode, from); err == nil && event.Phase != hook.PhaseBefore {
		return adapter.Encode(event, hook.Refuse(event, reason))
	}
	return adapter.EncodeFailure(reason)
}

// hookError is a command's error in the form that an agent gets: with its lines and its hint.
func hookError(err error) error {
	f, ok := errors.AsType[*term.ExitError](listMistakes(err))
	if !ok {
		return err
	}
	message := strings.Join(append(slices.Clone(f.Lines), f.Error()), "; ")
	return &engine.Error{Code: engine.CodeUnavailable, Message: hook.EndSentence(message), Hint: hook.EndSentence(f.Hint), Err: err}
}

func (c *hookAnswerCmd) Run(ctx context.Context, con *console) error {
	adapter, ok := hook.FindAdapter(c.Client)
	if !ok {
		return term.UsageErrorf("it is one of "+strings.Join(hook.Clients(), ", "), "there is no client %q", c.Client)
	}
	principal, err := agentPrincipal(c.Role, c.Principal)
	if err != nil {
		return err
	}
	var input bytes.Buffer
	event, err := readHookEvent(c.Client, adapter.Decode, io.TeeReader(con.stdin, &input))
	if err != nil {
		how := c.onFailure(ctx, input.Bytes())
		if how == gate.OnFailureNeutral { // else the answer says it
			con.log.WarnContext(ctx, "an event cannot be read", "client", c.Client, "error", err)
		}
		con.answered(adapter.EncodeUnreadable(how, err))
		return nil
	}
	event.Headless = adapter.IsHeadless(os.Getenv)
	if folder := os.Getenv(adapter.ProjectVariable); filepath.IsAbs(folder) {
		event.Project = folder
	}
	event.Places = hook.FindPlaces(event)
	answer, done, err := c.answer(ctx, con, adapter, principal, event, input.Bytes())
	if err != nil {
		answer = hook.Refuse(event, hook.DescribeFailure(c.Client, hookError(err)))
	}
	con.answered(adapter.Encode(event, answer))
	return done()
}

// onFailure says how an event is answered that cannot be read.
func (c *hookAnswerCmd) onFailure(ctx context.Context, input []byte) gate.OnFailure {
	if c.Server == "" {
		rules, _ := readHookRules(c.Config) // with a mistake in them, it is denied
		return rules.Hooks.OnFailure
	}
	if a, err := c.relay(ctx, hook.Event{}, input); err == nil && a.Verdict == hook.Neutral {
		return gate.OnFailureNeutral
	}
	return gate.OnFailureDeny
}

// readHookEvent reads what a client writes to a hook.
func readHookEvent(client string, decode func([]byte) (hook.Event, error), from io.Reader) (hook.Event, error) {
	input, err := io.ReadAll(io.LimitReader(from, hook.MaxInput+1))
	if err != nil {
		return hook.Event{}, term.UnknownErrorf("", "the event cannot be read: %w", err)
	}
	event, err := decode(input)
	if err != nil {
		return event, term.UnknownErrorf("", "the event of %s cannot be understood: %w", client, err)
	}
	return event, nil
}

// answer decides here, or asks the server. done ends what was opened for it.
func (c *hookAnswerCmd) answer(ctx context.Context, con *console, adapter *hook.Adapter, p engine.Principal, e hook.Event, input []byte) (a hook.Answer, done func() error, err error) {
	done = func() error { return nil }
	if e.Phase == hook.PhaseOther {
		return hook.Answer{Verdict: hook.Neutral}, done, nil
	}
	if c.Server != "" {
		a, err = c.relay(ctx, e, input)
		return a, done, err
	}
	rules, err := readHookRules(c.Config)
	if err != nil {
		return a, done, err
	}
	var sys *system
	approved := con.settings.approval
	open := func(ctx context.Context) (_ *system, err error) {
		if sys == nil {
			sys, err = c.openForHook(ctx, con, approved)
		}
		return sys, err
	}
	door := hook.NewDoor(hook.DoorConfig{
		Rules: func() hook.Rules { return rules }, Logger: con.log,
		Engine: func(ctx context.Context) (hook.Engine, error) {
			sys, err := open(ctx)
			if err != nil {
				return nil, hookError(err)
			}
			return sys.Engine, nil
		},
	})
	a = door.Answer(ctx, p, e)
	if approved != nil && ctx.Err() == nil && canTell(adapter, e, a) { // else at the next event
		a = tellAgent(a, approved.report(ctx, open))
		if e.Phase == hook.PhaseStart {
			a = tellAgent(a, strings.Join(approved.listMissingHooks(), " "))
		}
	}
	return a, func() error {
		door.Wait()
		if sys == nil {
			return nil
		}
		return closeInTime(con.log, sys.Close)
	}, nil
}

// tellAgent adds a sentence to an answer.
func tellAgent(a hook.Answer, text string) hook.Answer {
	if a.Verdict == hook.Neutral {
		a.Context = strings.TrimSpace(a.Context + "\n" + text)
	} else {
		a.Reason = strings.TrimSpace(a.Reason + "\n" + text)
	}
	return a
}

// canTell reports whether the agent reads what an answer tells it.
func canTell(adapter *hook.Adapter, e hook.Event, a hook.Answer) bool {
	without, with := adapter.Encode(e, a), adapter.Encode(e, tellAgent(a, "."))
	return !bytes.Equal(without.Stdout, with.Stdout) || !bytes.Equal(without.Stderr, with.Stderr)
}

// relay asks the server.
func (c *hookAnswerCmd) relay(ctx context.Context, e hook.Event, input []byte) (a hook.Answer, err error) {
	server, err := c.connect(strings.NewReader(""))
	if err != nil {
		return a, err
	}
	defer server.Close()
	sent, err := hook.EncodeRelayed(e, input)
	if err != nil {
		return a, err
	}
	body, err := server.Post(ctx, hookPath+c.Client+"?form="+answerForm, sent)
	if err != nil {
		return a, engineFailure(err)
	}
	if err := json.Unmarshal(body, &a); err != nil || a.Verdict == "" {
		return a, term.UnknownErrorf("look at the address", "the answer of %s is not one of a gavel server", c.Server)
	}
	return a, nil
}

// readHookRules reads what a configuration file has for hooks.
func readHookRules(path string) (r hook.Rules, err error) {
	if path == "" {
		return r, term.UsageErrorf("give --config FILE, or --server URL", "there is no configuration")
	}
	file, err := config.Load(path)
	if err != nil {
		return r, badConfig(err)
	}
	return parseHookRules(file)
}

func parseHookRules(file *config.File) (r hook.Rules, err error) {
	if r.Gates, err = gate.ParseConfig(file.Section(config.SectionGates)); err != nil {
		return r, badConfig(err)
	}
	r.Hooks, err = gate.ParseHooks(file.Section(config.SectionHooks))
	return r, badConfig(err)
}

// openForHook opens the store, which is made where there never was one.
func (c *hookAnswerCmd) openForHook(ctx context.Context, con *console, approved *approval) (*system, error) {
	if c.Store == memoryStore {
		return nil, term.UsageErrorf("give the path of a store file", "hooks need a store that outlives them")
	}
	if places := c.places(); len(places) > 0 { // none of a database
		if err := checkNotLost(places[0]); err != nil {
			return nil, err
		}
	}
	sys, err := c.openSystem(ctx, con, true)
	if err == nil {
		if err = loadChangedDefinitions(ctx, con, sys, approved, c.Definitions); err != nil {
			err = errors.Join(err, sys.Close())
		}
	}
	return sys, err
}

// loadChangedDefinitions loads the definitions that are not the operator's newest ones as they are:
// examining one runs its scripts.
func loadChangedDefinitions(ctx context.Context, con *console, sys *system, approved *approval, patterns []string) error {
	changed, err := approved.load(patterns)
	if err != nil {
		return err
	}
	maps.DeleteFunc(changed, func(_ string, d *workflow.Definition) bool {
		stored, _, err := sys.Engine.LoadDefinition(ctx, localCLI, engine.RightRead, d.Name, 0)
		return err == nil && stored.Operator && stored.Hash == d.Hash
	})
	return changed.define(ctx, con.log, sys.Engine)
}

// agentPrincipal is who a client of this machine is.
func agentPrincipal(role, id string) (engine.Principal, error) {
	p := engine.Principal{ID: cmp.Or(id, "local:"+role), Role: engine.Role(role)}
	return p, checkAgent(p.ID)
}
