package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/prompts"
)

// ModelFlags configure the judging model. The endpoint, the model, the key and the thinking mode can be set with the
// environment variables that other judges of this kind use, so that existing configurations work.
type ModelFlags struct {
	BaseURL     string        `name:"llm-base-url" env:"LLM_BASE_URL,GAVEL_LLM_BASE_URL" default:"https://api.openai.com" placeholder:"URL" help:"The endpoint of the judging model: any OpenAI-compatible URL, with or without /v1. Default: https://api.openai.com."`
	Model       string        `name:"llm-model" env:"LLM_JUDGE_MODEL,GAVEL_LLM_MODEL" placeholder:"NAME" help:"The model that judges. Without one, onJudgeUnavailable decides moves that need a model."`
	KeyFile     string        `name:"llm-key-file" placeholder:"FILE" help:"Read the API key from this file instead of the environment variable LLM_API_KEY."`
	Thinking    string        `name:"llm-thinking" env:"LLM_JUDGE_THINKING_MODE,GAVEL_LLM_THINKING" default:"auto" placeholder:"MODE" help:"How much the model thinks: auto (the default, nothing is sent), off, none, minimal, low, medium, high, xhigh or max."`
	Fallbacks   []string      `name:"llm-fallback" placeholder:"NAME[@URL]" help:"A model to ask if the first is unavailable. Repeatable. The key for another URL is LLM_FALLBACK_API_KEY; LLM_API_KEY is never sent there."`
	Also        []string      `name:"llm-also" placeholder:"NAME[@URL]" help:"Another model that definitions may name, as for panels. Repeatable. The key for another URL is LLM_FALLBACK_API_KEY."`
	For         []string      `name:"llm-for" placeholder:"SETTINGS" help:"Settings for one model: its name, then timeout=TIME (per request), thinking=MODE, structured=RUNG, price-in=USD, price-out=USD, as in 'qwen3:8b timeout=45s thinking=low'. Repeatable."`
	Structured  string        `name:"llm-structured" enum:"auto,json_schema,tool,json_object,prompt" default:"auto" placeholder:"RUNG" help:"How to get structured answers: auto (the default, finds out what works), json_schema, tool, json_object or prompt."`
	Deadline    time.Duration `name:"llm-deadline" placeholder:"TIME" help:"How long a decision waits for the model. Default: 20s, with thinking 60s."`
	Parallel    int           `name:"llm-parallel" placeholder:"N" help:"Maximum concurrent requests to an endpoint, half of that for one principal. Others wait in line until their deadline. Default: 8."`
	Budget      int           `name:"llm-budget" placeholder:"N" help:"Maximum judgements by the model per principal and hour. Default: no limit."`
	ModelRate   int           `name:"llm-rate" default:"60" placeholder:"N" help:"Maximum requests to the endpoint per principal and minute. Set it to at most half of the provider's limit; 0 is no limit. Default: 60."`
	ModelTokens int           `name:"llm-token-rate" default:"100000" placeholder:"N" help:"Maximum tokens, read and written, per principal and minute. Set it to at most half of the provider's limit; 0 is no limit. Default: 100000."`
	Refusals    int           `name:"llm-refusals" default:"3" placeholder:"N" help:"After this many refusals of the same data on one instance (long data: on any instance), a person must decide; -1 is never. Default: 3."`
	Window      time.Duration `name:"llm-refusal-window" default:"24h" placeholder:"TIME" help:"How long a refusal counts for --llm-refusals, at most 168h. Default: 24h."`

	Calibration string   `name:"llm-calibration" placeholder:"FILE" help:"Calibrations of the model's confidence. Without a matching one, the confidence is shrunk."`
	Cassette    string   `name:"llm-cassette" placeholder:"FILE" help:"Record the model's answers in this file, or replay them."`
	CassetteFor string   `name:"llm-cassette-mode" enum:"replay,record,record-missing,live" default:"replay" placeholder:"MODE" help:"replay (the default; a missing answer is an error), record, record-missing or live."`
	PriceIn     *float64 `name:"llm-price-in" placeholder:"USD" help:"The price of a million prompt tokens, to record the cost of judgements."`
	PriceOut    *float64 `name:"llm-price-out" placeholder:"USD" help:"The price of a million completion tokens."`
	AllowHTTP   bool     `name:"llm-allow-http" help:"Let the key travel unencrypted: allow http:// to hosts that are neither local nor private."`
}

// Environment variables that hold keys. There is no flag for a key, because other users of the machine can see
// process arguments.
const (
	KeyVariable         = "LLM_API_KEY"
	FallbackKeyVariable = "LLM_FALLBACK_API_KEY"
)

