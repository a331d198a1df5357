package validators

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/gavel-mcp/gavel/validators/schema"
	"github.com/gavel-mcp/gavel/validators/script"
)

// ErrUnavailable reports that the script sandbox could not answer; the call may
// be retried and says nothing about the checks.
var ErrUnavailable = script.ErrUnavailable

// DefaultCacheEntries is how many compiled Sets a Compiler keeps.
const DefaultCacheEntries = 1024

// Options of a Compiler. The zero value is what most want.
type Options struct {
	// CacheEntries bounds the compiled Sets kept; 0 is DefaultCacheEntries.
	CacheEntries int
}

// Problem is a part of Checks that does not compile.
type Problem struct {
	// Part says which: "requiredFields", "schema", or a script's Name.
	Part string
	// Path is a JSON pointer into the schema, or the index of a required field; ""
	// when there is none.
	Path string
	// Line and Column stand within a script's source, 0 when unknown.
	Line, Column int
	// Message is one sentence that says what is wrong.
	Message string
}

// String is the problem with where it is.
func (p Problem) String() string {
	switch {
	case p.Line > 0:
		return fmt.Sprintf("%s line %d:%d: %s", p.Part, p.Line, p.Column, p.Message)
	case p.Path != "":
		return fmt.Sprintf("%s%s: %s", p.Part, p.Path, p.Message)
	}
	return p.Part + ": " + p.Message
}

// Compiler turns Checks into Sets and remembers them by content. It is safe for
// concurrent use. It never parses a script itself: the sandbox does.
type Compiler struct {
	runner script.Runner
	max    int

	mu    sync.Mutex
	order *list.List // of *compiled, newest use first
	byKey map[[sha256.Size]byte]*list.Element
}

type compiled struct {
	key      [sha256.Size]byte
	set      *Set
	problems []Problem
}

// NewCompiler returns a Compiler that sends scripts to runner.
func NewCompiler(runner script.Runner, o Options) *Compiler {
	if o.CacheEntries <= 0 {
		o.CacheEntries = DefaultCacheEntries
	}
	return &Compiler{runner: runner, max: o.CacheEntries, order: list.New(), byKey: map[[sha256.Size]byte]*list.Element{}}
}

// Compile returns the Set of checks, or the problems that keep it from being
// one. The error is the sandbox's (ErrUnavailable) or ctx's: nothing was learnt
// about the checks then.
func (c *Compiler) Compile(ctx context.Context, owner Owner, checks Checks) (*Set, []Problem, error) {
	key := keyOf(owner, checks)
	if hit := c.get(key); hit != nil {
		return hit.set, hit.problems, nil
	}
	set := &Set{owner: owner, runner: c.runner, validators: checks.Validators, routes: checks.Routes}
	problems := set.compileFields(checks.RequiredFields)
	problems = append(problems, set.compileSchema(checks.Schema)...)
	scripts := append(append([]script.Script{}, checks.Routes...), checks.Validators...)
	if len(scripts) > 0 {
		found, err := c.runner.Check(ctx, owner.ID, scripts)
		if err != nil {
			return nil, nil, err
		}
		for _, p := range found {
			problems = append(problems, Problem{Part: p.Name, Line: p.Line, Column: p.Column, Message: p.Message})
		}
	}
	if len(problems) > 0 {
		set = nil
	}
	c.put(&compiled{key: key, set: set, problems: problems})
	return set, problems, nil
}

func (s *Set) compileFields(names []string) []Problem {
	var out []Problem
	for i, name := range names {
		f, err := parseField(name)
		if err != nil {
			out = append(out, Problem{Part: "requiredFields", Path: fmt.Sprintf("/%d", i), Message: err.Error()})
			continue
		}
		s.fields = append(s.fields, f)
	}
	return out
}

func (s *Set) compileSchema(raw json.RawMessage) []Problem {
	if len(raw) == 0 {
		return nil
	}
	sch, err := schema.Compile(raw)
	if err == nil {
		s.schema = sch
		return nil
	}
	p := Problem{Part: "schema", Message: err.Error()}
	var ce *schema.CompileError
	if errors.As(err, &ce) {
		p.Path, p.Message = ce.Path, ce.Message
	}
	return []Problem{p}
}

// keyOf digests everything that the compiled form depends on.
func keyOf(owner Owner, c Checks) [sha256.Size]byte {
	h := sha256.New()
	var n [8]byte
	part := func(s string) {
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	part(owner.ID)
	part(fmt.Sprint(owner.Trusted, len(c.RequiredFields), len(c.Validators), len(c.Routes)))
	for _, f := range c.RequiredFields {
		part(f)
	}
	part(string(c.Schema))
	for _, group := range [][]script.Script{c.Validators, c.Routes} {
		for _, s := range group {
			part(s.Name)
			part(string(s.Kind))
			part(s.Source)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (c *Compiler) get(key [sha256.Size]byte) *compiled {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byKey[key]
	if !ok {
		return nil
	}
	c.order.MoveToFront(el)
	return el.Value.(*compiled)
}

func (c *Compiler) put(e *compiled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[e.key]; ok {
		return
	}
	c.byKey[e.key] = c.order.PushFront(e)
	if c.order.Len() > c.max {
		old := c.order.Remove(c.order.Back()).(*compiled)
		delete(c.byKey, old.key)
	}
}
