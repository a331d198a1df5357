package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators"
)

// compilerFunc is a Compiler that calls a function of the test.
type compilerFunc func(ctx context.Context, caller string) error

func (f compilerFunc) Compile(ctx context.Context, caller string, _ validators.Owner, _ validators.Checks) (*validators.Set, []validators.Problem, error) {
	return nil, nil, f(ctx, caller)
}

func scripted(name string) engine.DefineRequest {
	return engine.DefineRequest{Document: []byte(fmt.Sprintf(
		`{"name":%q,"initialState":"a","states":{"a":{"transitions":{"go":{"target":"b","validator":"() => true"}}},"b":{"final":true}}}`, name))}
}

// Define warns about a script that throws, whoever the caller is. A stateless decision, which brings a
// definition with every call, does not try scripts.
func TestDefineTriesScripts(t *testing.T) {
	b := newBench(t)
	req := scripted("throws")
	req.Document = []byte(strings.Replace(string(req.Document), "() => true", "(data) => data.customer.zip.length === 5", 1))
	throws := func(issues []workflow.Issue) bool {
		return slices.ContainsFunc(issues, func(i workflow.Issue) bool {
			return i.Rule == "script-throws" && i.Line == 1 && strings.Contains(i.Message, "on the data {}")
		})
	}
	for _, p := range []engine.Principal{agent, operator} {
		made, err := b.Define(t.Context(), p, req)
		if err != nil || !throws(made.Warnings) {
			t.Errorf("%s: %+v, %v", p.Role, made.Warnings, err)
		}
		if _, issues, err := b.ExamineDefinition(t.Context(), p, req); err != nil || throws(issues) {
			t.Errorf("%s: it was tried without being defined: %+v, %v", p.Role, issues, err)
		}
	}
}

// An agent's definition cannot name a file, even if a file reader is passed; an operator's definition
// holds the text of the file.
func TestOnlyOperatorsNameFiles(t *testing.T) {
	for _, reads := range []string{"in the sandbox", "here"} {
		b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) {
			if reads == "here" {
				c.Reader = nil
			}
		})
		req := scripted("filed")
		req.Document = []byte(strings.Replace(string(req.Document), `"() => true"`, `{"file":"go.js"}`, 1))
		asked := 0
		req.Files = func(string) ([]byte, error) { asked++; return []byte("() => true"), nil }
		if _, err := b.Define(t.Context(), agent, req); engine.CodeOf(err) != engine.CodeInvalidDefinition || asked != 0 {
			t.Errorf("%s: an agent's: %v, %d files were read", reads, err, asked)
		}
		made, err := b.Define(t.Context(), operator, req)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := b.Define(t.Context(), operator, scripted("filed")); err != nil || same.Hash != made.Hash || same.Created {
			t.Errorf("%s: the same without files: %+v, %v", reads, same, err)
		}
	}
}

// TestDefinitionsAreReadInTurn: a principal whose definitions take long holds at most half of the permits,
// so that another principal's is read without waiting.
func TestDefinitionsAreReadInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, passed := make(chan struct{}), atomic.Int32{}
		b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) {
			c.Reader = nil // a process cannot run inside a bubble
			c.Compiler = compilerFunc(func(_ context.Context, caller string) error {
				if caller == agent.ID {
					passed.Add(1)
					<-held
				}
				return nil
			})
		})
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				if _, err := b.Define(t.Context(), agent, scripted(fmt.Sprint("heavy-", i))); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // until every permitted one is being read
		if n, most := passed.Load(), int32(max(2, runtime.GOMAXPROCS(0))+1)/2; n != most {
			t.Errorf("%d definitions of one principal are read at once, want %d", n, most)
		}
		if _, err := b.Define(t.Context(), other, scripted("light")); err != nil {
			t.Error(err)
		}
		close(held)
		wg.Wait()
	})
}

// TestLintIsChargedWhileItLasts: an examination ends when its principal's time is used up, not afterwards.
func TestLintIsChargedWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) {
			c.Reader = nil // a process cannot run inside a bubble
			c.Quotas = engine.Quotas{WorkerTime: 10 * time.Second}
			c.Compiler = compilerFunc(func(ctx context.Context, _ string) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Hour):
					return nil
				}
			})
		})
		began := time.Now()
		_, err := b.Define(t.Context(), agent, scripted("slow"))
		wantCode(t, err, engine.CodeWorkerTimeSpent)
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("ended after %v", took)
		}
		_, err = b.Define(t.Context(), agent, scripted("slow"))
		wantCode(t, err, engine.CodeWorkerTimeSpent)
	})
}

// TestScopeIsCheckedBeforeReading: the name in the address is checked against the caller's scope before
// the document costs anything.
func TestScopeIsCheckedBeforeReading(t *testing.T) {
	b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) {
		c.Compiler = compilerFunc(func(context.Context, string) error { return errors.New("read") })
	})
	scoped := agent
	scoped.Workflows = "mine-*"
	req := scripted("theirs")
	req.Name = "theirs"
	_, err := b.Define(t.Context(), scoped, req)
	wantCode(t, err, engine.CodeForbidden)
	req = engine.DefineRequest{Document: []byte("{"), Name: "theirs"}
	_, err = b.Define(t.Context(), scoped, req)
	wantCode(t, err, engine.CodeForbidden)
	req = scripted("mine-1")
	req.Name = "mine-2"
	_, err = b.Define(t.Context(), scoped, req)
	if e := wantCode(t, err, engine.CodeInvalidArgument); e.Path != "/name" {
		t.Errorf("path %q", e.Path)
	}
}

