package chain

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestStepsOfLongRun: reading a run with very large outputs returns each step, and the memory in use does
// not grow with the outputs. Repeated starts and changes return no steps.
func TestStepsOfLongRun(t *testing.T) { // not parallel: it measures
	const more, size = 1000, 128 << 10
	s := openService(t, &fakeServers{})
	const run = "long"
	if _, err := s.StartRun(t.Context(), operator, StartRun{Chain: "ask", Run: run}); err != nil {
		t.Fatal(err)
	}
	v, err := s.SignalRun(t.Context(), operator, run, "go", nil)
	if err != nil || len(v.Steps) > 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	if v, err = s.WaitRun(t.Context(), operator, run); err != nil {
		t.Fatal(err)
	}
	few := len(v.Steps)
	_, err = openSQLite(t, s.config.Runs.config.Path).ExecContext(t.Context(), fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d)
		INSERT INTO operation_outputs (workflow_uuid, function_id, function_name, output, started_at_epoch_ms, completed_at_epoch_ms)
		SELECT '%s', 1000+i, 'call more#' || i, '{"value":"' || printf('%%.*c', %d, 'x') || '","err":{"code":"c","message":"' || i || '"}}', 1, 2 FROM n`, more, ScopeRun(operator.ID, run), size))
	if err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		tick, peak := time.NewTicker(5*time.Millisecond), uint64(0)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				most <- peak
				return
			case <-tick.C:
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapAlloc)
			}
		}
	}()
	v, err = s.ReadRun(t.Context(), operator, run)
	close(stop)
	held := int64(<-most) - int64(before.HeapAlloc) //nolint:gosec // heap sizes fit
	if err != nil || len(v.Steps) != few+more {
		t.Fatalf("%d steps and not %d, %v", len(v.Steps), few+more, err)
	}
	for i, step := range v.Steps[few:] {
		if step.Key != fmt.Sprintf("more#%d", i+1) || step.Status != "failed" || step.Error.Message != fmt.Sprint(i+1) {
			t.Fatalf("the step %d is %+v, %v", i, step, step.Error)
		}
	}
	t.Logf("held %d MiB of %d MiB", held>>20, more*size>>20)
	if held > more*size/2 {
		t.Errorf("%d bytes were held to read %d", held, more*size)
	}
	if again, err := s.StartRun(t.Context(), operator, StartRun{Chain: "ask", Run: run}); err != nil || len(again.Steps) > 0 || again.Status != StatusDone {
		t.Errorf("started again: %d steps, %v", len(again.Steps), err)
	}
}
