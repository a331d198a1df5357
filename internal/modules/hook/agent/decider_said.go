package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// errUnread reports that the sender of the event must read the transcript first.
var errUnread = errors.New("the transcript is needed")

// listener is the principal that adds what the user said. The agent itself has no right to.
var listener = engine.Principal{ID: "local:hook", Role: engine.RoleProxy}

// beforeOwnMove adds what the user said before the agent asks gavel itself for a move.
func (d *decision) beforeOwnMove(ctx context.Context) (Answer, error) {
	if err := d.open(ctx); err != nil {
		return Answer{}, err
	}
	at, err := d.engine.Status(ctx, d.principal, d.Instance)
	if engine.CodeOf(err) == engine.CodeUnknownInstance { // which the tool itself says
		return Answer{}, nil
	}
	if err == nil {
		err = d.hear(ctx, at.Position)
	}
	return Answer{Context: d.unheard}, err
}

// hear adds what the user said to an instance in which a possible move needs it as evidence.
func (d *decision) hear(ctx context.Context, at engine.Position) error {
	if len(d.rules.Transcripts) == 0 {
		return nil
	}
	_, definition, err := d.engine.LoadDefinition(ctx, ruleReader, engine.RightRead, at.Workflow, at.Version)
	if err != nil || at.Status != record.Running || !d.rules.needTranscript(definition.States[at.State]) {
		return err
	}
	switch {
	case d.Said == nil:
		d.unheard = "gavel does not know what the user said: gavel hook reports it for Claude Code and Codex, except in subagents of Codex."
		return nil
	case d.Said.Unread:
		return errUnread
	case len(d.Said.Messages) == 0:
		d.unheard = d.Said.Problem
		return nil
	}
	session := sha256.Sum256(fmt.Appendf(nil, "%q %q", d.Client, d.Session))
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", d.Client, d.Session, d.Said.Messages))
	_, err = d.engine.AddTranscript(ctx, listener, engine.TranscriptRequest{
		ID: at.ID, Messages: d.Said.Messages, Key: "hook:" + hex.EncodeToString(sum[:]), Session: hex.EncodeToString(session[:8]),
	})
	return err
}

// needTranscript reports whether a move out of a state needs what the user said.
func (r Rules) needTranscript(s *workflow.State) bool {
	for _, t := range s.Transitions {
		if slices.ContainsFunc(t.Evidence, func(e workflow.Evidence) bool { return slices.Contains(r.Transcripts, e.Source) }) {
			return true
		}
	}
	return false
}
