package llm

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Transcript records endpoints' answers verbatim, including unreadable ones. It is for measurements; decisions
// do not use it.
type Transcript struct {
	mu      sync.Mutex
	answers []string
}

// maxTranscriptAnswer limits how much of one answer a Transcript keeps, in bytes.
const maxTranscriptAnswer = 16 << 10

type transcriptKey struct{}

// WithTranscript returns a context and the Transcript of all answers to requests made with it.
func WithTranscript(ctx context.Context) (context.Context, *Transcript) {
	t := &Transcript{}
	return context.WithValue(ctx, transcriptKey{}, t), t
}

// Answers returns the model's messages in the order of the requests. For an answer without a message, it
// returns the whole body.
func (t *Transcript) Answers() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.answers)
}

func noteAnswer(ctx context.Context, status int, header http.Header, body []byte) {
	t, ok := ctx.Value(transcriptKey{}).(*Transcript)
	if !ok {
		return
	}
	text := string(body)
	if env, fail := openEnvelope(status, header, body, time.Time{}); fail == nil && len(env.choices) > 0 {
		c := env.choices[0]
		if said := strings.Join(slices.Concat([]string{c.content}, c.calls, []string{c.refusal}), ""); said != "" {
			text = said
		}
	}
	if len(text) > maxTranscriptAnswer {
		text = strings.ToValidUTF8(text[:maxTranscriptAnswer], "") + "…"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = append(t.answers, text)
}
