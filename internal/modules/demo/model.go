package demo

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/term"
)

// Model acts as the judging model in the demo: an OpenAI-compatible endpoint on this machine that answers from a
// script. It is not a real model, and the demo points that out.
type Model struct {
	URL    string
	server *http.Server

	mu   sync.Mutex
	mood Mood
}

// Mood is the behaviour of the scripted model, or of another demo's project or server.
type Mood string

// The moods of the model.
const (
	WellBehaved Mood = "well"
	Slow        Mood = "slow"    // answers after its caller has given up
	Garbled     Mood = "garbled" // answers with something other than a judgement
	Dead        Mood = "dead"    // does not answer at all
)

// StartModel serves on a free port of the loopback interface.
func StartModel(ctx context.Context) (*Model, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot start the scripted model: %w", err)
	}
	m := &Model{URL: "http://" + listener.Addr().String(), mood: WellBehaved}
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go func() { _ = m.server.Serve(listener) }() // ends with Close
	return m, nil
}

// Become sets how the model answers from now on.
func (m *Model) Become(to Mood) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mood = to
	return nil
}

// Close ends the endpoint and any request that hangs in it.
func (m *Model) Close() error { return m.server.Close() }

func (m *Model) folder() string { return "" }

// settings makes the server use the script. The deadline of a second is enough for the script, and short enough to
// watch a slow model.
func (m *Model) settings() (arguments, environment []string) {
	return []string{"--no-reviews"}, []string{"LLM_BASE_URL=" + m.URL, "LLM_JUDGE_MODEL=scripted", "GAVEL_LLM_DEADLINE=1s"}
}

// ServeHTTP answers a chat completion request.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	now := m.mood
	m.mu.Unlock()
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	switch now {
	case Dead:
		panic(http.ErrAbortHandler) // cuts the connection without an answer
	case Slow:
		<-r.Context().Done()
	case Garbled:
		writeCompletion(w, "Sure! I looked at it and it seems fine to me, so let us go ahead.")
	default:
		writeCompletion(w, judgedByScript(string(body)))
	}
}

// saysWhat is the script's criterion: good comments name a part of the document and a comparison.
var saysWhat = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(sections? [0-9]+( to [0-9]+)?).*?(compared|match)`) })

func judgedByScript(prompt string) string {
	data := prompt[max(strings.LastIndex(prompt, `\"comments\"`), 0):]
	type criterion struct {
		Evidence string `json:"evidence"`
		Status   string `json:"status"`
		Why      string `json:"why"`
	}
	answer := struct {
		Criteria           map[string]criterion `json:"criteria"`
		InjectionSuspected bool                 `json:"injection_suspected"`
		Suggestions        []string             `json:"suggestions"`
		Confidence         float64              `json:"confidence"`
	}{Suggestions: []string{}}
	if found := saysWhat().FindStringSubmatch(data); found != nil {
		answer.Criteria = map[string]criterion{"c1": {found[1], "met", ""}, "c2": {found[0], "met", ""}}
		answer.Confidence = 0.97
	} else {
		answer.Criteria = map[string]criterion{
			"c1": {"", "contradicted", "The comments only praise the document; they name no part of it."}, "c2": {"", "contradicted", "They name nothing that it was compared with."},
		}
		answer.Suggestions, answer.Confidence = []string{"Name the sections that you read and what you compared them with."}, 0.95
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return ""
	}
	return string(raw)
}

func writeCompletion(w http.ResponseWriter, content string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
		"id": "chatcmpl-demo", "object": "chat.completion", "created": 1, "model": "scripted",
		"choices": []any{map[string]any{
			"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": content},
		}},
		"usage": map[string]any{"prompt_tokens": 640, "completion_tokens": 90, "total_tokens": 730},
	})
}