// Model is a configured model with its resources.
type Model struct {
	client       *llm.Client
	cassette     *llm.Cassette // nil if there is none
	Calibrations *judge.Calibrations
	Flags        *ModelFlags
	log          *slog.Logger
	// unjudged counts the decisions made without a model since its last judgement.
	unjudged atomic.Int64
	// asker is the layer, for questions other than judgements; nil until Layer is called.
	asker judge.Asker
}

// Open creates the client of the configured models; nil if none is configured. It sends no requests.
func (f *ModelFlags) Open(log *slog.Logger) (*Model, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if f.Model == "" {
		return nil, f.withoutModel(log)
	}
	m := &Model{Flags: f, log: log}
	cfg, err := f.BuildConfig(log)
	if err != nil {
		return nil, err
	}
	if m.Calibrations, err = f.openCalibrations(); err != nil {
		return nil, err
	}
	for _, s := range m.Calibrations.Shortcomings() {
		log.Warn("--llm-calibration", "why", s)
	}
	if m.cassette, err = f.OpenCassette(); err != nil {
		return nil, err
	}
	if m.cassette != nil {
		cfg.Doer = m.cassette
	}
	cfg.Watch = m.logOutage
	if m.client, err = newClient(cfg); err != nil {
		return nil, errors.Join(err, m.closeCassette())
	}
	return m, nil
}

// OpenAsker creates the client of the configured models, for requests other than judgements. The asker is nil if no
// model is configured.
func (f *ModelFlags) OpenAsker(log *slog.Logger) (asker judge.Asker, names []string, end func(), err error) {
	model, err := f.Open(log)
	if err != nil || model == nil {
		return nil, nil, func() {}, err
	}
	if _, err := model.Layer(nil); err != nil {
		return nil, nil, nil, errors.Join(err, model.Close())
	}
	return model.asker, model.ListNames(), func() { _ = model.Close() }, nil
}

// openCalibrations returns nil if no calibrations are configured.
func (f *ModelFlags) openCalibrations() (*judge.Calibrations, error) {
	if f.Calibration == "" {
		return nil, nil //nolint:nilnil // a valid, common case
	}
	raw, err := os.ReadFile(f.Calibration)
	if err != nil {
		return nil, term.UsageErrorf("", "--llm-calibration: %w", err)
	}
	all, err := judge.ParseCalibrations(raw)
	if err != nil {
		return nil, term.UsageErrorf("", "--llm-calibration %s: %w", f.Calibration, err)
	}
	return all, nil
}

// OpenCassette returns nil if no cassette is configured.
func (f *ModelFlags) OpenCassette() (*llm.Cassette, error) {
	if f.Cassette == "" || f.CassetteFor == ModeLive {
		return nil, nil //nolint:nilnil // a valid, common case
	}
	c, err := llm.OpenCassette(f.Cassette, llm.CassetteMode(f.CassetteFor), llm.NewHTTPDoer())
	if err != nil {
		return nil, term.UsageErrorf("", "--llm-cassette: %w", err)
	}
	return c, nil
}

// Check reports flags with invalid values.
func (f *ModelFlags) Check() error {
	var thinking, window error
	if err := llm.ValidThinking(f.Thinking); err != nil {
		thinking = term.UsageErrorf("", "LLM_JUDGE_THINKING_MODE (--llm-thinking): %w", err)
	}
	if f.Window <= 0 || f.Window > store.MaxRefusalAge {
		window = term.UsageErrorf("", "--llm-refusal-window is %v, must be above 0 and at most %v", f.Window, store.MaxRefusalAge)
	}
	return errors.Join(thinking, window)
}

// CheckModels checks the configuration of the models; it needs no key.
func (f *ModelFlags) CheckModels() error {
	if f.Model == "" {
		return nil
	}
	cfg, wrong := f.buildClientConfig("")
	_, err := newClient(cfg)
	return errors.Join(wrong, err)
}

func newClient(cfg llm.Config) (*llm.Client, error) {
	client, err := llm.New(cfg)
	if err != nil {
		return nil, term.UsageErrorf("gavel judge doctor shows the endpoint", "the model cannot be set up: %w", err)
	}
	return client, nil
}

// ModeLive is the --llm-cassette-mode that asks the model without a cassette.
const ModeLive = "live"

// withoutModel rejects or warns about settings that have no effect without a model.
func (f *ModelFlags) withoutModel(log *slog.Logger) error {
	switch {
	case len(f.Fallbacks) > 0 || len(f.Also) > 0:
		return term.UsageErrorf("", "--llm-fallback and --llm-also need a first model: set LLM_JUDGE_MODEL or --llm-model")
	case os.Getenv(KeyVariable) != "" || os.Getenv("LLM_BASE_URL") != "":
		log.Warn("no model will judge: LLM_JUDGE_MODEL is not set, although an endpoint or a key is")
	}
	return nil
}

