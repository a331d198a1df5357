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

// ErrUnavailable reports that the script sandbox could not answer. It implies nothing about the checks; retry
// the call.
var ErrUnavailable = script.ErrUnavailable

// ErrTooCostly and ErrNoReader are errors of script.Pool.Read.
var (
	ErrTooCostly = script.ErrTooCostly
	ErrNoReader  = script.ErrNoReader
)

// QuarantineError reports that the caller's data killed workers that ran another owner's scripts. It wraps
// ErrUnavailable.
type QuarantineError = script.QuarantineError

// Meter sums the sandbox's work for all calls that are made with its context.
type Meter = script.Meter

// WithMeter returns a context and the Meter of all sandbox calls that are made with it.
func WithMeter(ctx context.Context) (context.Context, *Meter) { return script.WithMeter(ctx) }

// MeterOf returns the meter of ctx, or nil if it has none.
func MeterOf(ctx context.Context) *Meter { return script.MeterOf(ctx) }

// DefaultCacheBytes is the default of Options.CacheBytes.
const DefaultCacheBytes = 32 << 20

// Options configure a Compiler. The zero value has sensible defaults.
type Options struct {
	// CacheBytes limits the estimated memory of all cached Sets. One owner can use an eighth of it. 0 means
	// DefaultCacheBytes.
	CacheBytes int
}

// Values of Problem.Part other than the names of scripts.
const (
	PartRequiredFields = "requiredFields"
	PartSchema         = "schema"
)

// Problem is a part of Checks that does not compile, or a script that fails its trial run.
type Problem struct {
	// Part is PartRequiredFields, PartSchema, or a script's Name.
	Part string
	// Path is a JSON pointer into the part: into the schema, or to the index of a required field. It can be
	// "".
	Path string
	// Ran is true if the script compiled but its trial run failed.
	Ran bool
	// Line and Column are a position in the script's source, 0 when unknown.
	Line, Column int
	// Message is one sentence.
	Message string
}

// String returns the part, the position and the message.
func (p Problem) String() string {
	switch {
	case p.Line > 0:
		return fmt.Sprintf("%s line %d:%d: %s", p.Part, p.Line, p.Column, p.Message)
	case p.Path != "":
		return fmt.Sprintf("%s%s: %s", p.Part, p.Path, p.Message)
	}
	return p.Part + ": " + p.Message
}

// Compiler compiles Checks into Sets and caches them by content. It is safe for concurrent use.
//
// It never parses a script in this process, nor a schema that could be harmful. These go to the sandbox: all
// scripts, all schemas of untrusted owners, and those schemas of trusted owners that may be costly (see
// FindSandboxing).
type Compiler struct {
	runner script.Runner
	cache  cache
}

// NewCompiler returns a Compiler that sends scripts and schemas to runner. A nil runner means that there is
// no sandbox. This process then applies all schemas of trusted owners, and schemas of others only if they
// are simple.
func NewCompiler(runner script.Runner, o Options) *Compiler {
	if o.CacheBytes <= 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	return &Compiler{runner: runner, cache: newCache(o.CacheBytes)}
}

// Compile returns the Set of checks, or the problems that prevent it. caller is the principal for whom the
// sandbox works, if it is needed. The error is the sandbox's (ErrUnavailable) or ctx's and implies nothing
// about the checks.
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
	// Problems from the sandbox can be temporary, such as a time limit on a busy machine or a quarantine, so
	// they are not cached.
	if len(passing) == 0 {
		c.cache.put(key, entry{owner: owner, checks: checks, set: set, problems: lasting})
	}
	return set, append(lasting, passing...), nil
}

// Recall returns the cached Set of checks. It returns nil if they are not cached or have problems. It never
// calls the sandbox.
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

// compileSchema compiles a schema in this process or in the sandbox. Problems found in this process are
// lasting and can be cached; those found in the sandbox are passing.
func (c *Compiler) compileSchema(ctx context.Context, caller string, set *Set, raw json.RawMessage) (lasting, passing []Problem, err error) {
	if len(raw) == 0 {
		return nil, nil, nil
	}
	switch why := FindSandboxing(set.owner, raw); {
	case set.owner.Trusted && (why == "" || c.runner == nil), c.runner == nil && schema.Simple(raw):
		set.schema, err = schema.Compile(raw)
		return newSchemaProblems(err), nil, nil
	case c.runner == nil:
		return []Problem{{Part: PartSchema, Message: "this schema needs a sandbox, but none is configured: " + schema.FindCost(raw)}}, nil, nil
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

// FindSandboxing returns why a schema runs in the sandbox, as a clause that begins with "it". It returns "" if
// the schema runs in this process.
func FindSandboxing(owner Owner, raw json.RawMessage) string {
	if !owner.Trusted {
		return "it was not loaded by an operator"
	}
	return schema.FindCost(raw)
}

// FindMisspelt returns the keys of a schema that look like misspelt keywords.
func FindMisspelt(raw json.RawMessage) []Problem {
	var out []Problem
	for _, err := range schema.FindMisspelt(raw) {
		out = append(out, newSchemaProblems(err)...)
	}
	return out
}

// Try runs each script of a batch once, alone, on the batch's data and context. It returns a Problem for each
// script that throws or returns an invalid result, and none if the runner cannot try scripts.
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

// splitPath moves the path of a message in the form of schema.CompileError ("at /path: message") into Path.
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

// cache holds compiled checks. Every decision compiles its layers' checks, so a hit must be cheap. The key
// is therefore a fast hash, and get compares the entry's checks with the wanted ones.
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

// ownerShare is the divisor that gives one owner's maximum share of the cache.
const ownerShare = 8

func newCache(bytes int) cache {
	return cache{seed: maphash.MakeSeed(), kept: sharedcache.New[uint64, *entry](bytes, bytes/ownerShare)}
}

// hashKey hashes everything that the compiled form depends on.
func (c *cache) hashKey(owner Owner, checks Checks) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	// Lengths are left out: ambiguous concatenations are harmless because get compares the checks.
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
	e, ok := c.kept.Get(key) // entries are immutable
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

// estimateSize estimates the memory of compiled checks, in bytes.
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
