package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// ConfigureJudge appends a judge-config revision to a workflow. It applies from the next decision, including
// for running instances. Only the given fields change.
//
// Agents must not loosen the judge that judges them. On an operator's definition an agent may only tighten
// it, unless the definition's agent rights allow more or less, and only for its own instances.
func (e *Engine) ConfigureJudge(ctx context.Context, p Principal, req JudgeConfigRequest) (JudgeConfigResult, error) {
	if err := Authorize(p, RightConfigure); err != nil {
		return JudgeConfigResult{}, err
	}
	if req.Name == "" {
		return JudgeConfigResult{}, MissingField("name", "The name of a defined workflow.")
	}
	if err := checkSettings(req.Settings, e.cfg.Models); err != nil {
		return JudgeConfigResult{}, err
	}
	for {
		l, err := e.loadNamed(ctx, p, req.Name, 0)
		if err != nil {
			return JudgeConfigResult{}, err
		}
		revisions, err := e.rules.listConfigs(ctx, req.Name)
		if err != nil {
			return JudgeConfigResult{}, StoreError("read the judge configuration", err)
		}
		c, err := e.newJudgeConfig(ctx, p, l, revisions, req.Settings)
		if err != nil {
			return JudgeConfigResult{}, err
		}
		err = e.rules.addRule(ctx, store.Rule{Config: &c})
		if errors.Is(err, store.ErrConflict) {
			continue // another revision was added in between: reload and check everything again, rights included
		}
		if err != nil {
			return JudgeConfigResult{}, StoreError("store the judge configuration", err)
		}
		in := selectOverlays(l.stored, l.def.Agents, p.ID, append(revisions, c))
		return JudgeConfigResult{
			Success: true, Message: configMessage(c), Config: e.rubricView(showsJudge(p, l.stored), l, in), Revision: c.Revision, Hash: c.Hash,
		}, nil
	}
}

func (e *Engine) newJudgeConfig(ctx context.Context, p Principal, l definition, revisions []store.JudgeConfig, s workflow.JudgeSettings) (store.JudgeConfig, error) {
	c := store.JudgeConfig{
		Workflow: l.stored.Name, Revision: nextRevision(revisions), Principal: p.ID, Role: string(p.Role), Settings: s, At: e.Now(),
	}
	if s.Shared != nil {
		if err := checkShare(p, l.stored); err != nil {
			return store.JudgeConfig{}, err
		}
	}
	rights, ofOperator, err := e.loadAgentRights(ctx, l.stored.Name)
	if err != nil {
		return store.JudgeConfig{}, err
	}
	switch {
	case p.Role == RoleOperator:
	case ofOperator.def != nil:
		if err := l.checkAgentSettings(p, rights, s, revisions); err != nil {
			return store.JudgeConfig{}, err
		}
		c.Scope = p.ID
	case l.stored.Owner != p.ID:
		return store.JudgeConfig{}, newError(CodeForbidden, "", "The workflow %q belongs to another principal; you may not configure its judge.", c.Workflow).
			withHint("Ask its owner or an operator.")
	default:
		if err := keepsOperatorKeys(s, revisions, l.def.Rubric(selectOverlays(l.stored, l.def.Agents, p.ID, revisions))); err != nil {
			return store.JudgeConfig{}, err
		}
	}
	if err := checkConfigQuota(p, revisions); err != nil {
		return store.JudgeConfig{}, err
	}
	if c.Hash, err = HashJudgeConfig(c); err != nil {
		return store.JudgeConfig{}, InternalError("encode the judge configuration", err)
	}
	return c, nil
}

func checkShare(p Principal, s store.Definition) error {
	switch {
	case p.Role != RoleOperator:
		return &Error{Code: CodeForbidden, Path: "/shared", Message: "Only an operator may share a workflow with other agents.", Hint: "Ask an operator."}
	case s.Operator:
		return &Error{Code: CodeInvalidArgument, Path: "/shared", Message: "The workflow belongs to an operator; every agent may use it.", Hint: "Leave shared out."}
	}
	return nil
}

// nextRevision returns the number after the newest revision. It does not count them, because a repaired store
// may lack some.
func nextRevision(revisions []store.JudgeConfig) int {
	if len(revisions) == 0 {
		return 1
	}
	return revisions[len(revisions)-1].Revision + 1
}

// maxConfigsEach limits how often one principal other than an operator may configure the judge of one
// workflow, because every decision on that workflow reads all its revisions.
const maxConfigsEach = 200

