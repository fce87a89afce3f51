package fleet

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/fleet"
	"github.com/tailcam/tailcam/test/support/collector"
)

// newEngine starts the engine of a current ClickHouse and returns its URL.
func newEngine(t *testing.T) string {
	t.Helper()
	module := os.Getenv("CHDB")
	if module == "" {
		t.Skip("not under `make test-fleet`")
	}
	dir := t.TempDir()
	cmd := exec.Command("node", "engine.mjs", module, dir)
	cmd.Env, cmd.Stderr = append(os.Environ(), "TZ=UTC"), os.Stderr
	in, err := cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // however it ends
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	assert.NilError(t, err)
	return "http://127.0.0.1:" + strings.TrimSpace(port)
}

func ask(t *testing.T, url, statement string) string {
	t.Helper()
	out, err := post(t.Context(), url+"/", statement)
	assert.NilError(t, err)
	return out
}

// TestView: the shipped view, in the engine of a current ClickHouse, makes the same rows of the
// records of a collector as the exporter of the other tests writes into Debian's, and both engines
// answer the same.
func TestView(t *testing.T) {
	needCollector(t)
	modern := newEngine(t)
	s := newServer(t)
	c := newCollector(t, s, 64<<20)
	for _, file := range []string{"outliers.sql", "otel-logs.sql"} {
		text, err := os.ReadFile(filepath.Join(root, "configs/fleet/clickhouse", file))
		assert.NilError(t, err)
		for _, statement := range statements(string(text)) {
			ask(t, modern, statement)
		}
	}

	kept := &collector.Collector{}
	h := httptest.NewServer(kept)
	defer h.Close()
	resources := []map[string]string{{"host.name": "a", "service.version": "1.4.0", "deployment.id": "7"}, {"host.name": `b'"\`, "tailcam.kernel": "6.1.0-40"}}
	old, kin := runDaemons(t, c.listen, resources), runDaemons(t, strings.TrimPrefix(h.URL, "http://"), resources)
	d := &day{dice: rand.New(rand.NewPCG(7, 8))}
	const each = 200
	begin := time.Now().Add(-time.Hour)
	for i := range each {
		for n := range resources {
			o := d.outlier(fmt.Sprint(n), &kinds[i%len(kinds)], begin.Add(time.Duration(i)*time.Second))
			o.Task.Comm = "x\x00'\"\\\n\t\xff" + fmt.Sprint(i%3)
			switch i % 4 {
			case 1:
				o.Task.Cgroup = "/user.slice/user@1000.service/app.slice/app-nginx.service/x"
			case 2:
				o.Task.Cgroup, o.Task.Container = "/kubepods.slice/cri-containerd-0123.scope", "0123456789abcdef"
			}
			publish(old.list[n], o)
			publish(kin.list[n], o)
		}
	}
	eventually(t, "all are stored", func() bool { return distinct(t, s) == 2*each })
	eventually(t, "all are kept", func() bool { return len(kept.Records()) == 2*each })
	ask(t, modern, "INSERT INTO tailcam_otel_logs FORMAT JSONEachRow\n"+otelLogs(t, kept))

	const all = "SELECT work, * FROM tailcam_outliers ORDER BY time_ns, host, uid FORMAT JSONEachRow"
	want, got := rows(t, s.do(all)), rows(t, ask(t, modern, all))
	assert.Check(t, is.Len(got, 2*each))
	assert.Check(t, is.DeepEqual(want, got))

	for _, statement := range shippedQueries(t) {
		ask(t, modern, statement+"\nFORMAT TabSeparated")
	}
	var answers [2][]any
	until := time.Now()
	for i, url := range []string{s.url("http"), modern} {
		f, err := fleet.Open(url, nil)
		assert.NilError(t, err)
		defer f.Close()
		q := fleet.Query{Since: begin.Add(-time.Minute), Until: until, Count: 50, SinceRelease: fleet.Version}
		for _, q.By = range fleet.Keys {
			answer, err := f.Top(t.Context(), &q)
			assert.NilError(t, err, "%s", q.By)
			answers[i] = append(answers[i], answer)
		}
		q.Where = map[fleet.Key]string{fleet.Host: `b'"\`, fleet.Culprit: "sda"}
		list, err := f.Events(t.Context(), &q)
		assert.NilError(t, err)
		assert.Check(t, len(list) > 0)
		for _, e := range list {
			assert.Check(t, e.Host == `b'"\` && e.Culprit == "sda" && e.Snapshot.URL == sentTo(e.Host, e.Snapshot.Snapshot), "%+v", e)
		}
		answers[i] = append(answers[i], list)
	}
	assert.Check(t, is.DeepEqual(answers[0], answers[1]))
	t.Logf("ClickHouse %s and %s have the same rows and answers", s.do("SELECT version()"), ask(t, modern, "SELECT version()"))
}

// otelLogs are the rows that the official exporter inserts: attributes are text.
func otelLogs(t *testing.T, c *collector.Collector) string {
	t.Helper()
	var b strings.Builder
	out := json.NewEncoder(&b)
	for _, r := range c.Records() {
		assert.NilError(t, out.Encode(map[string]any{
			"Timestamp": fmt.Sprintf("%d.%09d", r.GetTimeUnixNano()/1e9, r.GetTimeUnixNano()%1e9), "TraceId": hex.EncodeToString(r.GetTraceId()),
			"Body": r.GetBody().GetStringValue(), "ServiceName": r.Resource["service.name"],
			"ResourceAttributes": asText(r.Resource), "LogAttributes": asText(r.Attributes),
		}))
	}
	return b.String()
}

func asText(m map[string]any) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		switch v := v.(type) {
		case string:
			out[k] = v
		case int64, bool:
			out[k] = fmt.Sprint(v)
		default:
			b, _ := json.Marshal(v) // plain data
			out[k] = string(b)
		}
	}
	return out
}

// rows are the rows of an answer without the time of insertion, numbers as text.
func rows(t *testing.T, answer string) (list []map[string]string) {
	t.Helper()
	for line := range strings.Lines(answer) {
		var row map[string]any
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		assert.NilError(t, d.Decode(&row), "%s", line)
		delete(row, "observed_ns")
		text := map[string]string{}
		for k, v := range row {
			text[k] = fmt.Sprint(v)
		}
		list = append(list, text)
	}
	return list
}
