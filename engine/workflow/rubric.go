package workflow

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Rubric returns the judge's configuration for the definition as a whole: defaults, then
// judgeConfig, then the overlays. A transition may override it; the Case holds the rubric that
// applies.
func (d *Definition) Rubric(overlays []Overlay) judge.Rubric {
	return d.resolveRubric(JudgeSettings{}, overlays)
}

// resolveRubric resolves the settings of one transition. Overlays that are revisions of
// judgeConfig apply before the transition's own settings, and tightenings after them: a setting
// that an agent tightened applies everywhere.
func (d *Definition) resolveRubric(own JudgeSettings, overlays []Overlay) judge.Rubric {
	var base JudgeSettings
	if d.Judge != nil {
		base = *d.Judge
	}
	for _, o := range overlays {
		if !o.TightenOnly {
			base = base.With(o.Settings)
		}
	}
	r := judge.DefaultRubric()
	r.OnJudgeUnavailable = ""
	for _, s := range [...]JudgeSettings{base, own} {
		setIfPresent(&r.Enabled, s.Enabled)
		setIfPresent(&r.UseLLM, s.UseLLM)
		setIfPresent(&r.StrictMode, s.StrictMode)
		setIfPresent(&r.MinConfidence, s.MinConfidence)
		setIfPresent(&r.Mode, s.Mode)
		setIfPresent(&r.RequireAssurance, s.RequireAssurance)
		setIfPresent(&r.Risk, s.Risk)
		setIfPresent(&r.Model, s.Model)
		setIfPresent(&r.Samples, s.Samples)
		setIfPresent(&r.Content, s.Content)
		setIfPresent(&r.OnEvidenceMissing, s.OnEvidenceMissing)
		setIfPresent(&r.OnJudgeUnavailable, s.OnJudgeUnavailable)
		switch {
		case s.Model != nil: // it replaces a panel, inherited or set before
			r.Panel = nil
		case s.Panel != nil:
			r.Panel, r.Model, r.Samples = s.Panel, "", 0
		}
	}
	r.Criteria = joinCriteria(base.Criteria, own.Criteria)
	r.Proofs, r.Terms = joinMaps(base.Proofs, own.Proofs), joinMaps(base.Terms, own.Terms)
	for _, o := range overlays {
		if o.TightenOnly {
			tightenRubric(&r, o.Settings)
		}
	}
	// The default depends on the final value of StrictMode.
	switch {
	case r.OnJudgeUnavailable != "":
	case r.StrictMode:
		r.OnJudgeUnavailable = judge.UnavailableEscalate
	default:
		r.OnJudgeUnavailable = judge.UnavailableStructural
	}
	return r
}

