package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/fleet"
)

// One process with everything, and files. It tells nobody of itself.
const lokiConfig = `auth_enabled: false
server: {http_listen_address: 127.0.0.1, http_listen_port: %[2]s, grpc_listen_address: 127.0.0.1, grpc_listen_port: %[3]s, log_level: warn}
common:
  instance_addr: 127.0.0.1
  path_prefix: %[1]s
  replication_factor: 1
  storage: {filesystem: {chunks_directory: %[1]s/chunks, rules_directory: %[1]s/rules}}
  ring: {kvstore: {store: inmemory}}
schema_config:
  configs:
    - {from: "2024-01-01", store: tsdb, object_store: filesystem, schema: v13, index: {prefix: index_, period: 24h}}
analytics: {reporting_enabled: false}
`

// newLoki starts Loki and returns its address.
func newLoki(t *testing.T) string {
	t.Helper()
	program := os.Getenv("LOKI")
	if program == "" {
		t.Skip("not under `make test-fleet-loki`")
	}
	dir, port := t.TempDir(), freePort(t)
	config := filepath.Join(dir, "loki.yaml")
	assert.NilError(t, os.WriteFile(config, fmt.Appendf(nil, lokiConfig, dir, port, freePort(t)), 0o600))
	cmd := exec.Command(program, "-config.file="+config)
	out, err := os.Create(filepath.Join(dir, "log"))
	assert.NilError(t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(hang); ; time.Sleep(200 * time.Millisecond) {
		if resp, err := http.Get("http://127.0.0.1:" + port + "/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return "127.0.0.1:" + port
			}
		}
		log, _ := os.ReadFile(out.Name())
		assert.Assert(t, time.Now().Before(end), "Loki is not ready\n%s", log[max(0, len(log)-4000):])
	}
}

// TestLoki: outliers through a real collector into a real Loki, with the shipped configuration as it
// is; what LogQL answers is what was sent, and each shipped query is answered.
func TestLoki(t *testing.T) {
	needCollector(t)
	address := newLoki(t)
	c := startCollector(t, filepath.Join(root, "configs/fleet/collector-loki.yaml"), "LOKI_ENDPOINT=http://"+address+"/otlp")
	resources := []map[string]string{{"host.name": "a", "deployment.id": "7"}, {"host.name": `b'"\`, "deployment.id": "8"}}
	all := runDaemons(t, c.listen, resources)
	want := &truth{culprits: map[string]int64{}, rules: map[string]int64{}, machines: map[string]int64{}, releases: map[string]int64{}}
	d := &day{dice: rand.New(rand.NewPCG(11, 12))}
	const each = 150
	begin := time.Now().Add(-time.Hour)
	for i := range each {
		for h, r := range resources {
			k := kinds[i%len(kinds)]
			k.culprit += strings.Repeat(`'"\`+"`{}|=", h)
			o := d.outlier(fmt.Sprint(h), &k, begin.Add(time.Duration(i)*20*time.Second))
			want.add(o, r["host.name"], r["deployment.id"])
			publish(all.list[h], o)
		}
	}
	f, err := fleet.Open("loki+http://"+address, &fleet.Options{SnapshotURL: "https://s3.example/{host}/{snapshot}"})
	assert.NilError(t, err)
	defer f.Close()
	q := fleet.Query{Since: begin.Add(-time.Minute), Until: time.Now(), Count: 1000}
	var list []fleet.Event
	for end := time.Now().Add(hang); len(list) < 2*each; time.Sleep(200 * time.Millisecond) {
		list, err = f.Events(t.Context(), &q)
		assert.NilError(t, err)
		assert.Assert(t, time.Now().Before(end), "%d of %d outliers are stored\n%s", len(list), 2*each, c.said())
	}
	for _, e := range list {
		assert.Check(t, (e.Host == "a" && e.Release == "7" || e.Host == `b'"\` && e.Release == "8") && e.Trigger == "threshold" &&
			e.DelayNS >= e.ThresholdNS && e.Task == "nginx" && e.Kernel != "" && strings.HasPrefix(e.Summary, e.Rule+": ") &&
			e.Snapshot == nil == (e.Culprit == "") && (e.Snapshot == nil || strings.HasPrefix(e.Snapshot.URL, "https://s3.example/")), "%+v", e)
	}

	delete(want.culprits, "") // Loki has no row for what is not explained
	for by, sums := range map[fleet.Key]map[string]int64{
		fleet.Culprit: want.culprits, fleet.Rule: want.rules, fleet.Host: want.machines, fleet.Release: want.releases,
	} {
		got := top(t, f, q, by)
		assert.Check(t, got.Outliers == want.outliers && got.NS == want.ns && got.Hosts == 2 && got.Explained == want.explained &&
			got.ExplainedNS == want.explainedNS && !got.Exact, "%s: %+v, want %+v", by, got, want)
		rows, n := map[string]int64{}, int64(0)
		for _, r := range got.Rows {
			rows[r.Name] = r.NS
			n += r.Outliers
			assert.Check(t, r.WorstNS > 0 && r.WorstNS < r.NS, "%+v", r)
		}
		assert.Check(t, is.DeepEqual(sums, rows), "%s", by)
		assert.Check(t, n == want.outliers || by == fleet.Culprit && n == want.explained, "%s: %d", by, n)
	}
	q.Where = map[fleet.Key]string{fleet.Host: `b'"\`, fleet.Rule: "disk"}
	one := top(t, f, q, fleet.Host)
	assert.Check(t, len(one.Rows) == 1 && one.Rows[0].Name == `b'"\`, "%+v", one)
	_, err = f.Top(t.Context(), &fleet.Query{By: fleet.Host, Since: q.Since, Until: q.Until, Count: 1, SinceRelease: fleet.Release})
	assert.Check(t, is.ErrorContains(err, "--since-release needs ClickHouse"))
	checkLogQL(t, address)
}

// checkLogQL runs the shipped queries.
func checkLogQL(t *testing.T, address string) {
	text, err := os.ReadFile(filepath.Join(root, "configs/fleet/loki/queries.logql"))
	assert.NilError(t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		n++
		path := "query"
		if line[0] == '{' {
			path = "query_range"
		}
		resp, err := http.Get("http://" + address + "/loki/api/v1/" + path + "?query=" + url.QueryEscape(line))
		assert.NilError(t, err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		assert.NilError(t, err)
		var answer struct {
			Data struct{ Result []json.RawMessage }
		}
		assert.Check(t, resp.StatusCode == http.StatusOK && json.Unmarshal(body, &answer) == nil && len(answer.Data.Result) > 0, "%s\n%s", line, body)
	}
	assert.Check(t, n > 5)
}