// BuildConfig returns the configuration of the model's client.
func (f *ModelFlags) BuildConfig(log *slog.Logger) (llm.Config, error) {
	key, err := f.key()
	if err != nil {
		return llm.Config{}, err
	}
	if key == "" && !localURL(f.BaseURL) {
		log.Warn("the model's endpoint gets no key: LLM_API_KEY is not set", "endpoint", f.BaseURL)
	}
	return f.buildClientConfig(key)
}

func (f *ModelFlags) buildClientConfig(key string) (llm.Config, error) {
	unlimited := func(n int) int { // in package llm, 0 means the default
		if n == 0 {
			return -1
		}
		return n
	}
	cfg := llm.Config{Deadline: f.Deadline, Parallel: f.Parallel, Private: f.AllowHTTP, CallerRequests: unlimited(f.ModelRate), CallerTokens: unlimited(f.ModelTokens)}
	add := func(name, base, key string) {
		cfg.Models = append(cfg.Models, llm.Model{
			Name: name, ID: name, BaseURL: base, APIKey: key, Rung: rungOf(f.Structured), Thinking: f.Thinking,
			PromptUSD: f.PriceIn, CompletionUSD: f.PriceOut,
		})
	}
	add(f.Model, f.BaseURL, key)
	for i, spec := range slices.Concat(f.Also, f.Fallbacks) {
		name, base, elsewhere := CutModel(spec)
		if elsewhere {
			add(name, base, os.Getenv(FallbackKeyVariable))
		} else {
			add(name, f.BaseURL, key)
		}
		if i >= len(f.Also) {
			cfg.Fallbacks = append(cfg.Fallbacks, name)
		}
	}
	for _, settings := range f.For {
		if err := applySettings(cfg.Models, settings); err != nil {
			return cfg, term.UsageErrorf("gavel help mcp has an example", "--llm-for %q: %w", settings, err)
		}
	}
	return cfg, nil
}

// rungOf returns the rung that structured names, or "" for auto.
func rungOf(structured string) llm.Rung {
	if structured == "auto" {
		return ""
	}
	return llm.Rung(structured)
}

// applySettings applies the settings of one model, whose name is their first word.
func applySettings(models []llm.Model, settings string) error {
	words := strings.Fields(settings)
	if len(words) < 2 {
		return errors.New("give the name of a model, then settings such as timeout=45s")
	}
	i := slices.IndexFunc(models, func(m llm.Model) bool { return m.Name == words[0] })
	if i < 0 {
		return fmt.Errorf("no model %q is configured", words[0])
	}
	m := &models[i]
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "timeout":
			if m.Timeout, err = time.ParseDuration(value); err == nil && m.Timeout <= 0 {
				err = errors.New("must be more than 0")
			}
		case "thinking":
			m.Thinking, err = value, llm.ValidThinking(value)
		case "structured":
			m.Rung = rungOf(value) // validated by llm.New
		case "price-in":
			m.PromptUSD, err = parsePrice(value)
		case "price-out":
			m.CompletionUSD, err = parsePrice(value)
		default:
			err = errors.New("unknown; use timeout, thinking, structured, price-in or price-out")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func parsePrice(value string) (*float64, error) {
	usd, err := strconv.ParseFloat(value, 64)
	if err != nil || !(usd >= 0) {
		return nil, fmt.Errorf("%q is not a price in USD", value)
	}
	return &usd, nil
}

// CutModel splits NAME@URL. Names may contain @ (some registries pin versions that way), so it splits only before
// something that looks like a URL.
func CutModel(spec string) (name, base string, elsewhere bool) {
	i := strings.LastIndex(spec, "@http")
	if i <= 0 {
		return spec, "", false
	}
	return spec[:i], spec[i+1:], true
}

// localURL reports whether a URL clearly refers to this machine. Keys are rarely needed there.
func localURL(raw string) bool {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	host := u.Hostname()
	return host == "localhost" || strings.HasPrefix(host, "127.") || host == "::1"
}

func (f *ModelFlags) key() (string, error) {
	key := os.Getenv(KeyVariable)
	if f.KeyFile != "" {
		raw, err := os.ReadFile(f.KeyFile)
		if err != nil {
			return "", term.UsageErrorf("", "--llm-key-file: %w", err)
		}
		key = string(raw)
	}
	key = strings.TrimSpace(key)
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", term.UsageErrorf("", "the API key contains invalid characters (white space, or letters beyond ASCII)")
	}
	return key, nil
}