// wide returns a definition of about 250 KB that takes megabytes when parsed.
func wide(name string, actions int) string {
	var b strings.Builder
	for i := range actions {
		fmt.Fprintf(&b, `,"a%d":"b"`, i)
	}
	return fmt.Sprintf(`{"name":%q,"initialState":"a","states":{"a":{"transitions":{"go":"b"%s}},"b":{"final":true}}}`, name, b.String())
}

// TestDefinitionsOfOnePrincipalTakeBoundedMemory: the cache of parsed definitions is limited in bytes, and
// each principal gets only part of it.
func TestDefinitionsOfOnePrincipalTakeBoundedMemory(t *testing.T) {
	if storetest.RaceDetector {
		t.Skip("the race detector's memory is counted too")
	}
	b := newBench(t)
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	b.define(operator, named(simple, "kept"))
	before, stored := heap(), 0
	for i := range 10 {
		doc := wide(fmt.Sprint("wide-", i), 16_000)
		stored += len(doc)
		b.define(agent, doc)
	}
	if took := heap() - before - stored; took > 24<<20 {
		t.Errorf("%d MiB are kept of one principal's definitions", took>>20)
	}
	b.start(agent, "wide-3", "") // was evicted
}

// TestBoundsOfDefinitions: definitions that do not come from operators are limited in states, transitions
// and bytes of schemas; an operator's are not.
func TestBoundsOfDefinitions(t *testing.T) {
	b := quotaBench(t, engine.Quotas{States: 3, Transitions: 10, SchemaBytes: 100})
	schemas := `{"name":"schemas","initialState":"a","inputSchema":{"title":"` + strings.Repeat("x", 100) + `"},"states":{"a":{"final":true}}}`
	for _, doc := range []string{
		`{"name":"states","initialState":"a","states":{"a":{"final":true},"b":{"final":true},"c":{"final":true},"d":{"final":true}}}`,
		wide("transitions", 10), schemas,
	} {
		_, err := b.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(doc)})
		if e := wantCode(t, err, engine.CodeInvalidDefinition); len(e.Issues) != 1 || e.Issues[0].Rule != "size" {
			t.Errorf("%.40s: %+v", doc, e.Issues)
		}
		b.define(operator, doc)
	}
	b.define(agent, wide("fine", 9))
}

// bareStore counts reads of documents, and fails for reads that are unnecessary.
type bareStore struct {
	store.Store
	reads atomic.Int32
}

func (s *bareStore) Definition(ctx context.Context, name string, version int) (store.Definition, error) {
	s.reads.Add(1)
	return s.Store.Definition(ctx, name, version)
}

func (s *bareStore) Definitions(context.Context) ([]store.Definition, error) {
	return nil, errors.New("all definitions were listed")
}

// TestUnknownWorkflowReadsNamesAlone: suggestions are found among names alone. At most one document is
// read, to check whether the caller may know of it.
func TestUnknownWorkflowReadsNamesAlone(t *testing.T) {
	s := &bareStore{Store: memory.New()}
	b := newBenchOn(t, s)
	for i := range 20 {
		b.define(operator, named(simple, fmt.Sprint("simple-", i)))
	}
	b.define(agent, named(simple, "refund-of-mine"))
	b = newBenchOn(t, s) // a fresh engine without cached definitions
	s.reads.Store(0)
	_, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "refund-of-mime", Context: json.RawMessage(`{}`)})
	if e := wantCode(t, err, engine.CodeUnknownWorkflow); !strings.Contains(e.Message, `did you mean "refund-of-mine"`) {
		t.Error(e.Message)
	}
	if n := s.reads.Load(); n > 3 {
		t.Errorf("%d documents were read", n)
	}
	_, err = b.Start(t.Context(), other, engine.StartRequest{Type: "refund-of-mime"})
	if e := wantCode(t, err, engine.CodeUnknownWorkflow); strings.Contains(e.Message, "did you mean") {
		t.Errorf("a definition of another agent is told: %s", e.Message)
	}
}

// readerFunc is a Reader that calls a function of the test.
type readerFunc func(ctx context.Context, caller string, request []byte) ([]byte, error)

func (f readerFunc) Read(ctx context.Context, caller string, request []byte) ([]byte, error) {
	return f(ctx, caller, request)
}

// TestUntrustedDefinitionsAreReadInWorker: the Reader parses definitions that do not come from operators, for their
// caller. An operator's definition, and one that no worker reads, is parsed in this process.
func TestUntrustedDefinitionsAreReadInWorker(t *testing.T) {
	var callers []string
	var fails error
	b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) {
		c.Reader = readerFunc(func(ctx context.Context, caller string, request []byte) ([]byte, error) {
			if callers = append(callers, caller); fails != nil {
				return nil, fails
			}
			return pool().Read(ctx, caller, request)
		})
	})
	b.define(operator, named(simple, "an-operators"))
	b.define(agent, named(simple, "an-agents"))
	_, err := b.Define(t.Context(), agent, engine.DefineRequest{Source: "w.yaml", Document: []byte("name: [")})
	wantCode(t, err, engine.CodeInvalidDefinition)
	if want := []string{agent.ID, agent.ID}; !slices.Equal(callers, want) {
		t.Errorf("read for %q, want %q", callers, want)
	}
	for _, c := range []struct {
		fails error
		want  engine.Code
	}{
		{validators.ErrTooCostly, engine.CodeInvalidDefinition},
		{validators.ErrUnavailable, engine.CodeBusy},
		{context.Canceled, engine.CodeCancelled},
	} {
		fails = fmt.Errorf("read: %w", c.fails)
		_, err := b.Define(t.Context(), agent, scripted("another"))
		wantCode(t, err, c.want)
	}
	fails = validators.ErrNoReader
	b.define(agent, named(simple, "read-here"))
}
