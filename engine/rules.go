package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// rules reads and writes the rules of a store. Everything that decides must read rules through it. It
// returns only rules that are sealed with the key, and none while the chain is broken or ends before a
// rule that was already seen. It is safe for concurrent use.
type rules struct {
	store         store.Store
	sealer        *record.RuleSealer
	addLock       chan struct{} // holds one token: rules are added one at a time
	showUntrusted bool          // return rules even if their seals are wrong

	mu          sync.Mutex
	end         store.RuleHead // the chain was followed up to here
	resealCount int            // how often all rules were resealed
	counts      map[string]ruleCounts
	configs     *simplelru.LRU[string, []store.JudgeConfig] // by workflow, verified; dropped when one is added
}

// ruleCounts is the state of a workflow in the chain.
type ruleCounts struct {
	version  int // newest version of the definition, 0 for none
	operator int // newest version that an operator defined, 0 for none
	revision int // newest revision of the judge configuration
	configs  int // number of revisions
}

// maxCachedConfigs limits the number of workflows whose judge configurations are cached.
const maxCachedConfigs = 256

func newRules(db store.Store, master []byte, show bool) *rules {
	configs, _ := simplelru.NewLRU[string, []store.JudgeConfig](maxCachedConfigs, nil) // fails only for size 0
	r := &rules{
		store: db, sealer: record.NewRuleSealer(master), showUntrusted: show, addLock: make(chan struct{}, 1),
		counts: map[string]ruleCounts{}, configs: configs,
	}
	r.addLock <- struct{}{}
	return r
}

// untrustedRule returns the error for rules that differ from their sealed form. Only the cause, which the
// operator sees, names the row, because not every caller may know of the workflow.
func untrustedRule(format string, args ...any) *Error {
	return newError(CodeUntrustedRules, "", "A definition or judge configuration in the store differs from its sealed form.").
		withHint("Nothing was decided or recorded. Ask the operator to run gavel verify, which names the change.").withCause(fmt.Errorf(format, args...))
}

// refresh follows the chain to its present end.
func (r *rules) refresh(ctx context.Context) error {
	for {
		r.mu.Lock()
		seen, sealings := r.end, r.resealCount
		r.mu.Unlock()
		head, added, err := r.store.Rules(ctx, seen.Position)
		if err != nil {
			return StoreError("read the chain of rules", err)
		}
		r.mu.Lock()
		if sealings == r.resealCount {
			defer r.mu.Unlock()
			return r.follow(seen, head, added)
		}
		r.mu.Unlock() // all rules were resealed: the rules just read belong to the old chain
	}
}

// follow checks the rules that were added after the last known end. Callers must hold the lock.
func (r *rules) follow(seen, head store.RuleHead, added []store.Rule) error {
	switch {
	case head.Position < seen.Position, head.Position == seen.Position && head.Hash != seen.Hash:
		return untrustedRule("the chain of rules ends at place %d with %.12q, but ended earlier at place %d with %.12q: an older store was restored, or the newest rules were removed",
			head.Position, head.Hash, seen.Position, seen.Hash)
	case head.Position <= r.end.Position:
		return nil
	}
	from := r.end.Position // another request may have advanced it in the meantime
	for _, rule := range added {
		if rule.Seal().Position <= from {
			continue
		}
		if err := r.followRule(rule); err != nil {
			return err
		}
	}
	if r.end.Position < head.Position {
		return untrustedRule("the rules from place %d to %d are missing", r.end.Position+1, head.Position)
	}
	return nil
}

