package daemon

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/collector"
)

// TestReloadKeys: metrics, OTLP, the level of the log and the space to keep free change
// with a reload; what cannot be applied stays as it was, and is told.
func TestReloadKeys(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, rulesFile(napRule("naps", uid, "snapshot: false")))
	config := filepath.Join(h.dir, "tailcam.yaml")
	write := func(text string) { writeFile(t, config, text, 0o600) }
	write("log: {level: info}")
	d := h.start(t, "--config", config)
	reload := func(code int, want ...string) {
		t.Helper()
		a := tailcam(t, "reload", "--socket", h.socket)
		assert.Equal(t, a.code, code, "%s%s", a.out, a.err)
		for _, text := range want {
			assert.Check(t, strings.Contains(a.out+a.err, text), "%q is not in\n%s%s", text, a.out, a.err)
		}
	}
	received := &collector.Collector{}
	server := httptest.NewServer(received)
	defer server.Close()

	all := "log: {level: info}\nsnapshots: {min_free: 1}\nmetrics: {listen: '127.0.0.1:0'}\notlp: {signals: [logs], endpoint: '" + server.URL + "'}\n"
	write(all)
	reload(0)
	assert.Check(t, fetch(t, d.metricsURL()) != "", "metrics are not served")
	naps(t, uid, 5, 5*time.Millisecond, 1)
	settled(t, d, "naps", 5)
	eventually(t, "the outliers are exported", func() bool { return len(received.Records()) == 5 })

	// Another program has the port, and a file has no certificate. What was before goes on.
	taken := strings.TrimPrefix(server.URL, "http://")
	empty := writeFile(t, filepath.Join(h.dir, "empty.pem"), "", 0o600)
	write(strings.NewReplacer("127.0.0.1:0", taken, "otlp: {", "otlp: {tls: {ca: "+empty+"}, ").Replace(all))
	reload(1, "metrics.listen "+taken, "address already in use", "otlp.tls.ca: "+empty+" has no certificate in PEM")
	last := d.metricsURL()
	assert.Check(t, fetch(t, last) != "", "metrics are no longer served")
	naps(t, uid, 5, 5*time.Millisecond, 1)
	settled(t, d, "naps", 10)
	eventually(t, "outliers are still exported", func() bool { return len(received.Records()) == 10 })

	// And off; lines of the level info, too.
	write("log: {level: error}\nsnapshots: {min_free: 1}")
	reload(0)
	said := d.log.count(reloaded)
	reload(0)
	assert.Equal(t, d.log.count(reloaded), said)
	assert.Check(t, fetch(t, last) == "", "metrics are still served")
	naps(t, uid, 5, 5*time.Millisecond, 1)
	settled(t, d, "naps", 15)
	assert.Equal(t, len(received.Records()), 10)
	assert.Check(t, d.status().OTLP == nil, "status tells of a collector")
}
