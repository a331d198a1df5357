package llm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// rungs are the rungs of the ladder, best first.
var rungs = []Rung{RungJSONSchema, RungTool, RungJSONObject, RungPrompt}

const (
	// maxNegotiation is how many times one question may be repeated in another manner.
	maxNegotiation = 4
	// ladderTTL is how long a lower manner is used before the best one is tried again, because endpoints
	// get upgraded.
	ladderTTL = 24 * time.Hour
	// poorAnswers is the number of consecutive unusable answers after which a rung counts as accepted but
	// ignored.
	poorAnswers = 2
)

// Capabilities describes how an endpoint is asked, for its operators.
type Capabilities struct {
	// URL is the URL that is called.
	URL string `json:"url"`
	// Rung is the current rung. Fixed is true if it was configured.
	Rung  Rung `json:"rung"`
	Fixed bool `json:"fixed,omitempty"`
	// Dropped lists the parameters that are not sent, because the endpoint rejected them or is known to
	// reject them. An entry name=value means that only this value was rejected.
	Dropped []string `json:"dropped,omitempty"`
	// Since is when the endpoint first answered in the current manner; zero if it has not yet.
	Since time.Time `json:"since,omitzero"`
}

// Capabilities returns the current manner of the endpoint.
func (e *endpoint) Capabilities() Capabilities {
	l := e.ladder
	l.mu.Lock()
	defer l.mu.Unlock()
	return Capabilities{
		URL: e.url(), Rung: l.manner.rung, Fixed: l.fixed,
		Dropped: slices.Clone(l.manner.refused), Since: l.since,
	}
}

type ladder struct {
	start manner
	fixed bool // the rung never changes

	mu      sync.Mutex
	manner  manner
	version int           // incremented by each change of manner
	since   time.Time     // when the current manner first worked
	guessed time.Time     // when another form was last tried after an unexplained failure
	poor    int           // consecutive unusable answers in this manner
	busy    chan struct{} // closed when the running negotiation ends; nil if there is none
}

func newLadder(start manner, fixed bool) *ladder {
	return &ladder{start: start, fixed: fixed, manner: start}
}

func (l *ladder) current() (manner, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.manner, l.version
}

// set must be called with the lock held.
func (l *ladder) set(m manner) {
	l.manner, l.since, l.poor = m, time.Time{}, 0
	l.version++
}

// enter waits for a running negotiation. If the current manner is stale, the caller leads a new one.
func (l *ladder) enter(ctx context.Context) (leads bool, err error) {
	for {
		l.mu.Lock()
		busy := l.busy
		if busy == nil {
			if leads = l.isStale(); leads {
				l.set(l.start)
				l.busy = make(chan struct{})
			}
			l.mu.Unlock()
			return leads, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return false, contextError(ctx)
		}
	}
}

// isStale reports whether a lower manner has been in use for ladderTTL.
func (l *ladder) isStale() bool {
	return !l.since.IsZero() && time.Since(l.since) >= ladderTTL && !l.manner.equal(l.start)
}

func (l *ladder) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.busy)
	l.busy = nil
}

// noteRefusal lowers the manner after a rejection, unless another caller has done so or is negotiating. If
// leads is true, the caller leads the negotiation until it calls leave. ok is false if nothing is left to
// change.
func (l *ladder) noteRefusal(version int, leading bool, lower func(manner) (manner, bool)) (leads, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !leading && (l.busy != nil || l.version != version) {
		return false, true
	}
	next, ok := lower(l.manner)
	if !ok {
		return leading, false
	}
	l.set(next)
	if !leading {
		l.busy = make(chan struct{})
	}
	return true, true
}

// guessInterval is the minimum time between two guesses. A guess tries another form with an endpoint that
// has never answered and fails without a reason.
const guessInterval = time.Minute

// guess lowers the manner by one rung for an endpoint that has never answered in it. If it returns true, the
// caller leads the negotiation.
func (l *ladder) guess(version int, leading bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, ok := l.manner.nextLower()
	if !ok || l.fixed || !l.since.IsZero() || !l.guessed.IsZero() && time.Since(l.guessed) < guessInterval || !leading && (l.busy != nil || l.version != version) {
		return false
	}
	l.guessed = time.Now()
	l.set(next)
	if !leading {
		l.busy = make(chan struct{})
	}
	return true
}

// dropGuess restores the manner before an unsuccessful guess (nil for none): an endpoint's failure on one case
// must not change how it is asked about others.
func (e *endpoint) dropGuess(before *manner, fail *Error) *Error {
	if before == nil || fail.Status < 400 || fail.Class == ClassCapability {
		return fail
	}
	e.ladder.mu.Lock()
	defer e.ladder.mu.Unlock()
	e.ladder.set(*before)
	return fail
}

// noteAnswer counts consecutive unusable answers. They show that the rung is accepted but ignored, so the next
// question uses a lower rung. Other failures reveal nothing about the manner.
func (l *ladder) noteAnswer(version int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if version != l.version {
		return
	}
	class := ClassOf(err)
	next, ok := l.manner.nextLower()
	ok = ok && !l.fixed
	switch {
	case err == nil:
		l.poor = 0
	case errors.Is(err, errRungIgnored):
		l.poor = poorAnswers
		if errors.Is(err, errNoVerdict) && !l.manner.isRefused(wordAsChoice) {
			next, ok = l.manner.without(wordAsChoice), true
		}
	case class == ClassMalformed || class == ClassEmpty:
		l.poor++
	default:
		return
	}
	if l.since.IsZero() {
		l.since = time.Now()
	}
	if ok && l.poor >= poorAnswers {
		l.set(next)
	}
}