// RequiredModels returns the models that transitions use with these overlays, without duplicates
// and in the order of the document; "" is the default model.
func (d *Definition) RequiredModels(overlays []Overlay) []string {
	var names []string
	d.visitTransitions(func(_ *State, t *Transition) {
		if r := d.resolveRubric(t.Judge, overlays); r.Enabled && r.UseLLM {
			for _, name := range r.Models() {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	})
	return names
}

// resolveStartRubric returns the rubric of a start: fields, schema and state only, without a
// model and without requirements that only a transition can meet.
func (d *Definition) resolveStartRubric(overlays []Overlay) judge.Rubric {
	r := d.Rubric(overlays)
	r.UseLLM, r.Criteria, r.Proofs, r.Terms, r.Model, r.Samples, r.Panel = false, nil, nil, nil, "", 0, nil
	r.RequireAssurance, r.Risk, r.OnEvidenceMissing, r.Content = judge.AssuranceNone, judge.RiskNormal, "", judge.ContentFlag
	return r
}

func setIfPresent[T any](dst *T, value *T) {
	if value != nil {
		*dst = *value
	}
}

func tightenRubric(r *judge.Rubric, s JudgeSettings) {
	r.Enabled = r.Enabled || s.Enabled != nil && *s.Enabled
	r.StrictMode = r.StrictMode || s.StrictMode != nil && *s.StrictMode
	if s.MinConfidence != nil {
		r.MinConfidence = max(r.MinConfidence, *s.MinConfidence)
	}
}

func joinCriteria(base, own []string) []string {
	var out []string
	for _, c := range slices.Concat(base, own) {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// joinMaps returns the entries of both maps, or nil; those of own replace those of base.
func joinMaps[T any](base, own map[string]T) map[string]T {
	if len(base)+len(own) == 0 {
		return nil
	}
	out := maps.Clone(base)
	if out == nil {
		out = map[string]T{}
	}
	maps.Copy(out, own)
	return out
}

// With returns s with every field that later sets replaced.
func (s JudgeSettings) With(later JudgeSettings) JudgeSettings {
	return s.merge(later, func(given reflect.Value) reflect.Value { return given })
}

// Without returns s with every field that other sets cleared.
func (s JudgeSettings) Without(other JudgeSettings) JudgeSettings {
	return s.merge(other, func(given reflect.Value) reflect.Value { return reflect.Zero(given.Type()) })
}

// merge applies choose to every field that other sets. A field that is not set is nil.
func (s JudgeSettings) merge(other JudgeSettings, choose func(given reflect.Value) reflect.Value) JudgeSettings {
	fields, given := reflect.ValueOf(&s).Elem(), reflect.ValueOf(other)
	for i := range given.NumField() {
		if field := given.Field(i); !field.IsNil() {
			fields.Field(i).Set(choose(field))
		}
	}
	return s
}

// ReviewSettings define how an escalated decision waits for a person.
type ReviewSettings struct {
	// Priority is low, normal, high or urgent.
	Priority string `json:"priority,omitempty"`
	// ExpiresAfter is how long the review stays open; negative means forever.
	ExpiresAfter time.Duration `json:"expiresAfterNs,omitempty"`
	// OnExpire is reject (the review is closed) or raise (it becomes urgent and stays open).
	OnExpire string `json:"onExpire,omitempty"`
}

// What happens to a review that was not resolved in time.
const (
	ExpireReject = "reject"
	ExpireRaise  = "raise"
)

// DefaultReview returns the settings of a review if the definition has none: open for a week with
// normal priority, then closed.
func DefaultReview() ReviewSettings {
	return ReviewSettings{Priority: "normal", ExpiresAfter: 7 * 24 * time.Hour, OnExpire: ExpireReject}
}

// Review returns the settings for a review of an action in a state.
func (d *Definition) Review(state, action string) ReviewSettings {
	r := DefaultReview()
	var levels []*ReviewSettings
	if d.Judge != nil {
		levels = append(levels, d.Judge.Review)
	}
	if s := d.States[state]; s != nil && s.Transitions[action] != nil {
		levels = append(levels, s.Transitions[action].Judge.Review)
	}
	for _, l := range levels {
		if l == nil {
			continue
		}
		if l.Priority != "" {
			r.Priority = l.Priority
		}
		if l.ExpiresAfter != 0 {
			r.ExpiresAfter = l.ExpiresAfter
		}
		if l.OnExpire != "" {
			r.OnExpire = l.OnExpire
		}
	}
	return r
}

func (p *parser) parseReview(o *document.ObjectReader) *ReviewSettings {
	if !o.Has("review") {
		return nil
	}
	s := o.Object("review")
	p.checkKeys(s, &reviewObject)
	r := &ReviewSettings{}
	if s.Node() == nil {
		return r
	}
	r.Priority = s.Enum("priority", "low", "normal", "high", "urgent")
	r.OnExpire = s.Enum("onExpire", ExpireReject, ExpireRaise)
	if v := s.Value("expiresAfter"); v != nil && v.Kind == document.String && v.Text == "never" {
		r.ExpiresAfter = -1
	} else {
		r.ExpiresAfter = p.parseDuration(s, "expiresAfter", maxDuration)
	}
	return r
}

// maxDuration is the longest duration that a definition may set.
const maxDuration = 10 * 365 * 24 * time.Hour

var daysPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]{1,4})d$`) })

// parseDuration reads a duration such as 90s, 10m, 72h or 7d, 0 if absent.
func (p *parser) parseDuration(o *document.ObjectReader, name string, most time.Duration) time.Duration {
	n := o.Value(name)
	text := o.String(name)
	if n == nil || n.Kind != document.String {
		return 0
	}
	d, err := time.ParseDuration(text)
	if m := daysPattern().FindStringSubmatch(text); m != nil {
		count, _ := strconv.Atoi(m[1]) // at most four digits
		d, err = time.Duration(count)*24*time.Hour, nil
	}
	switch {
	case err != nil:
		p.rejectValue(n, "%s is not a duration: write a number with its unit, such as 90s, 10m, 72h or 7d", quoteName(text))
		return 0
	case d <= 0 || d > most:
		p.rejectValue(n, "%s must be above zero and at most %s", name, most)
		return 0
	}
	return d
}