func checkConfigQuota(p Principal, revisions []store.JudgeConfig) error {
	if p.Role == RoleOperator {
		return nil
	}
	own := 0
	for _, r := range revisions {
		if r.Principal == p.ID && Role(r.Role) != RoleOperator {
			own++
		}
	}
	if own < maxConfigsEach {
		return nil
	}
	return newError(CodeTooManyConfigs, "", "You have configured the judge of this workflow %d times, which is the limit.", own).
		withHint("The present configuration stays in force. Ask an operator to change it, or define your own workflow under another name.")
}

// HashJudgeConfig computes the Hash of a judge-config revision.
func HashJudgeConfig(c store.JudgeConfig) (string, error) {
	body, err := json.Marshal(c.Settings)
	if err != nil {
		return "", err
	}
	return "sha256:" + digestParts("gavel/judge-config/v1", c.Workflow, strconv.Itoa(c.Revision), c.Principal, c.Role, c.Scope, string(body),
		c.At.Format("2006-01-02T15:04:05.000000Z07:00")), nil
}

func checkSettings(s workflow.JudgeSettings, models []string) error {
	if s.Enabled == nil && s.StrictMode == nil && s.MinConfidence == nil && s.UseLLM == nil && s.Model == nil && s.Shared == nil {
		return &Error{Code: CodeInvalidArgument, Message: "No setting was given.", Hint: "Give at least one of enabled, strictMode, minConfidence, useLLM, model, shared."}
	}
	if m := s.MinConfidence; m != nil && (*m != *m || *m < 0 || *m > 1) {
		return &Error{Code: CodeInvalidArgument, Path: "/minConfidence", Message: "minConfidence must be a number from 0 to 1.", Hint: "For example 0.8."}
	}
	if s.Mode != nil || s.OnJudgeUnavailable != nil || s.RequireAssurance != nil || s.Risk != nil || s.Content != nil || s.Criteria != nil || s.Samples != nil || s.Panel != nil || s.OnEvidenceMissing != nil || s.Review != nil {
		return &Error{Code: CodeInvalidArgument, Message: "Only enabled, strictMode, minConfidence, useLLM and model can be configured separately from a definition.", Hint: "For other settings define a new version."}
	}
	if s.Model != nil && !slices.Contains(models, *s.Model) {
		return unknownModel(*s.Model, models)
	}
	return nil
}

// unknownModel returns the error for an unknown model. It names the configured models, because a judge's
// model must be one that an operator configured.
func unknownModel(name string, models []string) *Error {
	hint := "No model is configured at all; ask an operator to configure one."
	if len(models) > 0 {
		hint = fmt.Sprintf("Configured models: %s.", strings.Join(models, ", "))
	}
	return newError(CodeInvalidArgument, "/model", "No model %.80q is configured%s", name, suggestNearest(name, models)).withHint(hint)
}

// checkAgentSettings checks what agents with these rights may change in the judge of an operator's workflow. On
// a version that an agent made, they may only tighten the judge, because that agent wrote its settings.
func (d definition) checkAgentSettings(p Principal, rights workflow.AgentRights, s workflow.JudgeSettings, revisions []store.JudgeConfig) error {
	switch {
	case rights.Judge == workflow.JudgeKeep:
		return &Error{Code: CodeForbidden, Message: "This definition belongs to an operator, who configures its judge.", Hint: "Ask an operator."}
	case rights.Judge == workflow.JudgeSet && d.stored.Operator:
		if s.Model != nil {
			return &Error{Code: CodeForbidden, Path: "/model", Message: "Only an operator chooses the model for an operator's definition.", Hint: "Leave model out."}
		}
		return nil
	}
	return checkTightens(s, d.def.Rubric(selectOverlays(d.stored, d.def.Agents, p.ID, revisions)))
}

// checkTightens checks that an agent only tightens the judge of an operator's definition: enabled true,
// strictMode true, or a minConfidence that is not below the present one.
func checkTightens(s workflow.JudgeSettings, now judge.Rubric) error {
	if (s.Enabled != nil && !*s.Enabled) || (s.StrictMode != nil && !*s.StrictMode) || s.UseLLM != nil || s.Model != nil ||
		(s.MinConfidence != nil && *s.MinConfidence < now.MinConfidence) {
		return newError(CodeForbidden, "", "This definition belongs to an operator; an agent may only tighten its judge.").
			withHint("Allowed: enabled true, strictMode true, a higher minConfidence, for your own instances.")
	}
	return nil
}

