package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// Quotas limit what one principal may use. A zero field sets no limit; operators have no quotas.
type Quotas struct {
	Definitions int           // workflows that it owns
	Running     int           // its instances that have not ended
	Bytes       int64         // recorded within an hour
	WorkerTime  time.Duration // sandbox time for its requests and definitions, within an hour
	ModelTokens int64         // read and written by models for its requests, within an hour

	// Shared counts the hourly quotas across all processes over the store; each learns the others' counts
	// within a second. Otherwise each process counts only its own use.
	Shared bool

	// Limits of each definition that it submits.
	States, Transitions, SchemaBytes int
}

func (q Quotas) bounds() workflow.Bounds {
	return workflow.Bounds{States: q.States, Transitions: q.Transitions, SchemaBytes: q.SchemaBytes}
}

// accountTime is the period of the hourly quotas.
const accountTime = time.Hour

// maxAccounts limits the number of principals in memory.
const maxAccounts = 10_000

// recountAfter is the minimum time before running instances are counted again after a count that found too
// many.
const recountAfter = time.Second

// ledger tracks what principals use. It is safe for concurrent use.
type ledger struct {
	quotas   atomic.Pointer[Quotas]
	now      func() time.Time
	counters store.Counters

	mu       sync.Mutex
	accounts map[string]*account
}

// budget is a resource with an hourly quota.
type budget int

const (
	budgetBytes  budget = iota // recorded bytes
	budgetWorker               // sandbox time, in nanoseconds
	budgetTokens               // model tokens
	budgets
)

// cost is an amount of each budget.
type cost [budgets]int64

func (q Quotas) limits() cost { return cost{q.Bytes, int64(q.WorkerTime), q.ModelTokens} }

// account holds one principal's usage since a time.
type account struct {
	since time.Time
	spent cost
	// maxCost is the highest cost of one request; reserved is the expected cost of those in flight.
	maxCost, reserved cost
	requests          int // number in flight that still refer to the account
	// freeStarts is how many more starts are possible before running instances must be counted in the store again.
	// pendingStarts is how many starts have taken a place but are not in the store yet.
	freeStarts, pendingStarts int
	countedAt                 time.Time
	// unsent is the part of spent that is not yet shared with other processes; sharedAt is the time of the
	// last exchange.
	unsent    cost
	sharedAt  time.Time
	isSharing bool // an exchange is scheduled
}

func newLedger(q Quotas, now func() time.Time, counters store.Counters) *ledger {
	l := &ledger{now: now, counters: counters, accounts: map[string]*account{}}
	l.quotas.Store(&q)
	return l
}

// SetQuotas replaces Config.Quotas. Earlier use still counts; running instances are counted again.
func (e *Engine) SetQuotas(q Quotas) {
	l := e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quotas.Store(&q)
	for _, a := range l.accounts {
		a.freeStarts, a.countedAt = 0, time.Time{}
	}
}

// accountOf returns a principal's account. Callers must hold the lock.
func (l *ledger) accountOf(principal string) *account {
	now := l.now()
	a := l.accounts[principal]
	if a == nil {
		if len(l.accounts) >= maxAccounts {
			l.evictAccounts(now)
		}
		a = &account{since: now}
		l.accounts[principal] = a
	}
	if now.Sub(a.since) >= accountTime || now.Before(a.since) {
		a.since, a.spent, a.maxCost = now, cost{}, cost{}
	}
	return a
}

// evictAccounts drops accounts whose hour is over. If that is not enough, it drops an eighth of all
// accounts, so that the scan is not repeated for each new principal.
func (l *ledger) evictAccounts(now time.Time) {
	for name, a := range l.accounts {
		if now.Sub(a.since) >= accountTime && a.requests == 0 && !a.isSharing {
			delete(l.accounts, name)
		}
	}
	if len(l.accounts) < maxAccounts {
		return
	}
	n := maxAccounts / 8
	for name, a := range l.accounts {
		if a.requests > 0 || a.isSharing {
			continue
		}
		if n--; n < 0 {
			return
		}
		delete(l.accounts, name)
	}
}

func (l *ledger) spentError(a *account, b budget) error {
	wait := max(a.since.Add(accountTime).Sub(l.now()), time.Second)
	e := &Error{RetryAfter: wait, Hint: fmt.Sprintf("Wait %s, or ask an operator for more.", wait.Round(time.Second))}
	switch used, most := a.spent[b], l.quotas.Load().limits()[b]; b {
	case budgetBytes:
		e.Code, e.Message = CodeBytesSpent, fmt.Sprintf("%d bytes were recorded for your requests within the hour; the quota is %d.", used, most)
	case budgetWorker:
		e.Code = CodeWorkerTimeSpent
		e.Message = fmt.Sprintf("Your requests and definitions used %s of sandbox time within the hour; the quota is %s.", time.Duration(used).Round(time.Millisecond), time.Duration(most))
	default:
		e.Code, e.Message = CodeModelTokensSpent, fmt.Sprintf("Your requests used %d model tokens within the hour; the quota is %d.", used, most)
	}
	return e
}

func (l *ledger) checkBudget(ctx context.Context, p Principal, b budget) error {
	most := l.quotas.Load().limits()[b]
	if most == 0 || p.Role == RoleOperator {
		return nil
	}
	if err := l.share(ctx, p.ID); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accountOf(p.ID); a.spent[b] >= most {
		return l.spentError(a, b)
	}
	return nil
}

func (l *ledger) charge(p Principal, b budget, n int64) {
	if l.quotas.Load().limits()[b] == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spend(p.ID, l.accountOf(p.ID), b, n)
}

func countOf(n *int) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

