package fleet

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/otlp"
	"github.com/tailcam/tailcam/test/support/collector"
)

// otelcol is a collector with the shipped configuration, but for the exporter: rows are written to
// the ClickHouse of Debian, which is too old for the official one.
type otelcol struct {
	t       *testing.T
	config  []string
	listen  string
	env     []string
	log     string
	process *exec.Cmd
}

func needCollector(t *testing.T) string {
	t.Helper()
	path := os.Getenv("OTELCOL")
	if path == "" {
		t.Skip("not under `make test-fleet`")
	}
	return path
}

// newCollector starts a collector. queue is the size of its queue on disk in bytes; 0: as shipped.
func newCollector(t *testing.T, s *server, queue int) *otelcol {
	t.Helper()
	config := filepath.Join(t.TempDir(), "collector.yaml")
	assert.NilError(t, os.WriteFile(config, collectorConfig(t, s, queue), 0o600))
	return startCollector(t, config)
}

// startCollector starts a collector with one of the shipped files, or what was made of it.
func startCollector(t *testing.T, config string, env ...string) *otelcol {
	t.Helper()
	dir := t.TempDir()
	data, more := filepath.Join(dir, "queue"), filepath.Join(dir, "more.yaml")
	c := &otelcol{t: t, listen: "127.0.0.1:" + freePort(t), config: []string{config, more}, log: filepath.Join(dir, "log")}
	assert.NilError(t, os.Mkdir(data, 0o700))
	assert.NilError(t, os.WriteFile(more, []byte("service: {telemetry: {metrics: {level: none}}}"), 0o600)) // no port for these
	c.env = append(append(os.Environ(), env...), "COLLECTOR_LISTEN="+c.listen, "COLLECTOR_QUEUE_DIR="+data)
	c.start()
	t.Cleanup(c.kill)
	return c
}

// collectorConfig is the shipped configuration with the exporter of rows.
func collectorConfig(t *testing.T, s *server, queue int) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "configs/fleet/collector.yaml"))
	assert.NilError(t, err)
	var config map[string]any
	assert.NilError(t, yaml.Unmarshal(text, &config))
	exporters := config["exporters"].(map[string]any)
	shipped := exporters["clickhouse"].(map[string]any)
	rows := map[string]any{"endpoint": s.url("http")}
	for _, same := range []string{"timeout", "retry_on_failure", "sending_queue"} {
		assert.Assert(t, shipped[same] != nil, "%s", same)
		rows[same] = shipped[same]
	}
	if queue > 0 {
		rows["sending_queue"].(map[string]any)["queue_size"] = queue
		rows["sending_queue"].(map[string]any)["batch"] = map[string]any{"sizer": "items", "flush_timeout": "1s", "min_size": 100, "max_size": 1000}
	}
	// Wait less between attempts than operators should, so that the test is over sooner.
	rows["retry_on_failure"].(map[string]any)["max_interval"] = "2s"
	delete(exporters, "clickhouse")
	exporters["rows"] = rows
	service := config["service"].(map[string]any)
	service["pipelines"].(map[string]any)["logs"].(map[string]any)["exporters"] = []string{"rows"}
	text, err = yaml.Marshal(config)
	assert.NilError(t, err)
	return text
}

func (c *otelcol) start() {
	c.t.Helper()
	c.process = exec.Command(needCollector(c.t), "--config", c.config[0], "--config", c.config[1])
	c.process.Env = c.env
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	assert.NilError(c.t, err)
	defer out.Close()
	c.process.Stdout, c.process.Stderr = out, out
	assert.NilError(c.t, c.process.Start())
	for end := time.Now().Add(hang); ; time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", c.listen); err == nil {
			conn.Close()
			return
		}
		assert.Assert(c.t, time.Now().Before(end), "the collector does not answer\n%s", c.said())
	}
}

func (c *otelcol) kill() {
	_ = c.process.Process.Kill()
	_ = c.process.Wait()
}

func (c *otelcol) said() string {
	text, _ := os.ReadFile(c.log)
	return string(text[max(0, len(text)-4000):])
}

// TestShippedConfigurations: the official components know every key that the shipped files have.
func TestShippedConfigurations(t *testing.T) {
	program := needCollector(t)
	for _, name := range []string{"collector.yaml", "collector-loki.yaml"} {
		cmd := exec.CommandContext(t.Context(), program, "validate", "--config", filepath.Join(root, "configs/fleet", name))
		cmd.Env = append(os.Environ(), "COLLECTOR_QUEUE_DIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		assert.Check(t, err, "%s: %s", name, out)
	}
	// It would find a mistake.
	text, err := os.ReadFile(filepath.Join(root, "configs/fleet/collector.yaml"))
	assert.NilError(t, err)
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	assert.NilError(t, os.WriteFile(wrong, []byte(strings.Replace(string(text), "create_schema", "create_shema", 1)), 0o600))
	out, err := exec.CommandContext(t.Context(), program, "validate", "--config", wrong).CombinedOutput()
	assert.Check(t, err != nil && strings.Contains(string(out), "create_shema"), "%s", out)
}

// TestExporterColumns: the table that the official exporter inserts into has the columns, and the
// types, of the one that it would make itself.
func TestExporterColumns(t *testing.T) {
	needCollector(t)
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/clickhouseexporter")
	list.Dir = "collector"
	dir, err := list.Output()
	assert.NilError(t, err)
	own, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "internal/sqltemplates/logs_table.sql"))
	assert.NilError(t, err)
	ours, err := os.ReadFile(filepath.Join(root, "configs/fleet/clickhouse/otel-logs.sql"))
	assert.NilError(t, err)
	ours, _, _ = bytes.Cut(ours, []byte("ENGINE = Null"))
	columns := func(text []byte) map[string]string {
		found := map[string]string{}
		for _, m := range column.FindAllSubmatch(text, -1) {
			found[string(m[1])] = string(m[2])
		}
		return found
	}
	want := columns(own)
	assert.Assert(t, len(want) == 16 && want["LogAttributes"] == "Map(LowCardinality(String), String)" && want["Timestamp"] == "DateTime64(9)", "%v", want)
	assert.Check(t, is.DeepEqual(want, columns(ours)))
}

