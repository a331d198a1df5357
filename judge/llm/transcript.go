package llm

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Transcript keeps what endpoints answered, word for word: also what could not be read. It is
// for measurements; a decision keeps none.
type Transcript struct {
	mu      sync.Mutex
	answers []string
}

// maxTranscriptAnswer is how much of one answer a Transcript keeps, in bytes.
const maxTranscriptAnswer = 16 << 10

type transcriptKey struct{}

// WithTranscript has the answers to what is asked under the context kept.
func WithTranscript(ctx context.Context) (context.Context, *Transcript) {
	t := &Transcript{}
	return context.WithValue(ctx, transcriptKey{}, t), t
}

// Answers are the messages of the model in the order of the requests; the whole body of an
// answer that holds no message.
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
