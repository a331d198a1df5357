package validators

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/internal/sharedcache"
	"github.com/gavel-mcp/gavel/validators/schema"
	"github.com/gavel-mcp/gavel/validators/script"
)

// ErrUnavailable reports that the script sandbox could not answer. It says nothing about
// the checks; retry the call.
var ErrUnavailable = script.ErrUnavailable

// ErrTooCostly and ErrNoReader are those of the sandbox's Read.
var (
	ErrTooCostly = script.ErrTooCostly
	ErrNoReader  = script.ErrNoReader
)

// QuarantineError reports a caller whose data killed workers in another owner's scripts;
// it wraps ErrUnavailable.
type QuarantineError = script.QuarantineError

// Meter adds up what the sandbox does for the calls that are made with its context.
type Meter = script.Meter

// WithMeter returns a context whose calls of the sandbox are metered.
func WithMeter(ctx context.Context) (context.Context, *Meter) { return script.WithMeter(ctx) }

// MeterOf returns the meter of a context; nil when it has none.
func MeterOf(ctx context.Context) *Meter { return script.MeterOf(ctx) }

// DefaultCacheBytes is how much memory a Compiler keeps compiled Sets in.
const DefaultCacheBytes = 32 << 20

// Options of a Compiler. The zero value has sensible defaults.
type Options struct {
	// CacheBytes bounds the compiled Sets kept, by about what they take in memory; those
	// of one owner take an eighth of it at most. 0 is DefaultCacheBytes.
	CacheBytes int
}

// The parts of a Problem, other than a script's name.
const (
	PartRequiredFields = "requiredFields"
	PartSchema         = "schema"
)

