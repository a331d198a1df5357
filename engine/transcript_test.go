package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/internal/evidence"
)

var proxy = engine.Principal{ID: "proxy:chat", Role: engine.RoleProxy}

// newTranscriptBench returns a bench whose source "user" is the transcript, and an instance of the agent's that moves
// only if the user said "please refund".
func newTranscriptBench(t *testing.T) (*bench, string) {
	t.Helper()
	manager, err := evidence.New(evidence.Config{Sources: map[string]evidence.Source{"user": {Transcript: true}}}, evidence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Close)
	b := newBenchWith(t, memory.New(), manager, func(*engine.Config) {})
	manager.UseTranscript(b.ReadTranscript)
	b.define(operator, `{"name":"refund","initialState":"a","sensitive":["/card"],"states":{"a":{"transitions":{
		"note":{"target":"a","schema":{"type":"object"}},
		"pay":{"target":"b","evidence":[{"name":"said","source":"user"}],
			"validator":"(data, context, evidence) => ({valid: evidence.said.messages.includes('please refund'), confidence: 1, reason: JSON.stringify(evidence.said)})"}}},
		"b":{"final":true}}}`)
	return b, b.start(agent, "refund", `{"card":"4111-1111"}`).ID
}

func (b *bench) say(id, key string, messages ...string) engine.TranscriptResult {
	b.t.Helper()
	r, err := b.AddTranscript(b.t.Context(), proxy, engine.TranscriptRequest{ID: id, Key: key, Messages: messages})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// What the user said decides, in a pre-check too; what the agent claims in its data does not.
func TestTheUsersMessagesAreEvidence(t *testing.T) {
	t.Parallel()
	b, id := newTranscriptBench(t)
	b.refused(agent, id, "pay", `{"messages":["please refund"]}`, "evidence_missing")
	b.say(id, "", "hello", "my card is 4111-1111")
	r := b.refused(agent, id, "pay", `{}`, "validator_rejected")
	if !strings.Contains(r.Decision.Reasoning, `["hello","my card is [masked]"],"omitted":0`) {
		t.Errorf("the validator saw %s", r.Decision.Reasoning)
	}
	b.say(id, "", "please refund")
	checked, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "pay"})
	if err != nil || !checked.Approved {
		t.Errorf("pre-check: %+v, %v", checked, err)
	}
	revision := b.load(id).Revision
	b.moved(agent, id, "pay", `{}`, "b")
	h, err := b.History(t.Context(), operator, engine.HistoryRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	if last := h.Decisions[len(h.Decisions)-1]; len(last.Evidence) != 1 || !strings.HasPrefix(last.Evidence[0].Digest, "sha256:") || revision != 1 {
		t.Errorf("revision %d, recorded %+v", revision, last.Evidence)
	}
	b.verify(id)
	if _, err := b.AddTranscript(t.Context(), proxy, engine.TranscriptRequest{ID: id, Messages: []string{"wait"}}); engine.CodeOf(err) != engine.CodeInstanceEnded {
		t.Errorf("to an ended instance: %v", err)
	}
}

// Only proxies and operators add messages, and to existing instances; a proxy can do nothing else.
func TestWhoAddsMessages(t *testing.T) {
	t.Parallel()
	b, id := newTranscriptBench(t)
	add := func(p engine.Principal, id string, messages ...string) engine.Code {
		_, err := b.AddTranscript(t.Context(), p, engine.TranscriptRequest{ID: id, Messages: messages})
		return engine.CodeOf(err)
	}
	scoped := proxy
	scoped.Workflows = "other"
	for _, c := range []struct {
		who      engine.Principal
		id       string
		messages []string
		want     engine.Code
	}{
		{agent, id, []string{"x"}, engine.CodeForbidden},
		{reviewer, id, []string{"x"}, engine.CodeForbidden},
		{auditor, id, []string{"x"}, engine.CodeForbidden},
		{scoped, id, []string{"x"}, engine.CodeUnknownInstance},
		{proxy, "wf-none", []string{"x"}, engine.CodeUnknownInstance},
		{proxy, id, nil, engine.CodeInvalidArgument},
		{proxy, id, []string{"x", " \n"}, engine.CodeInvalidArgument},
		{proxy, id, []string{strings.Repeat("x", 64<<10), "x"}, engine.CodeTooLarge},
		{operator, id, []string{"x"}, ""},
		{proxy, id, []string{"x"}, ""},
	} {
		if got := add(c.who, c.id, c.messages...); got != c.want {
			t.Errorf("%s on %s, %d messages: %q, want %q", c.who.Role, c.id, len(c.messages), got, c.want)
		}
	}
	_, readErr := b.Status(t.Context(), proxy, id)
	_, moveErr := b.Advance(t.Context(), proxy, engine.AdvanceRequest{ID: id, Action: "note"})
	if engine.CodeOf(readErr) != engine.CodeForbidden || engine.CodeOf(moveErr) != engine.CodeForbidden {
		t.Errorf("a proxy reads: %v, moves: %v", readErr, moveErr)
	}
}

