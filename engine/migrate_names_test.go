package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

// naming holds the name of each state in one version of a definition.
type naming []string

func (n naming) document(version int) string {
	states := make([]string, len(n))
	for i, from := range n {
		var actions []string
		for to, name := range n {
			actions = append(actions, fmt.Sprintf(`"to-%d":%q`, to, name))
		}
		states[i] = fmt.Sprintf(`%q:{"transitions":{%s}}`, from, strings.Join(actions, ","))
	}
	return fmt.Sprintf(`{"name":"paper","description":"v%d","initialState":%q,"states":{%s}}`, version, n[0], strings.Join(states, ","))
}

// of returns the names of states, sorted.
func (n naming) of(states []int) []string {
	var out []string
	for _, s := range states {
		out = append(out, n[s])
	}
	slices.Sort(out)
	return out
}

// place is the expected position of an instance. States are identified by number, whatever their names.
type place struct {
	at      int
	visited []int
	version int
}

// Whatever names change between versions, and however an instance goes back, it counts exactly the states
// that it was in as visited, and it is in the state that it was in. A rollback is refused only if a name
// has a new meaning.
func TestNamesMeanTheSameStatesAfterRollbacks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		b := newBenchOn(t, memory.New())
		names := []string{"a", "b", "c", "d", "e"}
		versions := make([]naming, 3)
		for v := range versions {
			versions[v] = naming(rapid.Permutation(names).Draw(r, "names"))[:4]
			b.define(operator, versions[v].document(v+1))
		}
		id := b.start(operator, "paper", `{}`).ID // of the newest version
		now := place{visited: []int{0}, version: len(versions)}
		checkpoints := map[string]place{}
		var ids []string
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			switch op := rapid.SampledFrom([]string{"move", "move", "migrate", "checkpoint", "rollback"}).Draw(r, "op"); {
			case op == "move":
				to := rapid.IntRange(0, 3).Draw(r, "to")
				b.moved(operator, id, fmt.Sprint("to-", to), `{}`, versions[now.version-1][to])
				now.at = to
				if !slices.Contains(now.visited, to) {
					now.visited = append(slices.Clip(now.visited), to)
				}
			case op == "migrate":
				to := rapid.IntRange(1, len(versions)).Draw(r, "version")
				states := map[string]string{}
				for i, name := range versions[now.version-1] {
					states[name] = versions[to-1][i]
				}
				if to == now.version {
					continue
				}
				if got := b.migrate(engine.MigrateRequest{FromVersion: now.version, ToVersion: to, States: states}); got.Migrated != 1 {
					r.Fatalf("migrated: %+v", got)
				}
				now.version = to
			case op == "checkpoint":
				cp := b.checkpoint(operator, id)
				checkpoints[cp], ids = now, append(ids, cp)
			case len(ids) > 0:
				cp := rapid.SampledFrom(ids).Draw(r, "checkpoint")
				then := checkpoints[cp]
				_, err := b.Rollback(t.Context(), operator, engine.RollbackRequest{ID: id, CheckpointID: cp})
				same := slices.Equal(versions[then.version-1].of(then.visited), versions[now.version-1].of(then.visited))
				var refused *engine.Error
				switch {
				case err == nil:
					then.version = now.version
					now = then
				case !errors.As(err, &refused) || refused.Code != engine.CodeInvalidArgument || !strings.Contains(refused.Hint, "Migrate the instance"):
					r.Fatalf("a rollback: %v", err)
				case same && versions[then.version-1][then.at] == versions[now.version-1][then.at] && len(then.visited) == 1:
					r.Fatalf("refused although nothing got another name: %v", err)
				}
			}
			inst := b.load(id)
			visited := slices.Sorted(slices.Values(inst.Facts.Visited))
			if is := versions[now.version-1]; inst.State != is[now.at] || !slices.Equal(visited, is.of(now.visited)) {
				r.Fatalf("in %q, visited %v; want %q, %v", inst.State, visited, is[now.at], is.of(now.visited))
			}
		}
		b.verify(id)
	})
}
