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
	// maxQuestions limits how often a person is asked about one action while the instance stays at its revision. This
	// stops an agent from repeating its call until the person presses the other button. Calls with different data count
	// too, although each opens another review.
	maxQuestions = 3
	// questionWindow is how long the number of questions is remembered.
	questionWindow = 7 * 24 * time.Hour
)

// elicitations are questions to a person, for clients whose protocol version has no requests from the server. The judged
// agent carries the state that comes back with the person's answer, so the state is sealed for the principal and the
// call, and can be used only once.
type elicitations struct {
	states *clientstate.States
	lasts  time.Duration
}

// elicitationState identifies a question to a person.
type elicitationState struct {
	Review   string `json:"review"`
	Revision int64  `json:"revision"` // of the instance
	Use      string `json:"use"`
}

// canAsk counts a question about an action at a revision of the instance, with any data, and reports whether it may
// be asked.
func (e elicitations) canAsk(ctx context.Context, instance, action string, revision int64) bool {
	sum := sha256.Sum256(encodeJSON([]any{instance, action, revision}))
	ok, err := e.states.CountUpTo(ctx, "question "+string(sum[:]), maxQuestions, questionWindow)
	return err == nil && ok // the move waits as a review if no one is asked
}

// issue returns the sealed state of a new ticket.
func (e elicitations) issue(ctx context.Context, review string, revision int64, binding []byte) (state string, err error) {
	use, err := e.states.AllowUse(ctx, e.lasts)
	if err != nil {
		return "", fmt.Errorf("ask a person: %w", err)
	}
	return e.states.Seal(string(encodeJSON(elicitationState{review, revision, use})), binding), nil
}

// redeem accepts a ticket once, for the call that it was issued for. The error may be clientstate.ErrState.
func (e elicitations) redeem(ctx context.Context, state string, binding []byte) (k elicitationState, err error) {
	text, err := e.states.Open(state, binding)
	if err == nil {
		err = json.Unmarshal([]byte(text), &k)
	}
	if err == nil {
		_, err = e.states.Use(ctx, k.Use)
	}
	return k, err //nolint:wrapcheck // the error is complete
}

// callBinding identifies a call by its principal and the values of its arguments, however they are formatted.
func callBinding(principal string, raw json.RawMessage) []byte {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	_ = d.Decode(&v) // BindTool has already parsed them
	sum := sha256.Sum256(encodeJSON(v))
	return encodeJSON([]string{principal, base64.RawURLEncoding.EncodeToString(sum[:])})
}