// keepsOperatorKeys rejects settings with which the owner of a definition would loosen an operator's
// configuration.
func keepsOperatorKeys(s workflow.JudgeSettings, revisions []store.JudgeConfig, now judge.Rubric) error {
	var byOperator workflow.JudgeSettings
	for _, r := range revisions {
		if Role(r.Role) == RoleOperator {
			byOperator = byOperator.With(r.Settings)
		}
	}
	loosens := (byOperator.Enabled != nil && s.Enabled != nil && now.Enabled && !*s.Enabled) ||
		(byOperator.StrictMode != nil && s.StrictMode != nil && now.StrictMode && !*s.StrictMode) ||
		(byOperator.MinConfidence != nil && s.MinConfidence != nil && *s.MinConfidence < now.MinConfidence) ||
		(byOperator.UseLLM != nil && s.UseLLM != nil && now.UseLLM && !*s.UseLLM) ||
		(byOperator.Model != nil && s.Model != nil && *s.Model != *byOperator.Model) // which of two models is stricter is unknown
	if loosens {
		return &Error{Code: CodeForbidden, Message: "An operator configured this setting; only an operator may loosen it.", Hint: "Ask an operator."}
	}
	return nil
}

// loadOverlays returns the judge-config revisions in force for an owner's instances at a time (zero is
// now), and the digest that identifies them; "" if there are none.
func (lib *library) loadOverlays(ctx context.Context, l definition, owner string, at time.Time) ([]workflow.Overlay, string, error) {
	revisions, err := lib.rules.listConfigs(ctx, l.stored.Name)
	if err != nil {
		return nil, "", StoreError("read the judge configuration", err)
	}
	if !at.IsZero() {
		revisions = slices.DeleteFunc(revisions, func(c store.JudgeConfig) bool { return c.At.After(at) })
	}
	if len(revisions) == 0 { // the common case
		return nil, "", nil
	}
	return selectOverlays(l.stored, l.def.Agents, owner, revisions), HashJudgeConfigs(owner, revisions), nil
}

// HashJudgeConfigs returns a digest that identifies the judge-config revisions that apply to an owner's
// instances. It is "" if there are no revisions at all.
func HashJudgeConfigs(owner string, revisions []store.JudgeConfig) string {
	if len(revisions) == 0 {
		return ""
	}
	hashes := []string{"gavel/judge-configs/v1"}
	for _, r := range revisions {
		if r.Scope == "" || r.Scope == owner {
			hashes = append(hashes, r.Hash)
		}
	}
	return "sha256:" + digestParts(hashes...)
}

// selectOverlays returns the settings that apply to an owner's instances. It is pure.
//
// Revisions for all principals come first, in order. Then come the owner's own revisions, which can only
// tighten unless the definition lets agents set the judge. A later operator revision of a key removes that key
// from the owner's earlier revisions. A revision that an agent made for all principals applies only to that
// agent's versions.
func selectOverlays(s store.Definition, agents workflow.AgentRights, owner string, revisions []store.JudgeConfig) []workflow.Overlay {
	var out, tight []workflow.Overlay
	for i, r := range revisions {
		operator := Role(r.Role) == RoleOperator
		switch {
		case r.Scope == "" && (operator || !s.Operator && r.Principal == s.Owner):
			out = append(out, workflow.Overlay{Settings: r.Settings})
		case r.Scope != "" && r.Scope == owner:
			left := r.Settings
			for _, later := range revisions[i+1:] {
				if Role(later.Role) == RoleOperator {
					left = left.Without(later.Settings)
				}
			}
			tight = append(tight, workflow.Overlay{Settings: left, TightenOnly: !s.Operator || agents.Judge != workflow.JudgeSet})
		}
	}
	return append(out, tight...)
}

func configMessage(c store.JudgeConfig) string {
	if only := (workflow.JudgeSettings{Shared: c.Settings.Shared}); c.Settings.Shared != nil && reflect.DeepEqual(c.Settings, only) {
		if *only.Shared {
			return fmt.Sprintf("Every agent may see and start %q from now on.", c.Workflow)
		}
		return fmt.Sprintf("Only its owner may see and start %q from now on.", c.Workflow)
	}
	if c.Scope != "" {
		return fmt.Sprintf("The judge of %q is configured for your instances, from the next decision on.", c.Workflow)
	}
	return fmt.Sprintf("The judge of %q is configured, from the next decision on.", c.Workflow)
}
