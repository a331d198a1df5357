package folder_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/folder"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
)

const loop = `{"name":"loop","initialState":"a","states":{"a":{"transitions":{"x":"a"}}}}`

// filled returns a member of an object with this many bytes.
func filled(key string, bytes int) string {
	return fmt.Sprintf("%q:%q", key, strings.Repeat("v", bytes))
}

// minute returns a time in a history.
func minute(n int) string {
	return time.Date(2025, 1, 1, 0, n, 0, 0, time.UTC).Format(time.RFC3339)
}

// A log of short lines after a large context is held in memory as lines, not as the contexts that they
// lead to; so are the checkpoints between its lines.
func TestImportHoldsNoContexts(t *testing.T) {
	if storetest.RaceDetector {
		t.Skip("the race detector's memory is counted too")
	}
	const lines, checkpoints = 2000, 200
	var log strings.Builder
	fmt.Fprintf(&log, `{"to":"a","data":{%s}}`+"\n", filled("one", 100<<10))
	fmt.Fprintf(&log, `{"from":"a","action":"x","to":"a","data":{%s}}`+"\n", filled("two", 100<<10))
	for i := range lines {
		fmt.Fprintf(&log, `{"timestamp":%q,"from":"a","action":"x","to":"a","data":{"n":%d}}`+"\n", minute(i), i)
	}
	from := files{
		"definitions/loop.json": loop,
		"wf-1.json":             fmt.Sprintf(`{"id":"wf-1","type":"loop","state":"a","context":{%s,%s,"n":%d}}`, filled("one", 100<<10), filled("two", 100<<10), lines-1),
		"wf-1.log":              log.String(),
	}
	for i := range checkpoints {
		from[fmt.Sprintf("checkpoints/c%d.json", i)] = fmt.Sprintf(`{"checkpointId":"c%d","workflowId":"wf-1","state":"a","timestamp":%q}`, i, minute(i*lines/checkpoints))
	}
	h := newHouse(t, "a")
	before := heap()
	report := h.bring(from.fs(), func(req *portable.ImportRequest) { req.DryRun = true })
	grown := heap() - before
	if got := report.Instances[0]; got.Status != portable.Imported || got.Events != lines+2+checkpoints || got.Checkpoints != checkpoints || report.Differed > 0 {
		t.Fatalf("%s", text(report))
	}
	// The contexts would be more than 400 MB.
	if grown > 200<<20 {
		t.Errorf("the heap grew by %d bytes for a log of %d", grown, log.Len())
	}
}

// heap is roughly the largest size that the heap ever had.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapSys)
}

// Oversized input is rejected with its line, before all of it is in memory.
func TestImportRefusesTooMuch(t *testing.T) {
	for name, tt := range map[string]struct {
		from files
		want string
	}{
		"a context": {files{
			"wf-1.log": fmt.Sprintf(`{"to":"a","data":{%s}}`+"\n"+`{"from":"a","to":"a","data":{%s}}`+"\n"+`{"from":"a","to":"a","data":{%s}}`+"\n"+`{"from":"a","action":"no state","to":"a"}`,
				filled("a", 100<<10), filled("b", 100<<10), filled("c", 100<<10)),
		}, "wf-1.log:3: too large: a context of "},
		"restored changes": {files{
			"wf-1.log":           `{"to":"a"}` + "\n" + strings.Repeat(`{"action":"rollback","to":"a","checkpointId":"c"}`+"\n"+`{"action":"rollback","to":"a","checkpointId":"d"}`+"\n", 1000),
			"checkpoints/c.json": fmt.Sprintf(`{"checkpointId":"c","workflowId":"wf-1","state":"a","context":{%s}}`, filled("c", 60<<10)),
			"checkpoints/d.json": fmt.Sprintf(`{"checkpointId":"d","workflowId":"wf-1","state":"a","context":{%s}}`, filled("d", 60<<10)),
		}, "exceed the limit of 67108864 bytes for one instance"},
		"lines": {files{"wf-1.log": strings.Repeat("{}\n", folder.MaxLines+1)}, "wf-1.log:100001: the log has more than 100000 lines"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.from["definitions/loop.json"] = loop
			tt.from["wf-1.json"] = `{"id":"wf-1","type":"loop","state":"a"}`
			h := newHouse(t, "a")
			got := h.bring(tt.from.fs(), nil).Instances[0]
			if got.Status != portable.Refused || !strings.Contains(got.Reason, tt.want) {
				t.Errorf("got %s: %s; want %s", got.Status, got.Reason, tt.want)
			}
			if n := len(h.export()); n != 1 {
				t.Errorf("%d files are here, not the definition alone", n)
			}
		})
	}
}

// A history twice as long takes twice the work to import, even if lines go back and
// checkpoints name steps.
func TestImportIsLinear(t *testing.T) {
	allocated := func(n int) uint64 {
		from := files{"definitions/loop.json": loop}
		var log strings.Builder
		log.WriteString(`{"to":"a","data":{"n":0}}` + "\n")
		for i := range n {
			fmt.Fprintf(&log, `{"timestamp":%q,"from":"a","action":"x","to":"a","data":{"n":%d}}`+"\n", minute(i), i+1)
			from[fmt.Sprintf("checkpoints/c%d.json", i)] = fmt.Sprintf(`{"checkpointId":"c%d","workflowId":"wf-1","state":"a","context":{"n":%d},"timestamp":%q}`, i, i+1, minute(i))
		}
		for i := range n {
			fmt.Fprintf(&log, `{"timestamp":%q,"action":"rollback","to":"a","checkpointId":"c%d"}`+"\n", minute(n+i), n-i-1)
		}
		from["wf-1.log"], from["wf-1.json"] = log.String(), `{"id":"wf-1","type":"loop","state":"a","context":{"n":1}}`
		h := newHouse(t, "a")
		req := h.request(from.fs())
		req.DryRun, req.Counts = true, true
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		report, err := portable.Import(t.Context(), h.Engine, h.store, operator, req)
		runtime.ReadMemStats(&after)
		if err != nil || report.Instances[0].Checkpoints != n || report.Differed > 0 {
			t.Fatalf("%s, %v", text(report), err)
		}
		return after.Mallocs - before.Mallocs
	}
	small, large := allocated(200), allocated(800)
	if large > 8*small {
		t.Errorf("4 times the history took %.1f times the allocations: %d, %d", float64(large)/float64(small), small, large)
	}
}
