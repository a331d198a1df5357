package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// The limits of the user's messages: of those that evidence shows, and of those that are stored at a time.
const (
	maxMessages        = 40
	maxMessage         = 2 << 10 // bytes of one message
	maxTranscriptBytes = 8 << 10
)

// TranscriptRequest adds messages that an agent's user sent, oldest first, to an instance.
type TranscriptRequest struct {
	ID       string
	Messages []string
	Key      string
	// Session identifies a conversation of which Messages are the end; stored messages of it are not added again. With
	// "", all messages are new.
	Session string
}

// TranscriptResult answers AddTranscript.
type TranscriptResult struct {
	Instance string `json:"id"`
	Added    int    `json:"added"` // number of messages
	Replayed bool   `json:"replayed,omitempty"`
}

// AddTranscript records messages of an agent's user, which serve as evidence. They must not come from the agent: a
// caller that has the right vouches for them.
func (e *Engine) AddTranscript(ctx context.Context, p Principal, req TranscriptRequest) (TranscriptResult, error) {
	m := mutation{
		right: RightTranscript, id: req.ID, key: req.Key, verb: "extended", requiresRunning: true, isCounted: true,
		content: func() []string { return req.Messages },
		check:   func() error { return e.checkMessages(req.Messages) },
		permit: func(_ context.Context, inst instance) error {
			return rejectRecorderMade(inst.definition, "add to its instance")
		},
	}
	return mutate(ctx, e, p, m, func(ctx context.Context, inst *instance) (TranscriptResult, error) {
		texts, masks := slices.Clone(req.Messages), inst.maskWords()
		for i, text := range texts {
			texts[i] = cutMiddle(masks.scrubText(text))
		}
		kept := keepNewest(texts)
		said := record.Transcript{Messages: kept, Omitted: len(texts) - len(kept), Session: req.Session}
		if req.Session != "" {
			known, _, err := e.readMessages(ctx, req.ID, req.Session)
			if err != nil {
				return TranscriptResult{}, err
			}
			if said.Messages = kept[countOverlap(known, kept):]; len(known) > 0 {
				said.Omitted = 0 // counted before
			}
		}
		out := TranscriptResult{Instance: req.ID, Added: len(said.Messages) + said.Omitted}
		if len(said.Messages) == 0 {
			return out, nil
		}
		ev := e.newEvent(p, record.Heard)
		ev.Transcript = &said
		_, err := e.commit(ctx, *inst, change{event: ev})
		return out, err
	}, func(_ context.Context, _ instance, ev record.Event) (TranscriptResult, error) {
		return TranscriptResult{Instance: req.ID, Added: len(ev.Transcript.Messages) + ev.Transcript.Omitted, Replayed: true}, nil
	})
}

func (e *Engine) checkMessages(messages []string) error {
	size := 0
	for i, text := range messages {
		if size += len(text); strings.TrimSpace(text) == "" {
			return newError(CodeInvalidArgument, fmt.Sprintf("/messages/%d", i), "The message is empty.").withHint("Leave it out.")
		}
	}
	switch {
	case len(messages) == 0:
		return MissingField("messages", "The user's messages, oldest first.")
	case size > e.cfg.Limits.Data:
		return tooLarge("/messages", "The messages have %d bytes; the limit is %d.", size, e.cfg.Limits.Data)
	}
	return nil
}

// ReadTranscript returns the newest messages of an instance's user, oldest first, and how many older ones there are.
func (past history) ReadTranscript(ctx context.Context, id string) (messages []string, omitted int, err error) {
	return past.readMessages(ctx, id, "")
}

// readMessages is ReadTranscript for one session; "" means all.
func (past history) readMessages(ctx context.Context, id, session string) (messages []string, omitted int, err error) {
	for ev, err := range past.store.Events(ctx, store.EventQuery{Instance: id, Kinds: []record.Kind{record.Heard}}) {
		if err != nil {
			return nil, 0, StoreError("read the user's messages", err)
		}
		if session != "" && ev.Transcript.Session != session {
			continue
		}
		messages, omitted = append(messages, ev.Transcript.Messages...), omitted+ev.Transcript.Omitted
		kept := keepNewest(messages)
		messages, omitted = kept, omitted+len(messages)-len(kept)
	}
	return messages, omitted, nil
}

// keepNewest returns the end of messages that is within the limits.
func keepNewest(messages []string) []string {
	size, first := 0, len(messages)
	for first > 0 && len(messages)-first < maxMessages && size+len(messages[first-1]) <= maxTranscriptBytes {
		first--
		size += len(messages[first])
	}
	return messages[first:]
}

// countOverlap returns how many of the first messages are the end of known.
func countOverlap(known, messages []string) int {
	for n := min(len(known), len(messages)); n > 0; n-- {
		if slices.Equal(known[len(known)-n:], messages[:n]) {
			return n
		}
	}
	return 0
}

// cutMiddle shortens a long message: what a user asks for is at its beginning or its end.
func cutMiddle(text string) string {
	const half = (maxMessage - 64) / 2
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxMessage {
		return text
	}
	head, tail := text[:half], text[len(text)-half:]
	return strings.ToValidUTF8(head, "") + fmt.Sprintf("\n[gavel left out %d bytes]\n", len(text)-2*half) + strings.ToValidUTF8(tail, "")
}
