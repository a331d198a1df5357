package script_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/validators/script"
)

// TestIdleWorkerGivesMemoryBack: an idle worker returns the memory that a burst of scripts used.
func TestIdleWorkerGivesMemoryBack(t *testing.T) {
	p := newPool(t, script.Config{})
	private := func() (bytes int) { // memory apart from the program itself
		for _, pid := range p.WorkerPIDs() {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				continue // it has just exited
			}
			_, rest, _ := strings.Cut(string(status), "RssAnon:")
			var kB int
			if _, err := fmt.Sscan(rest, &kB); err != nil {
				t.Fatal(err)
			}
			bytes += kB << 10
		}
		return bytes
	}
	one(t, p, yes, `{}`)
	began := private()
	most := 0
	for range 40 {
		one(t, p, "() => { const a = []; for (let i = 0; i < 2e4; i++) a.push({ i }); return a.length > 0 }", `{}`)
		most = max(most, private())
	}
	if most < began+10<<20 {
		t.Fatalf("the scripts took only %d KB", (most-began)>>10)
	}
	eventually(t, "the memory is given back", func() bool { return private() < began+6<<20 })
}
