package engine_test

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// secretText is the sensitive value; it needs escapes in JSON, in HTML and in Go.
const secretText = "s3cret-\"é<7>\\x"

const secretFlow = `{"name":"secretive","initialState":"a","sensitive":["/ssn","/list/*"],"states":{
	"a":{"transitions":{
		"note":"a",
		"fail":{"target":"a","validator":"(data) => ({valid: false, confidence: 1, reason: 'saw ' + data.note})"},
		"ask":{"target":"b","requireAssurance":"human","evidence":[{"name":"e","source":"s","arguments":{"who":"/ssn"}}]},
		"also":{"target":"b","requireAssurance":"human"}}},
	"b":{"transitions":{"back":"a"}}}}`

// secretly returns JSON with the secret in place of $.
func secretly(doc string) json.RawMessage {
	quoted, err := json.Marshal(secretText)
	if err != nil {
		panic(err)
	}
	return json.RawMessage(strings.ReplaceAll(doc, "$", string(quoted[1:len(quoted)-1])))
}

// plantSecrets writes the secret into every field that agents and reviewers can write. It returns the
// instance and its reviews.
func plantSecrets(t *testing.T, b *bench) (id string, reviews []string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	s, err := b.Start(ctx, agent, engine.StartRequest{Type: "secretive", Context: secretly(`{"ssn":"$","list":["$"],"note":"it is $","n":{"$":["$"]}}`), Key: secretText})
	must(err)
	id = s.ID
	ask := func(action, doc string) engine.AdvanceResult {
		t.Helper()
		r, err := b.Advance(ctx, agent, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted(secretly(doc)), Key: secretText + action + doc})
		must(err)
		if r.Review != nil {
			reviews = append(reviews, r.Review.ID)
		}
		return r
	}
	ask("note", `{"note":"again $","k $":1}`)
	ask("do "+secretText, `{"note":"$","ssn":"$"}`)
	ask("fail", `{"note":"$"}`)
	_, err = b.Validate(ctx, agent, engine.AdvanceRequest{ID: id, Action: "fail", Data: document.ReadTrusted(secretly(`{"note":"$"}`))})
	must(err)
	_, err = b.Checkpoint(ctx, agent, engine.CheckpointRequest{ID: id, Description: "before " + secretText, Metadata: secretly(`{"for":"$","ssn":"$","k $":{"deep":["$"]}}`)})
	must(err)
	resolve := func(review string, how judge.Outcome) {
		t.Helper()
		_, err := b.Resolve(ctx, rita, engine.ResolveRequest{ID: review, Decision: how, Reason: "since it is " + secretText, Key: secretText})
		must(err)
	}
	ask("ask", `{"note":"$","ssn":"$"}`)
	resolve(reviews[0], judge.Reject)
	ask("also", `{"note":"$","new":"$"}`)
	ask("ask", `{"note":"$"}`)
	resolve(reviews[1], judge.Approve)
	ask("back", `{}`)
	ask("ask", `{"note":"and $"}`) // stays open
	return id, reviews
}

// wordsOf returns all keys and texts of a result.
func wordsOf(t *testing.T, answer any) string {
	t.Helper()
	raw, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all.WriteString(v + "\n")
			var inner any
			if json.Unmarshal([]byte(v), &inner) == nil && inner != v {
				walk(inner)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for key, e := range v {
				all.WriteString(key + "\n")
				walk(e)
			}
		}
	}
	walk(value)
	return all.String() + string(raw)
}

