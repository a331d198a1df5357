package packaging_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "alerts/gavel.rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var out []alert
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) < 15 {
		t.Fatalf("%d alerts", len(out))
	}
	return out
}

// metric is a row of a page of metrics.
type metric struct {
	labels  []string
	meaning string
}

// metricsOfPages returns every metric that the pages have. Tests beside the telemetry and the webhooks compare them with
// the program.
func metricsOfPages(t *testing.T) map[string]metric {
	t.Helper()
	out := map[string]metric{}
	for _, page := range []string{"../docs/reference/metrics.md", "../docs/webhooks.md"} {
		for _, m := range regexp.MustCompile("(?m)^\\| `(gavel_[a-z_]+)` \\| [a-z]+ \\| ([a-z_, ]*)\\| ?(.*?) ?\\|$").FindAllStringSubmatch(read(t, page), -1) {
			out[m[1]] = metric{strings.Fields(strings.ReplaceAll(m[2], ",", " ")), m[3]}
		}
	}
	if len(out) < 50 {
		t.Fatalf("%d metrics found", len(out))
	}
	return out
}

// fixed are labels whose values the pages list. Values of others are names: of models, webhooks, servers.
var fixed = []string{"outcome", "state", "part", "result", "quantile", "class"}

// faultsOfExpr returns what an expression asks for that the program does not have.
func faultsOfExpr(known map[string]metric, expr string) []string {
	var out []string
	found := regexp.MustCompile(`(gavel_[a-z_]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(expr, -1)
	if len(found) == 0 && expr != `up{job="gavel"} == 0` { // the only metric that Prometheus itself adds
		out = append(out, "no metric of gavel")
	}
	for _, m := range found {
		row, ok := known[strings.TrimSuffix(m[1], "_bucket")]
		if !ok {
			out = append(out, "no metric "+m[1])
			continue
		}
		for _, l := range regexp.MustCompile(`(\w+)\s*[=!]~?\s*"([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(row.labels, l[1]) {
				out = append(out, fmt.Sprintf("%s has no label %s", m[1], l[1]))
			}
			for value := range strings.SplitSeq(l[2], "|") {
				if slices.Contains(fixed, l[1]) && !regexp.MustCompile(`(^|[^\w.])`+regexp.QuoteMeta(value)+`($|[^\w.]|\.\s|\.$)`).MatchString(row.meaning) {
					out = append(out, fmt.Sprintf("%s has no %s %q", m[1], l[1], value))
				}
			}
		}
	}
	for _, m := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(m[1], ", ") {
			if label != "job" && label != "instance" && !slices.ContainsFunc(found, func(f []string) bool { return slices.Contains(known[f[1]].labels, label) }) {
				out = append(out, "nothing has the label "+label)
			}
		}
	}
	return out
}

// Alerts ask for metrics, labels and values that exist, and a wrong one is noticed.
func TestAlertsNameMetrics(t *testing.T) {
	t.Parallel()
	known := metricsOfPages(t)
	for _, a := range alerts(t) {
		for _, fault := range faultsOfExpr(known, a.Expr) {
			t.Errorf("%s: %s", a.Alert, fault)
		}
		if severity := a.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s: severity %q", a.Alert, severity)
		}
		for _, annotation := range []string{"summary", "description"} {
			text := a.Annotations[annotation]
			for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
				kept := strings.Contains(a.Expr, "by (") && !regexp.MustCompile(`by \([^)]*\b`+m[1]+`\b`).MatchString(a.Expr)
				if kept || m[1] != "instance" && faultsOfExpr(known, a.Expr+" by ("+m[1]+")") != nil {
					t.Errorf("%s: the %s names the label %s", a.Alert, annotation, m[1])
				}
			}
			if text == "" {
				t.Errorf("%s has no %s", a.Alert, annotation)
			}
		}
	}
	for _, expr := range []string{
		"gavel_store_queue > 1", `gavel_store_bytes{kind="log"} > 1`, `gavel_store_bytes{part="wal"} > 1`, "up == 0",
		`gavel_model_breaker{state=~"open|halfopen"} == 1`, "max by (queue) (gavel_store_queued) > 1", `gavel_decisions_total{outcome="rejected"} > 1`,
	} {
		if len(faultsOfExpr(known, expr)) == 0 {
			t.Errorf("%s passes", expr)
		}
	}
}

// Every alert has its page and every page its alert, with the parts that a person needs, in the index and in a test.
func TestAlertsHaveRunbooks(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]bool{}
	for _, file := range files {
		pages[strings.TrimSuffix(filepath.Base(file), ".md")] = true
	}
	delete(pages, "README")
	index, tests := read(t, "../docs/runbooks/README.md"), read(t, "alerts/gavel.test.yaml")
	for _, a := range alerts(t) {
		if want := "https://github.com/gavel-mcp/gavel/blob/main/docs/runbooks/" + a.Alert + ".md"; a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q", a.Alert, a.Annotations["runbook_url"])
		}
		if !pages[a.Alert] {
			t.Errorf("%s has no page", a.Alert)
			continue
		}
		delete(pages, a.Alert)
		page := read(t, "../docs/runbooks/"+a.Alert+".md")
		for _, part := range []string{"# " + a.Alert + "\n", "\n## Look here\n", "\n## Do this\n", "\n## Afterwards\n"} {
			if !strings.Contains(page, part) {
				t.Errorf("%s: the page lacks %q", a.Alert, part)
			}
		}
		if severity := strings.ToUpper(a.Labels["severity"][:1]) + a.Labels["severity"][1:]; !strings.Contains(strings.ReplaceAll(page, "\n", " "), "**"+severity) {
			t.Errorf("%s: the page does not say **%s", a.Alert, severity)
		}
		if row := fmt.Sprintf("| [%s](%[1]s.md) | %s |", a.Alert, a.Labels["severity"]); !strings.Contains(index, row) {
			t.Errorf("the index lacks %s", row)
		}
		if !strings.Contains(tests, "- name: "+a.Alert+"\n") || !strings.Contains(tests, `{alertname="`+a.Alert+`"}`) {
			t.Errorf("%s: alerts/gavel.test.yaml does not make it fire", a.Alert)
		}
		known := metricsOfPages(t)
		for _, name := range regexp.MustCompile(`gavel_[a-z_]+`).FindAllString(page, -1) {
			if _, ok := known[strings.TrimSuffix(name, "_bucket")]; !ok {
				t.Errorf("%s: the page names %s", a.Alert, name)
			}
		}
	}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		t.Errorf("docs/runbooks/%s.md is of no alert", page)
	}
	if _, err := os.Stat("alerts/gavel.rules.yaml"); err != nil || !strings.Contains(tests, "rule_files: [gavel.rules.yaml]") {
		t.Error("the tests are of other rules")
	}
}