// Problem is a part of Checks that does not compile, or a script that fails its trial run.
type Problem struct {
	// Part says which: PartRequiredFields, PartSchema, or a script's Name.
	Part string
	// Path is a JSON pointer into that part: into the schema, or the index of a
	// required field. "" when there is none.
	Path string
	// Ran says that a script compiles, and that its trial run did not end well.
	Ran bool
	// Line and Column stand within a script's source, 0 when unknown.
	Line, Column int
	// Message is one sentence.
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
// concurrent use.
//
// It never parses a script itself, and no schema that could hurt: scripts and
// the schemas of strangers go to the sandbox, and so do those schemas of an
// operator that schema.Simple does not vouch for (see FindSandboxing).
type Compiler struct {
	runner script.Runner
	cache  cache
}

// NewCompiler returns a Compiler that sends scripts to runner, and schemas. A nil runner
// is a sandbox that is never available: an operator's schemas are left to this process, and
// strangers' only when they are simple.
func NewCompiler(runner script.Runner, o Options) *Compiler {
	if o.CacheBytes <= 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	return &Compiler{runner: runner, cache: newCache(o.CacheBytes)}
}

// Compile returns the Set of checks, or the problems that keep it from being
// one. Where the sandbox is needed, it works for caller. The error is the sandbox's
// (ErrUnavailable) or ctx's, and says nothing about the checks.
func (c *Compiler) Compile(ctx context.Context, caller string, owner Owner, checks Checks) (*Set, []Problem, error) {
	key := c.cache.hashKey(owner, checks)
	if set, problems, hit := c.cache.get(key, owner, checks); hit {
		return set, problems, nil
	}
	checks = cloneChecks(checks)
	set := &Set{owner: owner, runner: c.runner, validators: checks.Validators, routes: checks.Routes}
	lasting := set.compileFields(checks.RequiredFields)
	found, passing, err := c.compileSchema(ctx, caller, set, checks.Schema)
	if err != nil {
		return nil, nil, err
	}
	lasting = append(lasting, found...)
	found, err = c.checkScripts(ctx, caller, owner, slices.Concat(checks.Routes, checks.Validators))
	if err != nil {
		return nil, nil, err
	}
	passing = append(passing, found...)
	if len(lasting)+len(passing) > 0 {
		set = nil
	}
	// Problems from the sandbox can pass, such as a time limit on a busy machine or a
	// quarantine, so they are not cached.
	if len(passing) == 0 {
		c.cache.put(key, entry{owner: owner, checks: checks, set: set, problems: lasting})
	}
	return set, append(lasting, passing...), nil
}

// Recall is the Set of checks that were compiled before and are still kept; nil when they are not,
// or have problems. It asks no sandbox.
func (c *Compiler) Recall(owner Owner, checks Checks) *Set {
	set, _, _ := c.cache.get(c.cache.hashKey(owner, checks), owner, checks)
	return set
}

func cloneChecks(c Checks) Checks {
	return Checks{
		RequiredFields: slices.Clone(c.RequiredFields),
		Schema:         bytes.Clone(c.Schema),
		Validators:     slices.Clone(c.Validators),
		Routes:         slices.Clone(c.Routes),
	}
}

func (s *Set) compileFields(names []string) []Problem {
	var out []Problem
	for i, name := range names {
		f, err := parseField(name)
		if err != nil {
			out = append(out, Problem{Part: PartRequiredFields, Path: "/" + strconv.Itoa(i), Message: err.Error()})
			continue
		}
		s.fields = append(s.fields, f)
	}
	return out
}

// compileSchema compiles a schema where it may run. Problems are lasting when
// this process found them.
func (c *Compiler) compileSchema(ctx context.Context, caller string, set *Set, raw json.RawMessage) (lasting, passing []Problem, err error) {
	if len(raw) == 0 {
		return nil, nil, nil
	}
	switch why := FindSandboxing(set.owner, raw); {
	case set.owner.Trusted && (why == "" || c.runner == nil), c.runner == nil && schema.Simple(raw):
		set.schema, err = schema.Compile(raw)
		return newSchemaProblems(err), nil, nil
	case c.runner == nil:
		return []Problem{{Part: PartSchema, Message: "this schema needs a sandbox, and none is configured: " + schema.FindCost(raw)}}, nil, nil
	}
	source := script.Script{Name: PartSchema, Kind: script.Schema, Source: string(raw)}
	found, err := c.runner.Check(ctx, caller, set.owner, []script.Script{source})
	if err != nil {
		return nil, nil, err
	}
	set.remote = &source
	for _, p := range found {
		passing = append(passing, Problem{Part: PartSchema, Message: p.Message}.splitPath())
	}
	return nil, passing, nil
}

// FindSandboxing says why a schema runs in the sandbox, as "it ...", and "" when it runs in this
// process.
func FindSandboxing(owner Owner, raw json.RawMessage) string {
	if !owner.Trusted {
		return "it was not loaded by an operator"
	}
	return schema.FindCost(raw)
}

// FindMisspelt returns the keys of a schema that look like keywords and are none.
func FindMisspelt(raw json.RawMessage) []Problem {
	var out []Problem
	for _, err := range schema.FindMisspelt(raw) {
		out = append(out, newSchemaProblems(err)...)
	}
	return out
}

// Try runs scripts once, each alone, on a batch's data and context, and returns those that give no
// answer: that throw, or return what is none. Where the sandbox cannot try, there are none.
func (c *Compiler) Try(ctx context.Context, b script.Batch) ([]Problem, error) {
	runner, ok := c.runner.(interface {
		Try(ctx context.Context, b script.Batch) ([]script.Problem, error)
	})
	if !ok {
		return nil, nil
	}
	found, err := runner.Try(ctx, b)
	return convertProblems(found), err
}

func newSchemaProblems(err error) []Problem {
	if err == nil {
		return nil
	}
	p := Problem{Part: PartSchema, Message: err.Error()}
	if ce, ok := errors.AsType[*schema.CompileError](err); ok {
		p.Path, p.Message = ce.Path, ce.Message
	}
	return []Problem{p}
}

// splitPath splits a message of schema.CompileError's form into path and message.
func (p Problem) splitPath() Problem {
	rest, ok := strings.CutPrefix(p.Message, "at /")
	if !ok {
		return p
	}
	if path, message, ok := strings.Cut(rest, ": "); ok {
		p.Path, p.Message = "/"+path, message
	}
	return p
}

func (c *Compiler) checkScripts(ctx context.Context, caller string, owner Owner, scripts []script.Script) ([]Problem, error) {
	if len(scripts) == 0 {
		return nil, nil
	}
	if c.runner == nil {
		return nil, ErrUnavailable
	}
	found, err := c.runner.Check(ctx, caller, owner, scripts)
	if err != nil {
		return nil, err
	}
	return convertProblems(found), nil
}

func convertProblems(found []script.Problem) []Problem {
	out := make([]Problem, 0, len(found))
	for _, p := range found {
		out = append(out, Problem{Part: p.Name, Ran: p.Ran, Line: p.Line, Column: p.Column, Message: p.Message})
	}
	return out
}

// cache keeps compiled checks. Layers compile on every decision, so a hit must cost
// little: the key is a fast hash, and what it finds is compared with what was asked for.
type cache struct {
	seed maphash.Seed
	kept *sharedcache.Cache[uint64, *entry]
}

type entry struct {
	owner    Owner
	checks   Checks
	set      *Set
	problems []Problem
}

// ownerShare is the part of a cache that the checks of one owner may take.
const ownerShare = 8

func newCache(bytes int) cache {
	return cache{seed: maphash.MakeSeed(), kept: sharedcache.New[uint64, *entry](bytes, bytes/ownerShare)}
}

// hashKey hashes everything that the compiled form depends on.
func (c *cache) hashKey(owner Owner, checks Checks) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	// Lengths need not be told apart here: get compares.
	_, _ = h.WriteString(owner.ID)
	if owner.Trusted {
		_ = h.WriteByte(1)
	}
	for _, f := range checks.RequiredFields {
		_, _ = h.WriteString(f)
		_ = h.WriteByte(0)
	}
	_, _ = h.Write(checks.Schema)
	for _, group := range [...][]script.Script{checks.Validators, checks.Routes} {
		_ = h.WriteByte(0)
		for _, s := range group {
			_, _ = h.WriteString(s.Name)
			_, _ = h.WriteString(s.Source)
		}
	}
	return h.Sum64()
}

func (c *cache) get(key uint64, owner Owner, checks Checks) (*Set, []Problem, bool) {
	e, ok := c.kept.Get(key) // never changed once it is in
	if !ok || e.owner != owner || !sameChecks(e.checks, checks) {
		return nil, nil, false
	}
	return e.set, slices.Clone(e.problems), true
}

func sameChecks(a, b Checks) bool {
	return slices.Equal(a.RequiredFields, b.RequiredFields) && bytes.Equal(a.Schema, b.Schema) &&
		slices.Equal(a.Validators, b.Validators) && slices.Equal(a.Routes, b.Routes)
}

func (c *cache) put(key uint64, e entry) {
	owner := "stranger " + e.owner.ID
	if e.owner.Trusted {
		owner = "operator"
	}
	c.kept.Put(key, owner, estimateSize(e.checks), &e)
}

// estimateSize is about how many bytes compiled checks take in memory.
func estimateSize(c Checks) int {
	bytes := 512 + 8*len(c.Schema)
	for _, f := range c.RequiredFields {
		bytes += 96 + 2*len(f)
	}
	for _, group := range [...][]script.Script{c.Validators, c.Routes} {
		for _, s := range group {
			bytes += 96 + len(s.Name) + len(s.Source)
		}
	}
	return bytes
}
