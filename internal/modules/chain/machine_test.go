package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/validators/document"
)

// fakeServers answers calls with functions, by server/name, and records the calls.
type fakeServers struct {
	answers map[string]func(c Command, call int) Outcome

	mu    sync.Mutex
	calls []string
	count map[string]int
}

func (f *fakeServers) Do(_ context.Context, c Command) Outcome {
	raw, _ := document.Marshal(c.Arguments)
	f.mu.Lock()
	if f.count == nil {
		f.count = map[string]int{}
	}
	id := c.Server + "/" + c.Name
	f.count[id]++
	call := f.count[id]
	f.calls = append(f.calls, id+" "+strings.TrimSpace(string(raw)))
	f.mu.Unlock()
	if answer := f.answers[id]; answer != nil {
		return answer(c, call)
	}
	return Outcome{Value: "ok"}
}

func says(text any) func(Command, int) Outcome {
	return func(Command, int) Outcome { return Outcome{Value: text} }
}

func fails(message string) func(Command, int) Outcome {
	return func(Command, int) Outcome {
		return Outcome{Err: &StepError{Code: CodeToolError, Message: message}}
	}
}

// runInMemory runs a machine to its end without recording anything. The error is ctx's.
func runInMemory(ctx context.Context, m *Machine, effects, waits Effects) (*Result, error) {
	defer m.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type ended struct {
		id int
		Outcome
	}
	outcomes := make(chan ended)
	for m.Result() == nil {
		for _, c := range m.Commands() {
			go func() {
				var o Outcome
				switch c.Op {
				case OpSleep:
					select {
					case <-time.After(c.Timeout):
					case <-ctx.Done():
					}
				case OpWait, OpAsk:
					o = perform(ctx, c, waits.Do)
				default:
					o = perform(ctx, c, effects.Do)
				}
				select {
				case outcomes <- ended{c.ID, o}:
				case <-ctx.Done():
				}
			}()
		}
		select {
		case o := <-outcomes:
			m.Resolve(o.id, o.Outcome)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return m.Result(), nil
}

// runFake runs a definition to its end with a fake clock.
func runFake(t *testing.T, d *Definition, f *fakeServers, o MachineOptions) (result *Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		input, err := d.CheckInput(nil)
		if err != nil {
			t.Fatal(err)
		}
		if o.Input == nil {
			o.Input = input
		}
		result, err = runInMemory(context.Background(), NewMachine(d, o), f, f)
		if err != nil {
			t.Fatal(err)
		}
	})
	return result
}

func errorText(err *StepError) string {
	if err == nil {
		return ""
	}
	return err.Message
}

func marshal(v any) string {
	raw, err := document.Marshal(v)
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(raw))
}