// readings lists all operations that show recorded values. Those in inPlain show the context, or a
// document that is to become part of it, to operators and the owner.
func readings(b *bench, id string, reviews []string) map[string]func(context.Context, engine.Principal) (any, error) {
	return map[string]func(context.Context, engine.Principal) (any, error){
		"List":     func(ctx context.Context, p engine.Principal) (any, error) { return b.List(ctx, p) },
		"Describe": func(ctx context.Context, p engine.Principal) (any, error) { return b.Describe(ctx, p, "secretive", 0) },
		"DescribeAt": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.DescribeAt(ctx, p, engine.DescribeRequest{ID: id})
		},
		"Status": func(ctx context.Context, p engine.Principal) (any, error) { return b.Status(ctx, p, id) },
		"StatusAt": func(ctx context.Context, p engine.Principal) (any, error) {
			var all []any
			for r := range b.load(id).Revision {
				s, err := b.StatusAt(ctx, p, id, engine.When{Revision: r + 1})
				if err != nil {
					return nil, err
				}
				all = append(all, s)
			}
			return all, nil
		},
		"CanExecute": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.CanExecute(ctx, p, engine.CanExecuteRequest{ID: id, States: []string{"a"}})
		},
		"History": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.History(ctx, p, engine.HistoryRequest{ID: id})
		},
		"Timeline": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.Timeline(ctx, p, engine.HistoryRequest{ID: id})
		},
		"Instances": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.Instances(ctx, p, engine.InstancesRequest{})
		},
		"Diagram": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.Diagram(ctx, p, engine.DiagramRequest{ID: id})
		},
		"ListCheckpoints": func(ctx context.Context, p engine.Principal) (any, error) { return b.ListCheckpoints(ctx, p, id) },
		"Reviews": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.Reviews(ctx, p, engine.ReviewsRequest{Status: "all"})
		},
		"Review": func(ctx context.Context, p engine.Principal) (any, error) {
			var all []any
			for _, review := range reviews {
				v, err := b.Review(ctx, p, review)
				if err != nil {
					return nil, err
				}
				all = append(all, v)
			}
			return all, nil
		},
		"Decisions": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.Decisions(ctx, p, engine.DecisionsRequest{})
		},
		"Statistics": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.Statistics(ctx, p, engine.StatisticsRequest{})
		},
		"Tail": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.Tail(ctx, p, engine.TailRequest{})
		},
		"Export": func(ctx context.Context, p engine.Principal) (any, error) {
			if exportInstances == nil {
				return nil, nil
			}
			return exportInstances(ctx, b, p, "", "")
		},
		"Resolve": func(ctx context.Context, p engine.Principal) (any, error) {
			_, err := b.Resolve(ctx, p, engine.ResolveRequest{ID: reviews[0], Decision: judge.Reject, Reason: "again"})
			return err.Error(), nil //nolint:nilerr // the test examines the error
		},
		"Verify": func(ctx context.Context, p engine.Principal) (any, error) {
			return b.Verify(ctx, p, audit.VerifyRequest{})
		},
	}
}

// Sensitive values appear in no result for a caller that may not see them, whatever field they were
// written into. Reviewers and auditors see none. The owner and operators see them only in the context and
// in data that are to become part of it.
func TestNoAnswerDisclosesASensitiveValue(t *testing.T) {
	t.Parallel()
	b := newReviewBenchOn(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) {
		return judge.FetchResult{Content: secretly(`{"about":"$","k $":["$"]}`)}, nil
	}))
	b.define(operator, secretFlow)
	id, reviews := plantSecrets(t, b)
	all := readings(b, id, reviews)
	inPlain := []string{"Status", "StatusAt", "Review"}
	for _, p := range []engine.Principal{rita, auditor, other, agent, operator} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if slices.Contains(inPlain, name) && (p == agent || p == operator) {
				continue
			}
			answer, err := all[name](t.Context(), p)
			text := ""
			if err != nil {
				text = err.Error()
			} else {
				text = wordsOf(t, answer)
			}
			if strings.Contains(text, secretText) || strings.Contains(text, "s3cret") {
				t.Errorf("%s tells %s: %s", name, p.Role, text)
			}
		}
		for _, q := range []store.DecisionQuery{{Text: "s3cret"}, {Action: "do " + secretText}} {
			found, err := b.Decisions(t.Context(), p, engine.DecisionsRequest{Query: q, Limit: 1})
			if err != nil || len(found.Decisions) > 0 || found.NextCursor != "" {
				t.Errorf("%s finds by %+v: %+v, %v", p.Role, q, found, err)
			}
		}
	}
	for _, p := range []engine.Principal{agent, operator} {
		status, err := b.Status(t.Context(), p, id)
		if err != nil || !strings.Contains(wordsOf(t, status), secretText) {
			t.Errorf("%s does not see the context: %s, %v", p.Role, status.Context, err)
		}
	}
	if _, err := b.Cancel(t.Context(), agent, engine.CancelRequest{ID: id, Reason: "it was " + secretText}); err != nil {
		t.Fatal(err)
	}
	timeline, err := b.Timeline(t.Context(), operator, engine.HistoryRequest{ID: id})
	if text := wordsOf(t, timeline); err != nil || strings.Contains(text, "s3cret") || !strings.Contains(text, "it was [masked]") {
		t.Errorf("the reason of the end: %s, %v", text, err)
	}
}

