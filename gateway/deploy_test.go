package gateway

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir"
)

// knownMetrics are the names of all metrics that a Gateway can have.
func knownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	cfg := everything("http://127.0.0.1:1", []*weir.Limit{perHour("all", 1)}, Charge{Limit: "all"})
	cfg.Store = "redis://127.0.0.1:1"
	g, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		g.metrics.registry.Describe(descs)
		close(descs)
	}()
	names := map[string]bool{}
	fqName := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descs {
		names[fqName.FindStringSubmatch(d.String())[1]] = true
	}
	return names
}

// metricNames are the names of weir's metrics in a text, those of the series of a histogram without their ending.
func metricNames(text string) []string {
	var names []string
	for _, at := range regexp.MustCompile(`\bweir_[a-z_]+`).FindAllStringIndex(text, -1) {
		if at[0] > 0 && text[at[0]-1] == ':' {
			continue // of a recording rule
		}
		name := text[at[0]:at[1]]
		if strings.Contains(name, "_seconds_") {
			name = name[:strings.Index(name, "_seconds_")+len("_seconds")]
		}
		names = append(names, name)
	}
	return names
}

const (
	alertsFile    = "../deploy/prometheus/alerts.yaml"
	dashboardFile = "../deploy/grafana/weir.json"
	operatingFile = "../docs/operating.md"
)

// What is deployed beside weir names metrics that there are, and all of them are explained.
func TestMetricsThatAreNamedExist(t *testing.T) {
	known := knownMetrics(t)
	if len(known) < 15 {
		t.Fatal(known)
	}
	named := map[string]map[string]bool{}
	for _, file := range []string{alertsFile, dashboardFile, operatingFile} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named[file] = map[string]bool{}
		for _, name := range metricNames(string(text)) {
			named[file][name] = true
			if !known[name] {
				t.Errorf("%s: there is no metric %s", filepath.Base(file), name)
			}
		}
	}
	for name := range known {
		if !named[operatingFile][name] {
			t.Errorf("operating.md does not explain %s", name)
		}
	}
}

type grafanaPanel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr string }
}

func grafanaPanels(t *testing.T) []grafanaPanel {
	t.Helper()
	data, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Panels []grafanaPanel }
	if err := json.Unmarshal(data, &d); err != nil || len(d.Panels) == 0 {
		t.Fatal(err)
	}
	return d.Panels
}

func TestGrafanaPanelsFit(t *testing.T) {
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range grafanaPanels(t) {
		if ids[p.ID] {
			t.Errorf("%s: id %d twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%+v", p)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
	}
}

// promtool reads the alerts, tries them on made series, and reads the queries of the Grafana dashboard.
func TestPromtoolTakesTheRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool on PATH; apt-get install prometheus brings it")
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("check", "rules", alertsFile)
	run("test", "rules", "../deploy/prometheus/alerts_test.yaml")

	var rules strings.Builder
	rules.WriteString("groups:\n- name: grafana\n  rules:\n")
	n := 0
	for _, p := range grafanaPanels(t) {
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			fmt.Fprintf(&rules, "  - record: panel%d_%d\n    expr: %q\n", p.ID, n, expr)
			n++
		}
	}
	file := filepath.Join(t.TempDir(), "grafana.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run("check", "rules", file)
}

// What is served is what Prometheus takes, down to help texts and units.
func TestPromtoolTakesTheMetrics(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool on PATH; apt-get install prometheus brings it")
	}
	g, url := withDashboard(t, false)
	ask(t, "GET", url)
	_, text := ask(t, "GET", g.AdminURL()+"/metrics")
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