// loadHead returns the end of the chain as anchors name it. It returns the zero Head if the chain is
// broken, so that inserted rules are not signed.
func (r *rules) loadHead(ctx context.Context) (record.Head, error) {
	switch err := r.refresh(ctx); {
	case CodeOf(err) == CodeUntrustedRules:
		return record.Head{}, nil
	case err != nil:
		return record.Head{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return record.Head{Instance: record.RuleChain, Seq: r.end.Position, Hash: r.end.Hash}, nil
}

func (r *rules) followRule(rule store.Rule) error {
	seal := rule.Seal()
	if err := r.end.CheckNext(rule); err != nil {
		return untrustedRule("%w", err)
	}
	if err := r.sealer.Check(seal, rule.Parts()...); err != nil {
		return untrustedRule("%s: %w", rule, err)
	}
	name := rule.Workflow()
	of := r.counts[name]
	newest := &of.version
	if rule.Config != nil {
		newest = &of.revision
		of.configs++
		r.configs.Remove(name)
	}
	if rule.Number() <= *newest {
		return untrustedRule("%s follows number %d in the chain", rule, *newest)
	}
	*newest = rule.Number()
	if rule.Definition != nil && rule.Definition.Operator {
		of.operator = rule.Number()
	}
	r.counts[name] = of
	r.end = store.RuleHead{Position: seal.Position, Hash: seal.Hash}
	return nil
}

// countRules returns the state of a workflow in the chain, as far as the chain was followed.
func (r *rules) countRules(name string) ruleCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[name]
}

// loadDefinition is Store.Definition restricted to sealed definitions.
func (r *rules) loadDefinition(ctx context.Context, name string, version int) (store.Definition, error) {
	if r.showUntrusted {
		return r.store.Definition(ctx, name, version) // the caller wraps the error
	}
	if version > 0 { // a version never changes, so its seal is sufficient
		d, err := r.store.Definition(ctx, name, version)
		switch {
		case errors.Is(err, store.ErrNotFound): // a broken chain is the more important error
			return d, cmp.Or(r.refresh(ctx), err)
		case err != nil:
			return d, err // the caller wraps the error
		}
		return d, r.checkDefinition(d, name)
	}
	for least := 0; ; {
		d, err := r.store.Definition(ctx, name, 0)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return d, err // the caller wraps the error
		}
		if err := r.refresh(ctx); err != nil {
			return store.Definition{}, err
		}
		count := r.countRules(name)
		switch {
		case d.Version > count.version:
			return store.Definition{}, untrustedRule("version %d of the definition %s is not in the chain, which has %d", d.Version, name, count.version)
		case d.Version == count.version && err != nil:
			return d, err // not found
		case d.Version == count.version:
			return d, r.checkDefinition(d, name)
		case d.Version < least:
			return store.Definition{}, untrustedRule("version %d of the definition %s is missing", least, name)
		}
		least = count.version // it was added in the meantime, or removed: then the next pass finds it missing again
	}
}

// isNewest reports whether a sealed version is the newest of its name. It reads the end of the chain but
// no definition.
func (r *rules) isNewest(ctx context.Context, name string, version int) (bool, error) {
	if r.showUntrusted {
		return false, nil // the chain was not followed
	}
	if err := r.refresh(ctx); err != nil {
		return false, err
	}
	return r.countRules(name).version == version, nil
}

// newestVersion returns the newest version of a definition according to the chain, 0 if it is uncertain or
// there is none. It reads no definition.
func (r *rules) newestVersion(ctx context.Context, name string) int {
	if r.showUntrusted || r.refresh(ctx) != nil { // loadDefinition returns the cause
		return 0
	}
	return r.countRules(name).version
}

// findNewestOperatorVersion returns the newest version of a definition that an operator made, 0 for none.
func (r *rules) findNewestOperatorVersion(ctx context.Context, name string) (int, error) {
	if r.showUntrusted { // the chain was not followed
		d, err := r.store.Definition(ctx, name, 0)
		for err == nil && !d.Operator && d.Version > 1 {
			d, err = r.store.Definition(ctx, name, d.Version-1)
		}
		if errors.Is(err, store.ErrNotFound) || err == nil && !d.Operator {
			return 0, nil
		}
		return d.Version, err // the caller wraps the error
	}
	if err := r.refresh(ctx); err != nil {
		return 0, err
	}
	return r.countRules(name).operator, nil
}