// wrapNegotiate finds a manner that the endpoint accepts. If the endpoint rejects a parameter, the
// parameter is dropped or the question is asked one rung lower. It is also asked one rung lower if the
// endpoint ignores the rung and wraps its verdict in prose or thinking. Each attempt gets its own place and
// timeout.
//
// One caller negotiates while the others wait for the result. Slow and failing endpoints change nothing,
// with one exception. If an endpoint that has never answered sends a 500, one other form is tried, because
// some endpoints reject a form that way.
func (e *endpoint) wrapNegotiate(next Completer) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		leading, calls := false, 0
		var guessed *manner
		defer func() {
			if leading {
				e.ladder.leave()
			}
		}()
		for again := 0; ; again++ {
			if !leading {
				leads, err := e.ladder.enter(ctx)
				if err != nil {
					return Reply{}, e.annotateAny(err, calls)
				}
				leading = leads
			}
			at, version := e.ladder.current()
			reply, err := next.Complete(ctx, req)
			if len(req.Dialogue) == 0 { // a dialogue asks for no form
				e.ladder.noteAnswer(version, err)
			}
			var fail *Error
			if !errors.As(err, &fail) {
				reply.Calls += calls
				return reply, err
			}
			calls += fail.Calls
			if _, now := e.ladder.current(); errors.Is(err, errRungIgnored) && now != version && again < maxNegotiation {
				continue // one rung lower, with a nonce that ties the verdict to the question
			}
			if guessed == nil && fail.Class == ClassUpstream && fail.Status == 500 && len(req.Dialogue) == 0 && e.ladder.guess(version, leading) {
				leading, guessed = true, &at
				continue
			}
			if fail.Class != ClassCapability {
				return Reply{}, e.dropGuess(guessed, fail).afterCalls(calls)
			}
			if fail.otherwise != "" && guessed == nil {
				guessed = &at
			}
			ok := again < maxNegotiation
			if ok {
				leading, ok = e.ladder.noteRefusal(version, leading, func(at manner) (manner, bool) {
					if len(req.Dialogue) > 0 && e.sentParameter(at, fail.Param) == "" {
						return at, false // a dialogue does not use the rung
					}
					return e.lowerManner(at, fail.Param)
				})
			}
			if !ok {
				return Reply{}, e.dropGuess(guessed, e.finalRefusal(fail, again)).afterCalls(calls)
			}
		}
	})
}

func (e *Error) afterCalls(calls int) *Error {
	return e.withChange(func(e *Error) { e.Calls = calls })
}

func (e *endpoint) finalRefusal(fail *Error, again int) *Error {
	final := *fail
	at, _ := e.ladder.current()
	switch {
	case fail.otherwise != "":
		final.Class, final.Advice = fail.otherwise, adviseForm
	case again >= maxNegotiation:
		final.Advice = "ask again: the settings found so far are kept"
	case e.ladder.fixed && at.rung != RungPrompt:
		final.Class = ClassConfig
		final.Message = fmt.Sprintf("the endpoint rejects %s, the fixed rung of the model %q: %s", at.rung, e.model.Name, fail.Message)
		final.Advice = "set another rung (json_schema, tool, json_object, prompt), or none to negotiate one"
	default:
		final.Advice = "no parameter is left to drop; choose another model or endpoint"
	}
	return &final
}

// lowerManner drops the rejected parameter if possible; otherwise it goes one rung lower.
func (e *endpoint) lowerManner(at manner, param string) (manner, bool) {
	param = e.sentParameter(at, param)
	switch param {
	case "":
		below, ok := at.nextLower()
		return below, ok && !e.ladder.fixed
	case paramEffort:
		w := e.requestParameters(at, nil, e.maxTokens)
		if lowerEffort(w.ReasoningEffort) != "" {
			return at.without(paramEffort + "=" + w.ReasoningEffort), true
		}
	}
	return at.without(param), true
}

// sentParameter returns the optional parameter that a rejection is about, or "" if it is about the rung or
// unclear. Endpoints may name a part of a parameter, and gateways their own name for it.
func (e *endpoint) sentParameter(at manner, param string) string {
	param, _, _ = strings.Cut(strings.ToLower(param), "[")
	name, _, _ := strings.Cut(param, ".")
	alike := []string{name}
	switch {
	case name == "max_output_tokens" || name == paramMaxTokens || name == paramCompletionTokens:
		alike = []string{name, paramMaxTokens, paramCompletionTokens}
	case name == "think" || name == "effort" || slices.Contains(thinkingParams, name):
		alike = append(alike, thinkingParams...)
	}
	droppable := append([]string{paramTemperature, paramSeed, paramMaxTokens, paramCompletionTokens, paramParallel}, thinkingParams...)
	for _, n := range alike {
		if slices.Contains(droppable, n) && e.sendsParameter(at, n) {
			return n
		}
	}
	return ""
}