func (e *Engine) askJudge(ctx context.Context, p Principal, c judge.Case, granted *store.Review) (judge.Verdict, error) {
	pay, err := e.ledger.reserve(ctx, p, c)
	if err != nil {
		return judge.Verdict{}, err
	}
	c.Caller = p.ID
	ctx, meter := validators.WithMeter(ctx)
	decide := e.cfg.Judge.Decide
	if granted != nil {
		decide = func(ctx context.Context, c judge.Case) (judge.Verdict, error) {
			return e.cfg.Judge.Approve(ctx, c, judge.Review{By: granted.By, Reason: granted.Reason})
		}
	}
	v, err := decide(ctx, c)
	took := cost{budgetWorker: int64(meter.Worked())} // charged even if the caller cancels
	for _, o := range v.Opinions {
		if isModelAnswer(o) {
			took[budgetTokens] += countOf(o.Model.PromptTokens) + countOf(o.Model.CompletionTokens)
		}
	}
	pay(took)
	if err != nil {
		return judge.Verdict{}, judgeError(err)
	}
	return v, nil
}

// AskModel queries a model for a principal, within Quotas.ModelTokens; ask returns how many tokens the
// model read and wrote. The error has CodeModelTokensSpent, or is that of ask.
func (e *Engine) AskModel(ctx context.Context, p Principal, ask func(context.Context) (tokens int64, err error)) error {
	if err := e.ledger.checkBudget(ctx, p, budgetTokens); err != nil {
		return err
	}
	took, err := ask(ctx)
	e.ledger.charge(p, budgetTokens, took)
	return err
}

// isModelAnswer reports whether an opinion comes from a new answer of a model, not from a cached or reused
// one.
func isModelAnswer(o judge.Opinion) bool {
	return o.Model != nil && !o.Model.CacheHit && !o.Model.Reused
}

// mayDefine rejects a new name if the principal's quota of workflows is used up, or if the name could be
// mistaken for an operator's.
func (e *Engine) mayDefine(ctx context.Context, p Principal, name string, exists bool) error {
	if exists || p.Role == RoleOperator {
		return nil
	}
	if err := e.checkName(ctx, p, name, false); err != nil {
		return err
	}
	most := e.ledger.quotas.Load().Definitions
	if most == 0 {
		return nil
	}
	all, err := e.rules.listDefinitions(ctx)
	if err != nil {
		return StoreError("count the definitions", err)
	}
	own := 0
	for _, d := range all {
		if d.Owner == p.ID && !d.Operator {
			own++
		}
	}
	if own >= most {
		return newError(CodeTooManyDefinitions, "/name", "You have defined %d workflows; the quota is %d.", own, most).
			withHint("Define a new version of an existing workflow, or ask an operator.")
	}
	return nil
}

// mayStart takes a place for one more running instance. The caller must report to finish whether the instance
// was stored; if not, the place is free again. The store is queried only when all places found by the last
// count are used up, so places of ended instances become free with the next count.
func (e *Engine) mayStart(ctx context.Context, p Principal) (finish func(stored bool), err error) {
	l := e.ledger
	most := l.quotas.Load().Running
	if most == 0 || p.Role == RoleOperator {
		return func(bool) {}, nil
	}
	if finish = l.reserveStart(p.ID); finish != nil {
		return finish, nil
	}
	release, err := e.startCounts.lockCounts(ctx, p, "starts")
	if err != nil {
		return nil, err
	}
	defer release()
	if finish = l.reserveStart(p.ID); finish != nil { // another request has just counted
		return finish, nil
	}
	starting, recent := l.pendingStarts(p.ID)
	if recent {
		return nil, tooManyRunning(most)
	}
	n := 0
	for _, err := range e.cfg.Store.Instances(ctx, store.InstanceQuery{Owner: p.ID, Status: record.Running, Heads: true, Limit: most}) {
		if err != nil {
			return nil, StoreError("count the instances", err)
		}
		n++
	}
	l.recordFreeStarts(p.ID, most-n-starting)
	if finish = l.reserveStart(p.ID); finish != nil {
		return finish, nil
	}
	return nil, tooManyRunning(most)
}

// lockCounts waits until no other request of the principal counts or adds to the same resource in the
// store.
func (w *scopeLocks) lockCounts(ctx context.Context, p Principal, what string) (release func(), err error) {
	if release, _ = w.acquire(ctx.Done(), what+" "+p.ID); release == nil {
		return nil, StoreError("check your quota", ctx.Err())
	}
	return release, nil
}

func tooManyRunning(most int) error {
	return &Error{
		Code: CodeTooManyInstances, RetryAfter: recountAfter, Message: fmt.Sprintf("You have %d running instances, which is the quota.", most),
		Hint: "Complete or cancel some of them, or ask an operator.",
	}
}

// reserveStart takes a place without a count, or returns nil if none is left.
func (l *ledger) reserveStart(owner string) (finish func(stored bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountOf(owner)
	if a.freeStarts <= 0 {
		return nil
	}
	a.freeStarts--
	a.pendingStarts++
	a.requests++
	return func(stored bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		a.requests--
		if a.pendingStarts--; !stored {
			a.freeStarts++
		}
	}
}

// pendingStarts returns how many starts a count would miss. recent reports that the last count found no free
// place and is too recent to repeat.
func (l *ledger) pendingStarts(owner string) (starting int, recent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountOf(owner)
	return a.pendingStarts, !a.countedAt.IsZero() && l.now().Sub(a.countedAt) < recountAfter
}

func (l *ledger) recordFreeStarts(owner string, places int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountOf(owner)
	if l.quotas.Load().Shared {
		places = (places + freeStartDivisor - 1) / freeStartDivisor
	}
	if a.freeStarts = places; places <= 0 {
		a.countedAt = l.now()
	} else {
		a.countedAt = time.Time{}
	}
}
