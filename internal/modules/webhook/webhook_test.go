package webhook_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	_ "github.com/gavel-mcp/gavel/internal/modules/webhook"
	"github.com/gavel-mcp/gavel/judge"
)

// registered returns the module as the program sees it.
func registered(t *testing.T) module.Module {
	t.Helper()
	all := module.All()
	if len(all) != 1 || all[0].Name != "webhook" {
		t.Fatalf("registered are %v", all)
	}
	return all[0]
}

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

// TestEveryMetricIsOnThePage checks the documented names and labels, which are an interface.
func TestEveryMetricIsOnThePage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gavel.yaml")
	if err := os.WriteFile(path, []byte("notify: {command: [page-me]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	db := memory.New()
	if err := db.MoveCursor(t.Context(), store.Cursor{Name: "webhook:notify.command"}, store.NoCursor, nil); err != nil {
		t.Fatal(err)
	}
	s, err := registered(t).Serve(module.Host{Engine: enginetest.New(t, judge.Config{}), Store: db, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	take, err := s.Prepare(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	take()
	told := map[string]bool{}
	s.Metrics(func(name, _ string, _ prometheus.ValueType, _ float64, labels ...string) {
		var names []string
		for i := 0; i < len(labels); i += 2 {
			names = append(names, labels[i])
		}
		slices.Sort(names)
		told["gavel_"+name+" "+strings.Join(names, " ")] = true
	})
	page, err := os.ReadFile("../../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(gavel_[a-z_]+)` \\| [a-z]+ \\| ([a-z_, ]*)\\|").FindAllStringSubmatch(string(page), -1)
	for _, row := range rows {
		names := strings.Fields(strings.ReplaceAll(row[2], ",", " "))
		slices.Sort(names)
		if name := row[1] + " " + strings.Join(names, " "); !told[name] {
			t.Errorf("no metric %s", name)
		}
	}
	if len(rows) != len(told) {
		t.Errorf("%d metrics, %d on the page: %v", len(told), len(rows), told)
	}
}

// Each section has a schema, with which editors check the file.
func TestSchemas(t *testing.T) {
	t.Parallel()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(registered(t).Schemas, &all); err != nil || len(all) != 2 || all["notify"] == nil || all["webhooks"] == nil {
		t.Errorf("%d schemas, %v", len(all), err)
	}
}