// listOperatorVersions returns the newest operator-made version of each definition, by name. It reads no
// definition.
func (r *rules) listOperatorVersions(ctx context.Context) (map[string]int, error) {
	if r.showUntrusted { // the chain was not followed, and nothing is decided
		return nil, nil
	}
	if err := r.refresh(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for name, known := range r.counts {
		if known.operator > 0 {
			out[name] = known.operator
		}
	}
	return out, nil
}

func (r *rules) checkDefinition(d store.Definition, name string) error {
	if err := r.sealer.Check(d.Seal, d.Parts()...); err != nil {
		return untrustedRule("%s: %w", store.Rule{Definition: &d}, err)
	}
	if d.Name != name {
		return untrustedRule("%s is stored under %s", store.Rule{Definition: &d}, name)
	}
	return nil
}

// listDefinitions is Store.Definitions restricted to sealed definitions.
func (r *rules) listDefinitions(ctx context.Context) ([]store.Definition, error) {
	if r.showUntrusted {
		return r.store.Definitions(ctx) // the caller wraps the error
	}
	for again := false; ; again = true {
		all, err := r.store.Definitions(ctx)
		if err != nil {
			return nil, err // the caller wraps the error
		}
		if err := r.refresh(ctx); err != nil {
			return nil, err
		}
		err = r.checkNewest(all)
		if err == nil || again {
			return all, err
		} // a rule may have been added between the two reads
	}
}

func (r *rules) listNames(ctx context.Context) ([]string, error) {
	if r.showUntrusted {
		all, err := r.store.Definitions(ctx)
		names := make([]string, len(all))
		for i, d := range all {
			names[i] = d.Name
		}
		return names, err // the caller wraps the error
	}
	if err := r.refresh(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for name, known := range r.counts {
		if known.version > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (r *rules) checkNewest(all []store.Definition) error {
	newest := make(map[string]int, len(all))
	for _, d := range all {
		if err := r.checkDefinition(d, d.Name); err != nil {
			return err
		}
		newest[d.Name] = d.Version
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, count := range r.counts {
		if newest[name] != count.version {
			return untrustedRule("the newest version of the definition %s is %d, not %d", name, newest[name], count.version)
		}
	}
	return nil
}

// listConfigs is Store.JudgeConfigs restricted to sealed configurations. The caller owns the result.
func (r *rules) listConfigs(ctx context.Context, name string) ([]store.JudgeConfig, error) {
	if r.showUntrusted {
		return r.store.JudgeConfigs(ctx, name) // the caller wraps the error
	}
	if err := r.refresh(ctx); err != nil {
		return nil, err
	}
	count := r.countRules(name)
	if count.configs == 0 {
		return nil, nil
	}
	if all, ok := r.cachedConfigs(name); ok {
		return all, nil
	}
	least := count.configs
	all, err := r.store.JudgeConfigs(ctx, name)
	if err != nil {
		return nil, err // the caller wraps the error
	}
	if len(all) > count.configs { // added in the meantime, or not in the chain
		if err := r.refresh(ctx); err != nil {
			return nil, err
		}
		count = r.countRules(name)
	}
	for i, c := range all {
		if err := r.sealer.Check(c.Seal, c.Parts()...); err != nil {
			return nil, untrustedRule("%s: %w", store.Rule{Config: &c}, err)
		}
		if c.Workflow != name || (i > 0 && c.Revision <= all[i-1].Revision) {
			return nil, untrustedRule("%s is stored under %s", store.Rule{Config: &c}, name)
		}
	}
	if len(all) > count.configs || len(all) < least {
		return nil, untrustedRule("the judge of %s has %d configurations, and the chain %d", name, len(all), count.configs)
	}
	r.cacheConfigs(name, all)
	return all, nil
}

func (r *rules) cachedConfigs(name string) ([]store.JudgeConfig, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, ok := r.configs.Get(name)
	return slices.Clone(all), ok
}

// cacheConfigs caches the configurations of a workflow, unless one was added in the meantime.
func (r *rules) cacheConfigs(name string, all []store.JudgeConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts[name].configs == len(all) {
		r.configs.Add(name, slices.Clone(all))
	}
}

// addRule seals a definition or a judge configuration and stores it. It returns ErrConflict as
// Store.AddRule does, also if another rule was added in between.
func (r *rules) addRule(ctx context.Context, rule store.Rule) error {
	select {
	case <-r.addLock:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { r.addLock <- struct{}{} }()
	if err := r.refresh(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	end := r.end
	r.mu.Unlock()
	rule.SetSeal(r.sealer.Seal(end.Position+1, end.Hash, rule.Parts()...))
	return r.store.AddRule(ctx, rule)
}