// TestBadServers checks the messages for unexpected inputs and servers.
func TestBadServers(t *testing.T) {
	long := strings.Repeat("x", MaxOutput)
	for _, row := range []struct {
		name, doc string
		answer    func(Command, int) Outcome
		calls     int
		want      string
	}{
		{"a tool that fails", steps(first), fails("disk full"), 1, "disk full"},
		{"50 MB", steps(first), says(long), 1, `the output has 262146 bytes; the limit is 262144: select the needed parts with "keep"`},
		{"a part that is not there", steps(`{id: a, type: tool, server: s, action: x, keep: [status]}`), says(map[string]any{"code": json.Number("1")}), 1, `in the output, {{status}} is missing: it has "code"`},
		{"an output that the schema refuses", steps(`{id: a, type: tool, server: s, action: x, outputSchema: {type: object, required: [status]}}`), says(map[string]any{}), 1, `the output does not match its schema: "/status" is required`},
		{"nothing where a field is read", steps(first, `{id: b, type: tool, server: s, action: y, arguments: {x: "{{a.output.x}}"}}`), says(nil), 1, `{{a.output.x}} is missing: a.output is null`},
		{"a refusal is not tried again", steps(`{id: a, type: tool, server: s, action: x, retry: {max_attempts: 5}}`), func(Command, int) Outcome {
			return Outcome{Err: &StepError{Code: "call_refused", Message: "refused", Final: true}}
		}, 1, "refused"},
		{"what may have run is not tried again", steps(`{id: a, type: tool, server: s, action: x, retry: {max_attempts: 5}}`), func(Command, int) Outcome {
			return Outcome{Err: &StepError{Code: "upstream_lost", Message: "lost", MayHaveRun: true}}
		}, 1, "lost"},
		{"what was not sent is tried again", steps(`{id: a, type: tool, server: s, action: x, retry: {max_attempts: 5}}`), func(Command, int) Outcome {
			return Outcome{Err: &StepError{Code: "upstream_unavailable", Message: "down"}}
		}, 5, "down"},
		{"items that are no list", "variables: {input: {sites: one}}\n" + steps(`{id: f, type: forEach, items: "{{variables.input.sites}}", steps: [`+first+`]}`), nil, 0, `"items" is a text; forEach needs a list`},
		{"a condition over nothing", steps(first, `{id: s, type: switch, cases: [{when: "{{a.output}} > 3", steps: [{id: b, type: tool, server: s, action: y}]}]}`), says(nil), 1, "null and a number cannot be ordered; compare two numbers or two texts"},
		{"the first failure of many", steps(`{id: p, type: parallel, mode: all, tasks: [{id: a, type: tool, server: s, action: x}, {id: b, type: tool, server: s, action: x}]}`), func(c Command, _ int) Outcome { return fails(c.Step+" failed")(c, 0) }, 2, "a failed"},
		{"failFast starts nothing more", steps(`{id: f, type: forEach, maxConcurrent: 1, items: [1, 2, 3], steps: [` + first + `]}`), fails("no"), 1, "no"},
		{"all runs all", steps(`{id: f, type: forEach, maxConcurrent: 1, mode: all, items: [1, 2, 3], steps: [` + first + `]}`), fails("no"), 3, "no"},
		{"a handler that fails as well", steps(`{id: a, type: tool, server: s, action: x, on_error: b}`, `{id: b, type: tool, server: s, action: x}`), func(c Command, _ int) Outcome { return fails(c.Step+" failed")(c, 0) }, 2, `a failed; its handler "b" also failed: b failed`},
		{"a name that is no text", "variables: {input: {uri: 3}}\n" + steps(`{id: a, type: resource, server: s, uri: "{{variables.input.uri}}"}`), nil, 0, "a name, URI or id must be a text, not a number"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := &fakeServers{answers: map[string]func(Command, int) Outcome{"s/x": row.answer, "code-mcp/execute": row.answer}}
			r := runFake(t, parse(t, row.doc), f, MachineOptions{})
			if got := errorText(r.Err); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if len(f.calls) != row.calls {
				t.Errorf("%d calls, want %d: %v", len(f.calls), row.calls, f.calls)
			}
		})
	}
}

// TestMaxCommands ends a run with too many commands, and names the step; handlers cannot extend the run.
func TestMaxCommands(t *testing.T) {
	d := parse(t, steps(`{id: outer, type: loop, max_iterations: 10000, steps: [{id: inner, type: loop, max_iterations: 10000, steps: [{id: a, type: tool, server: s, action: x, on_error: b}]}]}`, `{id: b, type: tool, server: s, action: y}`))
	m := NewMachine(d, MachineOptions{})
	defer m.Close()
	calls := 0
	for m.Result() == nil {
		for _, c := range m.Commands() {
			calls++
			m.Resolve(c.ID, Outcome{Value: "ok"})
		}
	}
	err := m.Result().Err
	if err == nil || err.Code != CodeExhausted || err.Step != "a" || err.Key != "outer#11/inner#1/a" || !strings.HasPrefix(err.Message, "the run has reached the limit of 100000 calls, tests and waits: split the chain, or its input") {
		t.Errorf("it ends with %+v", err)
	}
	if calls != MaxCommands {
		t.Errorf("%d calls, want %d", calls, MaxCommands)
	}
}

