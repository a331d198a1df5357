package judge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/gavel-mcp/gavel/judge/shown"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// evidence fetches all evidence of the definition in parallel. Fetching proves only that the
// sources answered; later layers judge the content, so this layer adds no assurance.
type evidence struct {
	fetcher Fetcher
	clock   func() time.Time
}

func (evidence) Name() LayerName { return LayerEvidence }

func (e evidence) Weigh(ctx context.Context, c Case) (Opinion, error) {
	if len(c.Evidence) == 0 {
		return Opinion{}, nil
	}
	op := Opinion{Layer: LayerEvidence, Outcome: Approve, Confidence: 1, Assurance: AssuranceNone}
	if !c.Owner.Trusted {
		op.Outcome, op.Fault = Reject, true
		op.Findings = []validators.Finding{{
			Code: CodeEvidenceNotAllowed, Hint: ownerFaultHint,
			Message: "This workflow asks for evidence, which is fetched only for an operator's workflows.",
		}}
		op.Reasoning = joinFindings(op.Findings)
		return op, nil
	}
	var err error
	if op.Evidence, err = e.fetchAll(ctx, c); err != nil {
		return Opinion{}, fmt.Errorf("judge: fetch the evidence: %w", err)
	}
	op.Outcome, op.Findings = decideMissing(c, op.Evidence)
	if op.Outcome != Approve {
		op.Reasoning = joinFindings(op.Findings)
	}
	return op, nil
}