func TestTranscriptKeepsTheNewest(t *testing.T) {
	t.Parallel()
	b, id := newTranscriptBench(t)
	read := func() ([]string, int) {
		messages, omitted, err := b.ReadTranscript(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return messages, omitted
	}
	for i := range 50 {
		b.say(id, "", fmt.Sprint("message ", i))
	}
	if messages, omitted := read(); len(messages) != 40 || omitted != 10 || messages[0] != "message 10" || messages[39] != "message 49" {
		t.Errorf("%d omitted, %q", omitted, messages)
	}
	long := "begin " + strings.Repeat("é", 20_000) + " end"
	b.say(id, "", long, strings.Repeat("y", 2<<10), strings.Repeat("y", 2<<10), strings.Repeat("y", 2<<10))
	messages, omitted := read()
	if len(messages) != 7 || omitted != 47 || !strings.HasPrefix(messages[3], "begin é") || !strings.HasSuffix(messages[3], "é end") ||
		!strings.Contains(messages[3], "[gavel left out 38") || len(messages[3]) > 2<<10 {
		t.Errorf("%d omitted, %d messages, %.30q", omitted, len(messages), messages)
	}
	b.verify(id)
}

func TestMessagesAreAddedOnce(t *testing.T) {
	t.Parallel()
	b, id := newTranscriptBench(t)
	b.say(id, "k", "one")
	if r := b.say(id, "k", "one"); !r.Replayed || r.Added != 1 {
		t.Errorf("the same key: %+v", r)
	}
	if _, err := b.AddTranscript(t.Context(), proxy, engine.TranscriptRequest{ID: id, Key: "k", Messages: []string{"two"}}); engine.CodeOf(err) != engine.CodeKeyReused {
		t.Errorf("the same key, another message: %v", err)
	}
	session := "a"
	follow := func(added int, messages ...string) {
		t.Helper()
		r, err := b.AddTranscript(t.Context(), proxy, engine.TranscriptRequest{ID: id, Messages: messages, Session: session})
		if err != nil || r.Added != added {
			t.Errorf("%q: %+v, %v", messages, r, err)
		}
	}
	follow(1, "one")
	follow(2, "one", "yes", "yes")
	seq := b.load(id).Seq
	follow(0, "yes", "yes")
	follow(1, "yes", "yes", "yes 4111-1111")
	follow(0, "yes 4111-1111")
	if got := b.load(id).Seq; got != seq+1 {
		t.Errorf("repeated messages are recorded: seq %d, want %d", got, seq+1)
	}
	if messages, _, err := b.ReadTranscript(t.Context(), id); err != nil || !slices.Equal(messages, []string{"one", "one", "yes", "yes", "yes [masked]"}) {
		t.Errorf("%q, %v", messages, err)
	}
	// What one session repeats does not come after what another one said since.
	session = "b"
	follow(1, "stop")
	session = "a"
	follow(1, "yes", "yes", "yes 4111-1111", "thanks")
	if messages, _, err := b.ReadTranscript(t.Context(), id); err != nil || !slices.Equal(messages, []string{"one", "one", "yes", "yes", "yes [masked]", "stop", "thanks"}) {
		t.Errorf("%q, %v", messages, err)
	}
}