// Layer returns the model as a layer of the judge. memory may be nil.
func (m *Model) Layer(memory judge.Memory) (judge.Layer, error) {
	layer, err := judge.NewModel(judge.ModelConfig{
		Completer: m.client, Memory: memory, Calibrations: m.Calibrations, Prompt: m.prompt(),
		RefusalLimit: m.Flags.Refusals, RefusalWindow: m.Flags.Window, Budget: m.Flags.Budget,
		Watch: m.countOutage, Stable: m.cassette != nil, Untimed: m.cassette != nil,
	})
	if err != nil {
		return nil, term.UsageErrorf("", "the model cannot be set up: %w", err)
	}
	m.asker, _ = layer.(judge.Asker)
	return layer, nil
}

// NewMeasuredLayer returns a layer that asks the model about cases with known outcomes, without the loop guard and
// without a principal's budget. wrap returns what sends its requests.
func (m *Model) NewMeasuredLayer(wrap func(*llm.Client) llm.Completer) (judge.Layer, error) {
	layer, err := judge.NewModel(judge.ModelConfig{
		Completer: wrap(m.client), Calibrations: m.Calibrations, Prompt: m.prompt(), RefusalLimit: -1, Stable: m.cassette != nil,
	})
	if err != nil {
		return nil, term.UsageErrorf("", "the model cannot be set up: %w", err)
	}
	return layer, nil
}

// countOutage counts decisions that were not judged because of an outage. A judgement resets the count.
func (m *Model) countOutage(op judge.Opinion) {
	switch {
	case op.Trouble == judge.TroubleUnavailable || op.Trouble == judge.TroubleNotConfigured:
		m.unjudged.Add(1)
	case op.Trouble == judge.TroubleNone && op.Model.Calls > 0:
		m.unjudged.Store(0)
	}
}

// logOutage logs when a model is no longer asked and when it answers again.
func (m *Model) logOutage(o llm.Outage) {
	if o.Over {
		m.log.Warn("the model answers again", "model", o.Model, "endpoint", o.Endpoint, "after", time.Since(o.Since).Round(time.Second).String(), "decisionsWithout", m.unjudged.Load())
		return
	}
	m.log.Warn("the model is paused: its endpoint fails", "model", o.Model, "endpoint", o.Endpoint, "class", o.Cause.Class, "error", o.Cause.Message, "hint", o.Cause.Advice)
}

// FindTrouble returns an error if every model has an outage. The error is a *telemetry.PartError whose Since is the
// start of the latest outage. FindTrouble returns nil if any model is available.
func (m *Model) FindTrouble() error {
	t := telemetry.PartError{Decisions: m.unjudged.Load(), Err: errors.New("no model is available; see the log")}
	for _, s := range m.client.Stats().Models {
		if s.DownSince.IsZero() {
			return nil
		}
		if s.DownSince.After(t.Since) {
			t.Since = s.DownSince
		}
	}
	return &t
}

// prompt returns the earlier edition of the prompt that a replayed cassette was recorded with, or "" for the newest.
func (m *Model) prompt() string {
	if m.cassette == nil || m.Flags.CassetteFor != string(llm.CassetteReplay) {
		return ""
	}
	for _, id := range prompts.RecordedIDs()[1:] {
		if p, err := prompts.Render(id, prompts.Input{}); err == nil && m.cassette.HoldsSystem(p.System) {
			return id
		}
	}
	return ""
}

// ListModels returns the names of the configured models without opening them; nil if there are none.
func (f *ModelFlags) ListModels(log *slog.Logger) ([]string, error) {
	if f.Model == "" {
		return nil, f.withoutModel(log)
	}
	names := []string{f.Model}
	for _, spec := range slices.Concat(f.Also, f.Fallbacks) {
		name, _, _ := CutModel(spec)
		names = append(names, name)
	}
	return names, nil
}

// ListNames returns the models that definitions may use. The first is the default.
func (m *Model) ListNames() []string {
	if m == nil {
		return nil
	}
	return m.client.Names()
}

// Stats returns what the model's client has done.
func (m *Model) Stats() llm.Stats { return m.client.Stats() }

func (m *Model) closeCassette() error {
	if m.cassette == nil {
		return nil
	}
	return m.cassette.Close()
}

// Close closes the client and warns about unused cassette entries.
func (m *Model) Close() error {
	if m == nil {
		return nil
	}
	m.client.Close()
	if m.cassette != nil && m.Flags.CassetteFor == string(llm.CassetteReplay) {
		if unused := m.cassette.Unused(); len(unused) > 0 {
			m.log.Warn("the cassette has unused answers", "entries", len(unused), "first", fmt.Sprintf("%.120s", unused[0]))
		}
	}
	return m.closeCassette()
}