// column is a name and a type in a definition, but for what the exporter computes of others.
var column = regexp.MustCompile("(?m)^\\s+`?([A-Z]\\w*)`?\\s+((?:String|UInt8|DateTime64|LowCardinality|Map)(?:\\([^)]*\\)?, \\w+\\)|\\(\\w+\\))?)")

// TestShippedMetrics: each shipped file has a daemon's metrics reach what receives them in Prometheus's
// place, with the delays as native histograms, beside the outliers, and refuses nothing. Prometheus of
// Debian 12 is older than its OTLP receiver.
func TestShippedMetrics(t *testing.T) {
	needCollector(t)
	for _, name := range []string{"collector.yaml", "collector-loki.yaml"} {
		t.Run(name, func(t *testing.T) {
			kept := &collector.Collector{}
			prom := httptest.NewServer(http.StripPrefix("/api/v1/otlp", kept))
			defer prom.Close()
			c := startCollector(t, filepath.Join(root, "configs/fleet", name), "PROMETHEUS_OTLP_ENDPOINT="+prom.URL+"/api/v1/otlp")
			registry := prometheus.NewRegistry()
			delays := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tailcam_delay_seconds", NativeHistogramBucketFactor: math.Exp2(1.0 / 8)})
			registry.MustRegister(delays)
			for i := range 100 {
				delays.Observe(math.Exp2(float64(i) / 8))
			}
			e, err := otlp.New(&otlp.Options{
				Endpoint: "http://" + c.listen, Protocol: otlp.HTTP, Logs: true, Metrics: registry, Interval: 100 * time.Millisecond,
				Version: "1.4.0", Host: "web-1",
			})
			assert.NilError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				e.Run(ctx) // always nil
			}()
			d := &day{dice: rand.New(rand.NewPCG(15, 16))}
			publish(e, d.outlier("web-1", &kinds[0], time.Now()))
			results := func(result string) map[string]uint64 {
				by := map[string]uint64{}
				for _, r := range e.Results() {
					if r.Result == result {
						by[r.Signal] = r.Count
					}
				}
				return by
			}
			eventually(t, "both are taken, and metrics arrive", func() bool {
				taken, refused := results("succeeded"), results("refused")
				assert.Assert(t, refused["logs"] == 0 && refused["metrics"] == 0, "%v\n%s", refused, c.said())
				got, _ := kept.Metrics()
				return taken["logs"] > 0 && taken["metrics"] > 3 && got != nil
			})
			cancel()
			<-ended
			got, resource := kept.Metrics()
			assert.Check(t, resource["host.name"] == "web-1" && resource["service.name"] == "tailcam", "%v", resource)
			points := got["tailcam_delay_seconds"].GetExponentialHistogram().GetDataPoints()
			assert.Assert(t, is.Len(points, 1))
			assert.Check(t, points[0].GetScale() == 3 && points[0].GetCount() == 100 && len(points[0].GetPositive().GetBucketCounts()) == 100, "%v", points[0])
		})
	}
}

// TestStartsWithoutEngine: the collector with the shipped file as it is, and with ClickHouse away
// from the start, takes outliers all the same.
func TestStartsWithoutEngine(t *testing.T) {
	needCollector(t)
	c := startCollector(t, filepath.Join(root, "configs/fleet/collector.yaml"), "CLICKHOUSE_ENDPOINT=clickhouse://127.0.0.1:"+freePort(t))
	d := &day{dice: rand.New(rand.NewPCG(13, 14))}
	all := runDaemons(t, c.listen, []map[string]string{{"host.name": "a"}})
	for range 100 {
		publish(all.list[0], d.outlier("a", &kinds[0], time.Now()))
	}
	eventually(t, "the collector has taken them", func() bool {
		for _, r := range all.list[0].Results() {
			if r.Signal == "logs" && r.Result == "succeeded" && r.Count > 0 {
				return all.waiting() == 0
			}
		}
		return false
	})
	all.stop()
	assert.Check(t, is.Equal(0, all.lost()))
	assert.Check(t, c.process.Process.Signal(syscall.Signal(0)), "it has ended\n%s", c.said())
}
