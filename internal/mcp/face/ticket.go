package face

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/clientstate"
)

const (
	// mostTimes is how often a person is asked about one action while the instance
	// stays at its revision: an agent that repeats its call until somebody presses the other
	// button gets nowhere, and neither does one that brings other data each time, which
	// is another review.
	mostTimes = 3
	// countedFor is how long it is remembered that a person was asked.
	countedFor = 7 * 24 * time.Hour
)

// tickets are the questions that clients of the era without server requests carry. The state
// that they give back with a person's answer passes through the hands of whoever is judged:
// it is sealed for the principal and the call, and good once.
type tickets struct {
	states *clientstate.States
	lasts  time.Duration
}

// ticket is what a person was asked.
type ticket struct {
	Review   string `json:"review"`
	Revision int64  `json:"revision"` // of the instance
	Use      string `json:"use"`
}

// mayAsk counts a question about an action, whatever data comes with it, at a revision of the
// instance, and reports whether it may be asked.
func (t tickets) mayAsk(ctx context.Context, instance, action string, revision int64) bool {
	sum := sha256.Sum256(encodeJSON([]any{instance, action, revision}))
	ok, err := t.states.CountUpTo(ctx, "question "+string(sum[:]), mostTimes, countedFor)
	return err == nil && ok // a move that nobody is asked about waits as a review
}

// issue returns the state that a ticket travels as.
func (t tickets) issue(ctx context.Context, review string, revision int64, binding []byte) (state string, err error) {
	use, err := t.states.AllowUse(ctx, t.lasts)
	if err != nil {
		return "", fmt.Errorf("ask a person: %w", err)
	}
	return t.states.Seal(string(encodeJSON(ticket{review, revision, use})), binding), nil
}

// redeem takes a ticket, once, for what it was issued for. The error may be clientstate.ErrState.
func (t tickets) redeem(ctx context.Context, state string, binding []byte) (k ticket, err error) {
	text, err := t.states.Open(state, binding)
	if err == nil {
		err = json.Unmarshal([]byte(text), &k)
	}
	if err == nil {
		_, err = t.states.Use(ctx, k.Use)
	}
	return k, err //nolint:wrapcheck // the error is complete
}

// callBinding tells calls of a principal apart by what their arguments say, however they are written.
func callBinding(principal string, raw json.RawMessage) []byte {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	_ = d.Decode(&v) // Uninstall has already parsed them
	sum := sha256.Sum256(encodeJSON(v))
	return encodeJSON([]string{principal, base64.RawURLEncoding.EncodeToString(sum[:])})
}
