package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/upstream"
)

// openBench opens runs over a file; door performs their calls.
func openBench(b *testing.B, folder string, door Effects, repeatable bool) *Runs {
	b.Helper()
	r, err := Open(context.Background(), Config{Path: filepath.Join(folder, "chains.db"), Effects: door, Repeatable: func(string, string) bool { return repeatable }})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// BenchmarkChainStep measures a step of a chain, and for comparison the same call through the door without
// a chain. The server speaks MCP over HTTP in the same process.
func BenchmarkChainStep(b *testing.B) {
	servers := openServers(b)
	servers.answers.Store(&fakeServers{answers: map[string]func(Command, int) Outcome{"code-mcp/execute": says("ok")}})
	const loops = 100
	for _, kind := range []struct {
		name       string
		repeatable bool
	}{{"repeatable", true}, {"once", false}} {
		b.Run(kind.name, func(b *testing.B) {
			r := openBench(b, b.TempDir(), Executor{Upstreams: servers.door}, kind.repeatable)
			defer r.Close()
			d := parse(b, steps(fmt.Sprintf(`{id: f, type: loop, max_iterations: %d, steps: [{id: a, type: tool, server: code-mcp, action: execute}]}`, loops)))
			var bare, durable time.Duration
			for b.Loop() {
				began := time.Now()
				for range loops {
					reply, err := servers.door.Call(b.Context(), operator, upstream.Request{Method: "tools/call", Kind: upstream.KindTool, Upstream: "code-mcp", Name: "execute", Params: json.RawMessage(`{"arguments":{}}`)})
					if err != nil || reply.Error != nil {
						b.Fatal(err, string(reply.Error))
					}
				}
				bare += time.Since(began)
				began = time.Now()
				if result := waitRun(b, r, startRun(b, r, d, "")); result.Err != nil {
					b.Fatal(result.Err)
				}
				durable += time.Since(began)
			}
			calls := float64(b.N * loops)
			b.ReportMetric(float64(bare.Microseconds())/calls, "bare-µs/call")
			b.ReportMetric(float64(durable.Microseconds())/calls, "µs/step")
			b.ReportMetric(float64(durable-bare)/float64(bare), "overhead/bare")
		})
	}
}

// BenchmarkChainAtOnce measures the memory and the time of each of 1,000 concurrent runs.
func BenchmarkChainAtOnce(b *testing.B) {
	const runs = 1000
	d := parse(b, steps(`{id: a, type: tool, server: s, action: x}`, `{id: b, type: tool, server: s, action: x}`))
	for b.Loop() {
		begun, leave := make(chan struct{}, runs), make(chan struct{})
		r := openBench(b, b.TempDir(), effectsFunc(func(_ context.Context, c Command) Outcome {
			if c.Key == "a" {
				begun <- struct{}{}
				<-leave
			}
			return Outcome{Value: "ok"}
		}), true)
		before, began := heapInUse(), time.Now()
		ids := make([]string, runs)
		for i := range ids {
			ids[i] = startRun(b, r, d, "")
		}
		for range runs {
			<-begun
		}
		b.ReportMetric(float64(heapInUse()-before)/runs/1024, "KiB/run")
		close(leave)
		for _, id := range ids {
			waitRun(b, r, id)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds())/runs, "ms/run")
		r.Close()
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// BenchmarkChainRestart measures the time from opening the file to the next step of an unfinished run, by
// how much the run had done.
func BenchmarkChainRestart(b *testing.B) {
	const last = `{id: z, type: tool, server: s, action: z}`
	for _, run := range []struct{ name, doc string }{
		{"first", steps(last)},
		{"100_outcomes", steps(`{id: l, type: loop, max_iterations: 100, steps: [{id: a, type: tool, server: s, action: x}]}`, last)},
		{"999_steps", steps(numberedLines(999) + "\n- " + last)},
		{"10000_outcomes", steps(`{id: l, type: loop, max_iterations: 10000, steps: [{id: a, type: tool, server: s, action: x}]}`, last)},
		{"10000_outcomes_at_once", "variables: {input: {n: []}}\n" + steps(`{id: l, type: forEach, items: "{{variables.input.n}}", steps: [{id: a, type: tool, server: s, action: x}]}`, last)},
	} {
		b.Run(run.name, func(b *testing.B) {
			folder, reached := b.TempDir(), make(chan struct{})
			blocked := effectsFunc(func(ctx context.Context, c Command) Outcome {
				if c.Key == "z" {
					reached <- struct{}{}
					<-ctx.Done()
				}
				return Outcome{Value: "ok"}
			})
			input := ""
			if d := parse(b, run.doc); len(d.Input) > 0 {
				input = `{"n":` + marshal(make([]int, MaxIterations)) + `}`
			}
			r, began := openBench(b, folder, blocked, true), time.Now()
			startRun(b, r, parse(b, run.doc), input)
			<-reached
			first := time.Since(began)
			r.Close()
			b.ResetTimer()
			for b.Loop() {
				r := openBench(b, folder, blocked, true)
				<-reached
				b.StopTimer()
				r.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms")
			b.ReportMetric(float64(first.Milliseconds()), "first-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func numberedLines(n int) string {
	var out string
	for i := range n {
		if i > 0 {
			out += "\n- "
		}
		out += fmt.Sprintf(`{id: s%d, type: tool, server: s, action: x}`, i)
	}
	return out
}

// BenchmarkChainList lists and shows runs among 10,000 ended ones with ten steps each.
func BenchmarkChainList(b *testing.B) {
	const runs = 10_000
	folder := b.TempDir()
	r := openBench(b, folder, effectsFunc(func(context.Context, Command) Outcome {
		return Outcome{Value: map[string]any{"text": fmt.Sprintf("%01000d", 0)}}
	}), true)
	d := parse(b, steps(`{id: l, type: loop, max_iterations: 10, steps: [{id: a, type: tool, server: s, action: x}], save_output_to: saved.l}`))
	waitRun(b, r, startRun(b, r, d, ""))
	list, err := r.List(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	first := list[0].Started.Add(-runs * time.Second) // when the first run started
	r.Close()
	multiplyRuns(b, filepath.Join(folder, "chains.db"), runs)
	db := openSQLite(b, filepath.Join(folder, "chains.db"))
	for _, change := range []string{ // some runs have failed, and a few belong to another chain
		"UPDATE workflow_status SET status = 'ERROR' WHERE workflow_uuid LIKE 'run-%00'",
		"UPDATE workflow_output SET output = '{\"output\":{},\"error\":{\"code\":\"x\",\"message\":\"x\"}}' WHERE workflow_uuid LIKE 'run-%00'",
		"UPDATE workflow_status SET authenticated_user = 'rare' || char(10) || 'ann' WHERE workflow_uuid LIKE 'run-50_'",
	} {
		if _, err := db.ExecContext(b.Context(), change); err != nil {
			b.Fatal(err)
		}
	}
	r = openBench(b, folder, nil, true)
	defer r.Close()
	s := NewService(ServiceConfig{Runs: r, Chains: func() map[string]*Definition { return map[string]*Definition{"c": d} }})
	agent := operator
	agent.Role = "agent"
	for _, ask := range []struct {
		name string
		do   func() error
	}{
		{"list", func() error { _, err := s.ListRuns(b.Context(), operator, ListRuns{}); return err }},
		{"list_of_agent", func() error { _, err := s.ListRuns(b.Context(), agent, ListRuns{}); return err }},
		{"list_of_chain", func() error { _, err := s.ListRuns(b.Context(), operator, ListRuns{Chain: "c"}); return err }},
		{"list_of_no_chain", func() error { _, err := s.ListRuns(b.Context(), operator, ListRuns{Chain: "d"}); return err }},
		{"list_running", func() error { _, err := s.ListRuns(b.Context(), operator, ListRuns{Status: StatusRunning}); return err }},
		{"list_of_rare_chain", func() error { _, err := s.ListRuns(b.Context(), operator, ListRuns{Chain: "rare"}); return err }},
		{"list_failed_of_chain", func() error {
			_, err := s.ListRuns(b.Context(), operator, ListRuns{Chain: "c", Status: StatusFailed})
			return err
		}},
		{"list_done", func() error { _, err := s.ListRuns(b.Context(), operator, ListRuns{Status: StatusDone}); return err }},
		{"list_cancelled", func() error {
			_, err := s.ListRuns(b.Context(), operator, ListRuns{Status: StatusCancelled})
			return err
		}},
		{"list_failed", func() error { _, err := s.ListRuns(b.Context(), operator, ListRuns{Status: StatusFailed}); return err }},
		{"last_page", func() error {
			_, err := s.ListRuns(b.Context(), operator, ListRuns{Cursor: fmt.Sprintf("%d.0", first.Add(50*time.Second).UnixMilli())})
			return err
		}},
		{"show", func() error { _, err := s.ReadRun(b.Context(), operator, "run-5000"); return err }},
		{"find_saved", func() error { _, _, err := r.findSaved(b.Context(), chainOwner("c", "ann")); return err }},
		{"find_saved_of_nobody", func() error { _, _, err := r.findSaved(b.Context(), chainOwner("c", "bob")); return err }},
	} {
		b.Run(ask.name, func(b *testing.B) {
			for b.Loop() {
				if err := ask.do(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// multiplyRuns copies the only run of a file, with its steps, until there are that many runs.
func multiplyRuns(b *testing.B, path string, runs int) {
	b.Helper()
	db := openSQLite(b, path)
	columns := func(table string) (all string) {
		for _, c := range readRows(b, db, "SELECT name FROM pragma_table_info('"+table+"') WHERE name <> 'workflow_uuid'") {
			all += ", " + c[0]
		}
		return all
	}
	for _, table := range []string{"workflow_status", "workflow_input", "workflow_output", "operation_outputs"} {
		all := columns(table)
		from := strings.Replace(all, "created_at", fmt.Sprintf("created_at - 1000 * (%d - i)", runs), 1) // one second apart
		if _, err := db.ExecContext(b.Context(), fmt.Sprintf(
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO %s (workflow_uuid%s) SELECT 'run-' || i%s FROM n, %s WHERE workflow_uuid NOT LIKE '%%/%%'`, runs, table, all, from, table)); err != nil {
			b.Fatal(err)
		}
	}
}