// fetchAll fetches in parallel; duplicate questions are fetched once.
func (e evidence) fetchAll(ctx context.Context, c Case) ([]Evidence, error) {
	out := make([]Evidence, len(c.Evidence))
	group, ctx := errgroup.WithContext(ctx)         // after a failure nothing can be decided
	first, twins := map[string]int{}, map[int]int{} // by question; by index of the duplicate
	for i, r := range c.Evidence {
		if at := slices.IndexFunc(c.RecentEvidence, func(item Evidence) bool { return item.Name == r.Name && item.Failure == "" }); at >= 0 {
			out[i] = c.RecentEvidence[at]
			continue
		}
		key := fmt.Sprintf("%q %s %q %d %t", r.Source, r.Arguments, r.Missing, r.Timeout, r.Unproven)
		if at, ok := first[key]; ok {
			twins[i] = at
			continue
		}
		first[key] = i
		group.Go(func() (err error) {
			out[i], err = e.fetchOne(ctx, c, r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, at := range twins {
		out[i] = out[at]
		out[i].Name, out[i].Required, out[i].MaxAge = c.Evidence[i].Name, c.Evidence[i].Required, document.Milliseconds(c.Evidence[i].MaxAge)
	}
	return out, nil
}

func (e evidence) fetchOne(ctx context.Context, c Case, r EvidenceRequest) (Evidence, error) {
	item := Evidence{
		Name: r.Name, Source: r.Source, Required: r.Required, Arguments: r.MaskedArguments, MaxAge: document.Milliseconds(r.MaxAge),
		At: c.Now,
	}
	if item.At.IsZero() {
		item.At = e.clock().UTC().Truncate(time.Microsecond)
	}
	if item.Arguments == nil {
		item.Arguments = r.Arguments
	}
	if r.Unproven {
		item.Failure, item.Detail = FailureUnproven, "Its arguments come from the context, which no instance vouches for."
		return item, nil
	}
	if e.fetcher == nil {
		item.Failure, item.Detail = FailureNotConfigured, "No source of evidence is configured."
		return item, nil
	}
	r.Caller, r.Instance, r.Principal, r.Role = c.caller(), c.Instance, c.Principal, c.Role
	begun := e.clock()
	found, err := e.fetcher.Fetch(ctx, r, c.Precheck)
	item.Took = document.Milliseconds(max(e.clock().Sub(begun), 0))
	if err != nil {
		return item, err
	}
	item.Failure, item.Detail, item.Truncated = found.Failure, cleanText(found.Detail, maxDetail), found.Truncated
	if item.Tree = found.Tree; !found.At.IsZero() {
		item.At, item.Took = found.At.UTC().Truncate(time.Microsecond), document.Milliseconds(found.Took)
	}
	if item.Failure == "" && (!json.Valid(found.Content) || !utf8.Valid(found.Content)) {
		item.Failure, item.Detail = FailureMalformed, "The source did not answer with JSON."
	}
	if item.Failure != "" {
		return item, nil
	}
	return item.withContent(c, found)
}

// withContent adds the result: plain for scripts, masked for everyone else.
func (e Evidence) withContent(c Case, found FetchResult) (Evidence, error) {
	// Normalize the escapes of the source, so that sensitive values are found and the content can be stored
	// inside another document unchanged.
	found.Content = rewriteStrings(found.Content, func(s string) string { return s })
	if found.Same != nil {
		found.Same = rewriteStrings(found.Same, func(s string) string { return s })
	}
	e.plain, e.Content, e.Size = found.Content, found.Content, len(found.Content)
	if c.Mask != nil {
		masked, err := maskContent(c, e.Name, found.Content)
		if err != nil {
			return e, err
		}
		e.Content = masked
	}
	digest := plainDigest
	if c.KeyDigests || string(e.Content) != string(e.plain) {
		digest = func([]byte) string { return "" }
		if c.Digest != nil {
			digest = c.Digest
		}
	}
	e.Digest = digest(found.Content)
	if found.Same != nil && string(found.Same) != string(found.Content) {
		e.SameDigest = digest(found.Same)
	}
	return e, nil
}

// maskContent masks the values that the definition marks as sensitive, and sensitive values of data
// or context wherever they reappear.
func maskContent(c Case, name string, content json.RawMessage) (json.RawMessage, error) {
	doc, err := c.Mask(wrapEvidence(name, content))
	if err != nil {
		return nil, fmt.Errorf("mask the evidence %q: %w", name, err)
	}
	var in struct {
		Evidence map[string]json.RawMessage `json:"evidence"`
	}
	if err := json.Unmarshal(doc, &in); err != nil {
		return marshalRaw(shown.Masked), nil //nolint:nilerr // all of it was sensitive
	}
	out := in.Evidence[name]
	if c.Scrub == nil {
		return out, nil
	}
	return rewriteStrings(out, c.Scrub), nil
}

// wrapEvidence returns the document that Case.Mask expects.
func wrapEvidence(name string, content json.RawMessage) json.RawMessage {
	return marshalRaw(map[string]map[string]json.RawMessage{"evidence": {name: content}})
}

// scrubEvidence extends c.Scrub to sensitive values in the evidence: an operator's
// scripts see them and may repeat them.
func scrubEvidence(c Case) func(string) string {
	scrub := c.Scrub
	if c.Scrubber == nil {
		return scrub
	}
	for _, e := range c.Fetched {
		if len(e.plain) == 0 {
			continue
		}
		before, more := scrub, c.Scrubber(wrapEvidence(e.Name, e.plain))
		scrub = more
		if before != nil {
			scrub = func(text string) string { return more(before(text)) }
		}
	}
	return scrub
}

// rewriteStrings applies change to every text of a JSON document, names and numbers included, and
// writes it in one form. A document that is not JSON is masked.
func rewriteStrings(doc json.RawMessage, change func(string) string) json.RawMessage {
	v := document.ReadTrusted(doc)
	if v.Kind() == 0 {
		return marshalRaw(shown.Masked)
	}
	return appendRewritten(nil, v, change)
}

func appendRewritten(out []byte, v document.JSON, change func(string) string) []byte {
	switch v.Kind() {
	case document.Object:
		out = append(out, '{')
		separator := ""
		for name, value := range v.Members() {
			out = append(append(append(out, separator...), marshalRaw(change(name.Text()))...), ':')
			out, separator = appendRewritten(out, value, change), ","
		}
		return append(out, '}')
	case document.Array:
		out = append(out, '[')
		for i, item := range v.Elements() {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendRewritten(out, item, change)
		}
		return append(out, ']')
	case document.String:
		return append(out, marshalRaw(change(v.Text()))...)
	case document.Number:
		if literal := string(v.Raw()); change(literal) != literal {
			return append(out, marshalRaw(change(literal))...)
		}
	}
	return append(out, v.Raw()...)
}

func plainDigest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// decideMissing decides about required evidence that is unavailable. It rejects regardless of policy if
// the caller can fix the problem, or has not asked for the move yet.
func decideMissing(c Case, fetched []Evidence) (Outcome, []validators.Finding) {
	outcome := Approve
	var out []validators.Finding
	for _, e := range fetched {
		if e.Failure == "" || !e.Required {
			continue
		}
		f := validators.Finding{
			Code: CodeEvidenceMissing, Message: joinSentences(fmt.Sprintf("The evidence %q could not be fetched (%s).", e.Name, e.Failure), capitalizeDetail(e.Detail)),
			Hint: "The move requires it. Fix the cause, or tell the operator, then perform the action again.",
		}
		to := Escalate
		switch {
		case e.Failure == FailureArgument:
			to = Reject
			f.Code = CodeEvidenceArgument
			f.Message = joinSentences(fmt.Sprintf("The evidence %q cannot be fetched with these data.", e.Name), capitalizeDetail(e.Detail))
			f.Hint = "Correct the fields that it is fetched with."
		case e.Failure == FailureNotReadOnly:
			to = Reject
			f.Code = CodeEvidenceNotChecked
			f.Message = fmt.Sprintf("The evidence %q is fetched only when the action is performed, so this cannot be asked in advance.", e.Name)
			f.Hint = "Perform the action to have it fetched."
		}
		if e.Failure == FailureUnproven {
			to = Reject
			f.Code = CodeEvidenceNotChecked
			f.Message = fmt.Sprintf("The evidence %q is asked for with fields of the context, so it is fetched only for an instance.", e.Name)
			f.Hint = "Start an instance and ask there, or have an operator ask."
		}
		if c.Rubric.OnEvidenceMissing != Escalate {
			to = Reject
		}
		outcome = worseOutcome(outcome, to)
		out = append(out, f)
	}
	return outcome, out
}

func capitalizeDetail(detail string) string {
	if detail == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(detail)
	return string(unicode.ToUpper(first)) + detail[size:]
}

// joinContents returns the document for scripts: the content of each piece of evidence, null if it is
// unavailable; nil if there is none.
func joinContents(fetched []Evidence, plain bool) json.RawMessage {
	if len(fetched) == 0 {
		return nil
	}
	doc := make(map[string]json.RawMessage, len(fetched))
	for _, e := range fetched {
		switch {
		case e.Failure != "":
			doc[e.Name] = json.RawMessage("null")
		case plain:
			doc[e.Name] = e.plain
		default:
			doc[e.Name] = e.Content
		}
	}
	return marshalRaw(doc)
}

// listEvidence returns the document for a model: masked, with the reason if evidence is
// unavailable; nil if there is none.
func listEvidence(fetched []Evidence) json.RawMessage {
	if len(fetched) == 0 {
		return nil
	}
	doc := make(map[string]any, len(fetched))
	for _, e := range fetched {
		doc[e.Name] = e.Content
		if e.Failure != "" {
			doc[e.Name] = map[string]string{"notAvailable": string(e.Failure)}
		}
	}
	return marshalRaw(doc)
}

func marshalRaw(doc any) json.RawMessage {
	raw, err := json.Marshal(doc)
	if err != nil {
		return json.RawMessage("{}") // never happens: every part is valid JSON
	}
	return raw
}

// IdentityWith returns the identity of a case including its fetched evidence, which is part of the
// question. Without evidence it returns identity unchanged.
func IdentityWith(identity string, fetched []Evidence) string {
	return digestWithEvidence(identity, fetched, func(e Evidence) string { return string(e.Failure) + e.Digest })
}

// BoundWith returns Case.Bound including the fetched evidence; results that an operator defines as
// the same count as the same.
func BoundWith(bound string, fetched []Evidence) string {
	return digestWithEvidence(bound, fetched, Evidence.Sameness)
}

func digestWithEvidence(key string, fetched []Evidence, digest func(Evidence) string) string {
	if key == "" || len(fetched) == 0 {
		return key
	}
	h := sha256.New()
	hashPart(h, key)
	for _, e := range fetched {
		hashPart(h, e.Name)
		hashPart(h, digest(e))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
