package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
)

// fetch returns the body of an answer with status 200, and "" while nobody answers.
func fetch(t *testing.T, address string) string {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: hang}
	resp, err := c.Get(address)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	if resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

var metricsAddress = regexp.MustCompile(`"message":"serving metrics","address":"([^"]+)"`)

// metricsURL is where the daemon serves its metrics, after a reload too.
func (d *running) metricsURL() string {
	d.t.Helper()
	var told [][]string
	eventually(d.t, "the daemon serves metrics", func() bool {
		told = metricsAddress.FindAllStringSubmatch(d.log.String(), -1)
		return told != nil
	})
	return "http://" + told[len(told)-1][1] + "/metrics"
}

// scrape returns the daemon's metrics as text.
func (d *running) scrape() string {
	d.t.Helper()
	text := fetch(d.t, d.metricsURL())
	assert.Assert(d.t, text != "", "no answer to a scrape")
	return text
}

// prometheus is a Prometheus that scrapes one daemon every second.
type prometheus struct {
	t     *testing.T
	url   string
	start time.Time
}

// nativeHistograms is the feature of a Prometheus that reads them; it then drops classic ones.
const nativeHistograms = "native-histograms"

func startPrometheus(t *testing.T, d *running, features ...string) *prometheus {
	t.Helper()
	path := needTool(t, "prometheus", "prometheus")
	target, err := url.Parse(d.metricsURL())
	assert.NilError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	address := free.Addr().String()
	assert.NilError(t, free.Close())

	dir := t.TempDir()
	config := writeFile(t, filepath.Join(dir, "prometheus.yml"), fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs: [{job_name: tailcam, static_configs: [{targets: [%q]}]}]
`, target.Host), 0o644)
	var log child.Output
	cmd := exec.Command(path, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address,
		"--enable-feature="+strings.Join(append(features, "exemplar-storage"), ","), "--log.level=warn")
	cmd.Stdout, cmd.Stderr = &log, &log
	assert.NilError(t, child.Start(cmd))
	t.Cleanup(func() {
		assert.Check(t, cmd.Process.Signal(syscall.SIGTERM))
		err := cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus ended (%v):\n%s", err, log.String())
		}
	})
	p := &prometheus{t: t, url: "http://" + address, start: time.Now()}
	eventually(t, "Prometheus is ready", func() bool { return fetch(t, p.url+"/-/ready") != "" })
	return p
}

// api returns the data of an answer.
func (p *prometheus) api(path string, args url.Values) json.RawMessage {
	p.t.Helper()
	text := fetch(p.t, p.url+"/api/v1/"+path+"?"+args.Encode())
	var a struct {
		Status string
		Data   json.RawMessage
	}
	assert.NilError(p.t, json.Unmarshal([]byte(text), &a), "%s: %q", path, text)
	assert.Assert(p.t, a.Status == "success", "%s: %s", path, text)
	return a.Data
}

// values are the results of an expression.
func (p *prometheus) values(expr string) (list []float64) {
	p.t.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	assert.NilError(p.t, json.Unmarshal(p.api("query", url.Values{"query": {expr}}), &data))
	for _, r := range data.Result {
		v, err := strconv.ParseFloat(r.Value[1].(string), 64)
		assert.NilError(p.t, err)
		list = append(list, v)
	}
	return list
}

// value is that of an expression with one result; ok: there is one.
func (p *prometheus) value(expr string) (v float64, ok bool) {
	p.t.Helper()
	list := p.values(expr)
	if len(list) == 0 {
		return 0, false
	}
	assert.Assert(p.t, len(list) == 1, "%s has %d results", expr, len(list))
	return list[0], true
}

// becomes waits until an expression has a value that passes.
func (p *prometheus) becomes(expr string, passes func(float64) bool) {
	p.t.Helper()
	var last float64
	eventually(p.t, expr+" is as it should be", func() bool {
		v, ok := p.value(expr)
		last = v
		return ok && passes(v)
	})
	p.t.Logf("%s = %v", expr, last)
}

// exemplars returns what the exemplars of a metric have as a label.
func (p *prometheus) exemplars(expr, label string) []string {
	p.t.Helper()
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	at := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	assert.NilError(p.t, json.Unmarshal(p.api("query_exemplars", url.Values{
		"query": {expr}, "start": {at(p.start.Add(-time.Hour))}, "end": {at(time.Now().Add(time.Minute))},
	}), &data))
	var ids []string
	for _, series := range data {
		for _, e := range series.Exemplars {
			ids = append(ids, e.Labels[label])
		}
	}
	return ids
}

// series counts the lines of a scrape with samples.
func series(text string) (n int) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}
