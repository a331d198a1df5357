package judge_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// looped is a schema that needs the sandbox, whether trusted or not.
const looped = `{"required":["n"],"properties":{"n":{"type":"integer","maximum":9},"next":{"$ref":"#"}}}`

// The schema and the scripts of a move take one call of the sandbox, unless a step is needed between
// them or the scripts are not run.
func TestTripsOfAMove(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		c              judge.Case
		trips, scripts uint64 // and the number of schemas and scripts that ended
	}{
		"schema and validator":           {newCase(shaped(looped), validated("(d) => d.n > 0"), data(`{"n":1}`)), 1, 2},
		"a stranger's":                   {newCase(stranger, shaped(`{"required":["n"]}`), validated("() => true"), data(`{"n":1}`)), 1, 2},
		"fields, schema, routes":         {newCase(requires("n"), shaped(looped), routes("false", "true"), validated("() => true"), data(`{"n":1}`)), 1, 4},
		"a validator that refuses":       {newCase(shaped(looped), validated("() => false"), data(`{"n":1}`)), 1, 2},
		"a violation":                    {newCase(shaped(looped), validated("() => true"), data(`{}`)), 1, 1},
		"a field is missing":             {newCase(requires("m"), shaped(looped), validated("() => true"), data(`{"n":1}`)), 1, 1},
		"evidence between the two":       {newCase(wants("ci"), shaped(looped), validated("(d, c, e) => e.ci.of === 'ci'"), data(`{"n":1}`)), 2, 2},
		"a schema that runs here":        {newCase(shaped(`{"required":["n"]}`), validated("() => true"), data(`{"n":1}`)), 1, 1},
		"in shadow, routes after a no":   {newCase(ruled(shadow), shaped(looped), routes("false", "true"), data(`{}`)), 2, 3},
		"in shadow, without a violation": {newCase(ruled(shadow), shaped(looped), routes("false", "true"), data(`{"n":1}`)), 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := sandbox(t)
			p := fetching(t, pool, nil, finds)
			warm := c.c // compiled scripts are sent along
			warm.Checks.RequiredFields = nil
			data(`{"n":1}`)(&warm)
			decideWith(t, p, warm)
			before := pool.Stats()
			decideWith(t, p, c.c)
			after := pool.Stats()
			if trips, scripts := after.Trips-before.Trips, after.Scripts-before.Scripts; trips != c.trips || scripts != c.scripts {
				t.Errorf("%d trips and %d outcomes, want %d and %d", trips, scripts, c.trips, c.scripts)
			}
		})
	}
}

// apart is a sandbox that does not take a schema and scripts in one call.
type apart struct{ *script.Pool }

func (a apart) Run(ctx context.Context, b script.Batch) (script.Reply, error) {
	if b.Schema != nil && len(b.Routes)+len(b.Validators) > 0 {
		return script.Reply{}, script.ErrInput
	}
	return a.Pool.Run(ctx, b)
}

// A verdict does not depend on whether schema and scripts ran in one call of the sandbox.
func TestOneTripGivesTheVerdictOfTwo(t *testing.T) {
	t.Parallel()
	pool := sandbox(t)
	together, separate := pipeline(t, pool, nil), pipeline(t, apart{pool}, nil)
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(rt, label) }
		c := newCase(
			requires(rapid.SliceOfN(rapid.SampledFrom([]string{"n", "n", "m"}), 0, 1).Draw(rt, "fields")...),
			shaped(pick("schema", looped, looped, `{"required":["n"]}`, `{"$ref":"#"}`)),
			data(pick("data", `{"n":1}`, `{"n":1}`, `{"n":2,"secret":"s3cr3t"}`, `{"n":10}`, `{}`, `{"n":1,"next":{"n":"x"}}`)),
			validated(rapid.SliceOfN(rapid.SampledFrom([]string{
				"() => true", "(d) => d.n === 1", "(d, c) => ({ valid: !d.secret, confidence: 0.7, reason: `${d.secret} of ${Math.random()} at ${Date.now()}` })",
				"() => null.x", "() => {", "() => 1", "() => 'x'.repeat(1e9)",
			}), 0, 3).Draw(rt, "validators")...),
		)
		if conditions := rapid.SliceOfN(rapid.SampledFrom([]string{"false", "false", "data.n === 1", "true", "data.x.y"}), 0, 3).Draw(rt, "routes"); len(conditions) > 0 {
			routes(conditions...)(&c)
		}
		if rapid.Bool().Draw(rt, "stranger") {
			stranger(&c)
			c.MaskedData = document.ReadTrusted([]byte(`{"n":1}`))
		}
		if rapid.Bool().Draw(rt, "shadow") {
			ruled(shadow)(&c)
		}
		if rapid.Bool().Draw(rt, "entry") {
			entry("m")(&c)
		}
		c.Seed = rapid.Int64().Draw(rt, "seed")
		judged := func(p *judge.Pipeline) (judge.Verdict, string) {
			pool.ResetQuarantine("")
			v, err := p.Decide(context.Background(), c)
			return v, fmt.Sprint(err)
		}
		want, wantErr := judged(separate)
		for range 2 { // at first the scripts are not compiled yet
			got, gotErr := judged(together)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(judge.Opinion{}, "Took")); diff != "" || wantErr != gotErr {
				rt.Fatalf("apart (-) %s, together (+) %s:\n%s", wantErr, gotErr, diff)
			}
		}
	})
}

// A caller that is quarantined because its data harmed another owner's script gets that error when the
// script is next to run, but a violation is reported first.
func TestQuarantinedCallerGetsViolations(t *testing.T) {
	t.Parallel()
	pool, err := script.NewPool(script.Config{ScriptStrikes: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	p := pipeline(t, pool, nil)
	bomb := func(n int) judge.Case {
		return newCase(func(c *judge.Case) { c.Principal = "agent:ada" }, shaped(looped), validated("(d) => d.n !== 7 || !!'x'.repeat(1e9)"), data(fmt.Sprintf(`{"n":%d}`, n)))
	}
	for _, n := range []int{1, 1, 7} {
		decideWith(t, p, bomb(n))
	}
	if _, err := p.Decide(t.Context(), bomb(1)); err == nil {
		t.Error("the caller is not held")
	}
	if v := decideWith(t, p, bomb(10)); v.Outcome != judge.Reject || v.DecidedBy != judge.LayerSchema {
		t.Errorf("%s by %s: %s", v.Outcome, v.DecidedBy, v.Reasoning)
	}
}