// TestMaxPassed ends a run that would continue forever without a command.
func TestMaxPassed(t *testing.T) {
	for name, inside := range map[string]string{
		"steps":      `{id: s, type: switch, cases: [{when: "1 == 2", steps: [{id: a, type: tool, server: s, action: x}]}]}`,
		"iterations": `{id: s, type: forEach, items: [], steps: [{id: a, type: tool, server: s, action: x}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMachine(parse(t, steps(`{id: outer, type: loop, max_iterations: 10000, steps: [{id: inner, type: loop, max_iterations: 10000, steps: [`+inside+`]}]}`)), MachineOptions{})
			defer m.Close()
			const want = "the run has reached the limit of 500000 steps and iterations: split the chain, or its input"
			if r := m.Result(); r == nil || r.Err == nil || r.Err.Code != CodeExhausted || r.Err.Message != want || r.Err.Step == "" {
				t.Errorf("it ends with %+v", r)
			}
		})
	}
}

// TestMaxCollected: the outputs of branches are limited in total, not only individually.
func TestMaxCollected(t *testing.T) {
	d := parse(t, steps(`{id: f, type: forEach, items: "{{variables.input.n}}", mode: all, steps: [{id: a, type: tool, server: s, action: x}], save_output_to: variables.output.f}`)+"variables: {input: {n: []}}\n")
	for _, items := range []int{60, 70} {
		f := &fakeServers{answers: map[string]func(Command, int) Outcome{"s/x": func(Command, int) Outcome {
			return Outcome{Value: strings.Repeat("x", MaxCollected/64-100)}
		}}}
		input, err := d.CheckInput(json.RawMessage(`{"n":` + marshal(make([]int, items)) + `}`))
		if err != nil {
			t.Fatal(err)
		}
		r := runFake(t, d, f, MachineOptions{Input: input})
		want := ""
		if items > 64 {
			want = `the outputs of "f" exceed 16 MiB in total: keep less of each`
		}
		if got := errorText(r.Err); got != want {
			t.Errorf("with %d items it ends with %q, want %q", items, got, want)
		}
		if len(f.calls) != items {
			t.Errorf("%d calls, want %d", len(f.calls), items)
		}
	}
}

func TestInput(t *testing.T) {
	d := parse(t, "variables: {input: {site_url: x, deep: {a: 1}}}\n"+steps(first))
	schemed := parse(t, "inputSchema: {type: object, required: [site], properties: {site: {type: string}}}\n"+steps(first))
	for _, row := range []struct {
		d                *Definition
		input, want, err string
	}{
		{d, ``, `{"deep":{"a":1},"site_url":"x"}`, ""},
		{d, `{"site_url":"y"}`, `{"deep":{"a":1},"site_url":"y"}`, ""},
		{d, `{"siteurl":"y"}`, ``, `the chain "c" has no input "siteurl"; did you mean "site_url"?`},
		{d, `[1]`, ``, "the input must be an object, not a list"},
		{d, `{"site_url":`, ``, "the input cannot be read: /site_url: expected a JSON value, got the end of the text (line 1, column 13)"},
		{d, `{"site_url":1,"site_url":2}`, ``, `the input cannot be read: /site_url: duplicate key "site_url" (line 1, column 15)`},
		{schemed, `{"site":"x"}`, `{"site":"x"}`, ""},
		{schemed, `{}`, ``, `the input does not match its schema: "/site" is required`},
		{schemed, `{"site":1}`, ``, `the input does not match its schema: "/site" must be string, is number`},
	} {
		got, err := row.d.CheckInput(json.RawMessage(row.input))
		message := ""
		if err != nil {
			message = err.Error()
		}
		if message != row.err || err == nil && marshal(got) != row.want {
			t.Errorf("%s: got %s, %q; want %s, %q", row.input, marshal(got), message, row.want, row.err)
		}
	}
}

// TestUnknown: a person is asked what happened to a call whose answer was lost.
func TestUnknown(t *testing.T) {
	doc := steps(`{id: a, type: tool, server: s, action: pay, save_output_to: variables.output.receipt, on_error: b}`, `{id: b, type: tool, server: s, action: other}`)
	lost := func(_ Command, call int) Outcome {
		if call == 1 {
			return Outcome{Err: &StepError{Code: CodeUnknown, Message: "lost"}}
		}
		return Outcome{Value: "paid again"}
	}
	for answer, want := range map[string]string{
		`{"answer":"happened","output":"r1"}`: `{"receipt":"r1"} ""`,
		`{"answer":"again"}`:                  `{"receipt":"paid again"} ""`,
		`{"answer":"give-up"}`:                `{} "given up: it is unknown whether the call was done"`,
	} {
		f := &fakeServers{}
		f.answers = map[string]func(Command, int) Outcome{"s/pay": func(c Command, call int) Outcome {
			if c.Op == OpAsk {
				f.count["s/pay"]--
				return Outcome{Value: decodeJSON(json.RawMessage(answer))}
			}
			return lost(c, call)
		}}
		r := runFake(t, parse(t, doc), f, MachineOptions{})
		if got := fmt.Sprintf("%s %q", marshal(r.Output), errorText(r.Err)); got != want {
			t.Errorf("%s: got %s, want %s", answer, got, want)
		}
	}
}

// TestDelays checks the growth, limit and jitter of the backoff.
func TestDelays(t *testing.T) {
	for _, row := range []struct {
		retry Retry
		want  []time.Duration
	}{
		{Retry{Delay: 5 * time.Second}, []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}},
		{Retry{Delay: 5 * time.Second, Backoff: "linear"}, []time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second}},
		{Retry{Delay: 5 * time.Second, Backoff: "exponential"}, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second}},
	} {
		for i, want := range row.want {
			got := row.retry.delayBefore(i+2, "run")
			if got < want*9/10 || got > want*11/10 {
				t.Errorf("%s: before attempt %d it waits %v, want about %v", row.retry.Backoff, i+2, got, want)
			}
			if again := row.retry.delayBefore(i+2, "run"); again != got {
				t.Error("the jitter is not the same the second time")
			}
		}
	}
	if got := (&Retry{Delay: 24 * time.Hour, Backoff: "exponential"}).delayBefore(20, "run"); got > 27*time.Hour {
		t.Errorf("it waits %v", got)
	}
}

// TestSavedVariables: a run reads the variables that the previous run saved.
func TestSavedVariables(t *testing.T) {
	d := parse(t, "variables: {saved: {last: none}}\n"+steps(`{id: a, type: tool, server: s, action: x, arguments: {before: "{{saved.last}}", same: "{{variables.saved.last}}"}, save_output_to: saved.last}`))
	f := &fakeServers{answers: map[string]func(Command, int) Outcome{"s/x": func(_ Command, call int) Outcome { return Outcome{Value: json.Number(fmt.Sprint(call))} }}}
	one := runFake(t, d, f, MachineOptions{})
	runFake(t, d, f, MachineOptions{Saved: one.Saved})
	if diff := cmp.Diff([]string{`s/x {"before":"none","same":"none"}`, `s/x {"before":1,"same":1}`}, f.calls); diff != "" {
		t.Error(diff)
	}
}

// TestKeys: no two commands of a run share a key, and repeating the run produces the same keys.
func TestKeys(t *testing.T) {
	d := parse(t, steps(
		`{id: l, type: loop, max_iterations: 3, delay_seconds: 1, steps: [{id: a, type: tool, server: s, action: x, retry: {max_attempts: 2}, on_error: h}]}`,
		`{id: f, type: forEach, items: [1, 2], steps: [{id: b, type: tool, server: s, action: x, on_error: h}]}`,
		`{id: h, type: tool, server: s, action: y}`,
		`{id: p, type: prompt, server: s, prompt_name: q, complete: {model: m}}`))
	run := func() map[string]int {
		keys := map[string]int{}
		m := NewMachine(d, MachineOptions{})
		defer m.Close()
		for m.Result() == nil {
			for _, c := range m.Commands() {
				keys[c.Key]++
				o := Outcome{Value: "ok"}
				if c.Name == "x" {
					o = fails("no")(c, 0)
				}
				m.Resolve(c.ID, o)
			}
		}
		return keys
	}
	keys := run()
	for key, n := range keys {
		if n > 1 {
			t.Errorf("%d commands have the key %s", n, key)
		}
	}
	if len(keys) < 15 {
		t.Errorf("%d keys: %v", len(keys), slices.Sorted(maps.Keys(keys)))
	}
	if diff := cmp.Diff(keys, run()); diff != "" {
		t.Error(diff)
	}
}