// If a later definition marks a value as sensitive, it is also hidden in earlier records and from
// searches.
func TestFieldsThatBecomeSensitiveAreHidden(t *testing.T) {
	t.Parallel()
	b := newReviewBenchOn(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) {
		return judge.FetchResult{Content: secretly(`{"about":"$"}`)}, nil
	}))
	b.define(operator, strings.Replace(secretFlow, `["/ssn","/list/*"]`, `[]`, 1))
	id, reviews := plantSecrets(t, b)
	if found, err := b.Decisions(t.Context(), rita, engine.DecisionsRequest{Query: store.DecisionQuery{Text: "s3cret"}}); err != nil || len(found.Decisions) == 0 {
		t.Fatalf("nothing to hide: %+v, %v", found, err)
	}
	b.define(operator, secretFlow)
	if _, err := b.Migrate(t.Context(), operator, engine.MigrateRequest{Workflow: "secretive"}); err != nil {
		t.Fatal(err)
	}
	all := readings(b, id, reviews)
	delete(all, "Statistics") // counts earlier actions under their recorded names
	for _, p := range []engine.Principal{rita, auditor, other} {
		for name, read := range all {
			answer, err := read(t.Context(), p)
			if err != nil {
				answer = err.Error()
			}
			if text := wordsOf(t, answer); strings.Contains(text, "s3cret") {
				t.Errorf("%s tells %s: %s", name, p.Role, text)
			}
		}
		for _, q := range []store.DecisionQuery{{Text: "s3cret"}, {Action: "do " + secretText}} {
			found, err := b.Decisions(t.Context(), p, engine.DecisionsRequest{Query: q, Limit: 1})
			if err != nil || len(found.Decisions) > 0 || found.NextCursor != "" {
				t.Errorf("%s finds by %+v: %+v, %v", p.Role, q, found, err)
			}
		}
	}
}

// Every operation of the engine and its auditor that takes a caller is tested here, or changes something
// and returns a result only to those concerned.
func TestReadingsAreAllOperationsThatShow(t *testing.T) {
	t.Parallel()
	others := []string{
		"Advance", "Validate", "Decide", "Start", "Define", "ConfigureJudge", "Cancel", "Checkpoint", "Rollback", "Undo", "Redo", "BeginCall", "SettleCall", "AskModel", "AddTranscript", "Finish", "FindCall", "FindSubject", "ReleaseSubject", // answer the owner or an operator
		"Migrate", "ClearRefusals", "Retain", "Anchor", "Anchors", "SealRules", "BeginRun", "ListKeys", "RotateKey", "RewrapKeys", "ShredInstance", // for operators only
		"ExamineDefinition",               // returns a result to the principal that submitted the definition
		"LoadDefinition", "BeginBulkRead", // other packages mask what these return
	}
	known := readings(nil, "", nil)
	var methods []reflect.Method
	for _, of := range []reflect.Type{reflect.TypeFor[*engine.Engine](), reflect.TypeFor[*audit.Auditor]()} {
		for i := range of.NumMethod() {
			methods = append(methods, of.Method(i))
		}
	}
	for _, m := range methods {
		takesCaller := false
		for j := range m.Type.NumIn() {
			takesCaller = takesCaller || m.Type.In(j) == reflect.TypeFor[engine.Principal]()
		}
		if _, looked := known[m.Name]; takesCaller && !looked && !slices.Contains(others, m.Name) {
			t.Errorf("%s may tell sensitive values: add it to readings", m.Name)
		}
	}
}
