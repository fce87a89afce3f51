package daemon

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/collector"
)

// TestOTLP: real outliers arrive at the official services of OpenTelemetry, with what
// `tailcam events` says of them, their verdicts, and the metrics that a scrape has.
func TestOTLP(t *testing.T) {
	needRoot(t)
	overHTTP := &collector.Collector{}
	s := httptest.NewServer(overHTTP)
	defer s.Close()
	overHTTP.URL = s.URL
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(strings.ReplaceAll(protocol, "/", "_"), func(t *testing.T) {
			c := overHTTP
			if protocol == "grpc" {
				c = collector.GRPC(t)
			}
			testOTLP(t, c, protocol)
		})
	}
}

func testOTLP(t *testing.T, c *collector.Collector, protocol string) {
	uid := newUID()
	const n = 10
	trace, span := fmt.Sprintf("4bf92f3577b34da6a3ce9290%08x", uid), fmt.Sprintf("00f067aa%08x", uid)
	key := "00-" + trace + "-" + span + "-01"
	d := start(t, rulesFile(
		napRule("naps", uid, "snapshot: {every: 100ms}"),
		entry("hostile", "syscall", "1ms", fmt.Sprintf("{uid: %d, not_comm: inj-syscall, syscall: clock_nanosleep}", uid), "snapshot: false"),
		"  - {name: span, track: span, threshold: 1ms, snapshot: false, when: {key: ["+key+"]}}\n",
	), "--otlp-endpoint", c.URL, "--otlp-protocol", protocol, "--otlp-interval", "1s", "--otlp-headers", "authorization=Bearer x",
		"--upload-target", "http://127.0.0.1:9/archive", "--upload-spool", filepath.Join(publicDir(t, ""), "spool"), // it is down
		"--host", "node-1", "--otlp-resource", "deployment.environment.name=test", "--metrics-listen", "127.0.0.1:0")

	naps(t, uid, n, 10*time.Millisecond, 2)
	hostile := filepath.Join(publicDir(t, ""), "ev\nil\xff\x1b[2J")
	sleep, err := exec.LookPath("sleep")
	assert.NilError(t, err)
	assert.NilError(t, os.Symlink(sleep, hostile))
	cmd := exec.CommandContext(t.Context(), hostile, "0.01")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	assert.NilError(t, child.Start(cmd))
	assert.NilError(t, cmd.Wait())
	assert.Check(t, tailcam(t, "begin", key).code == 0)
	time.Sleep(5 * time.Millisecond)
	assert.Check(t, tailcam(t, "end", key).code == 0)
	outliers := append(append(settled(t, d, "naps", n), settled(t, d, "hostile", 1)...), settled(t, d, "span", 1)...)

	var records map[string]collector.Record // the latest of each outlier
	eventually(t, "each outlier has arrived, one with a verdict", func() bool {
		records = map[string]collector.Record{}
		verdicts := 0
		for _, r := range c.Records() {
			records[r.Attributes["log.record.uid"].(string)] = r
			if r.Attributes["tailcam.explained.verdict"] != nil {
				verdicts++
			}
		}
		return len(records) >= len(outliers) && verdicts > 0
	})
	assert.Check(t, is.Len(records, len(outliers)))
	const host = "node-1"
	for i := range outliers {
		o := &outliers[i]
		r, ok := records[o.ID]
		assert.Assert(t, ok, "%s of rule %s is missing", o.ID, o.Rule)
		for name, want := range map[string]any{
			"tailcam.rule": o.Rule, "tailcam.delay_ns": o.DelayNS, "tailcam.seq": int64(o.Seq), "tailcam.cause": string(o.Cause),
			"process.pid": int64(o.Task.PID), "thread.id": int64(o.Task.TID), "process.user.id": int64(o.Task.UID),
		} {
			assert.Check(t, is.DeepEqual(want, r.Attributes[name]), name)
		}
		assert.Check(t, r.GetTimeUnixNano() == uint64(o.Time.UnixNano()) && r.GetEventName() == "tailcam.outlier")
		assert.Check(t, r.Resource["service.name"] == "tailcam" && r.Resource["host.name"] == host && r.Resource["service.instance.id"] == host &&
			r.Resource["deployment.environment.name"] == "test", "%v", r.Resource)
		switch o.Rule {
		case "naps":
			if o.Snapshot != nil {
				assert.Check(t, is.Equal("http://127.0.0.1:9/archive/node-1/"+*o.Snapshot+".tailcam", r.Attributes["tailcam.snapshot_url"]))
			}
			assert.Check(t, is.Equal("inj-syscall", r.Attributes["thread.name"]))
		case "hostile":
			assert.Check(t, is.Equal(`ev\x0ail\xff\x1b[2J`, r.Attributes["thread.name"]))
			assert.Check(t, !strings.ContainsAny(r.GetBody().GetStringValue(), "\n\x1b"), "%q", r.GetBody().GetStringValue())
		case "span":
			assert.Check(t, is.Equal(trace, hex.EncodeToString(r.GetTraceId())))
			assert.Check(t, is.Equal(span, hex.EncodeToString(r.GetSpanId())))
		}
		assert.Check(t, o.Rule == "span" || len(r.GetTraceId()) == 0)
	}

	eventually(t, "the metrics count the naps", func() bool {
		metrics, _ := c.Metrics()
		for _, p := range metrics["tailcam_outliers_total"].GetSum().GetDataPoints() {
			a := collector.Attributes(p.GetAttributes())
			if a["rule"] == "naps" && a["cause"] == "threshold" {
				return p.GetAsDouble() == n
			}
		}
		return false
	})
	metrics, resource := c.Metrics()
	assert.Check(t, is.Equal("tailcam", resource["service.name"]))
	delays := uint64(0)
	for _, p := range metrics["tailcam_delay_seconds"].GetExponentialHistogram().GetDataPoints() {
		assert.Check(t, p.GetScale() == 3)
		sum := p.GetZeroCount()
		for _, n := range p.GetPositive().GetBucketCounts() {
			sum += n
		}
		assert.Check(t, is.Equal(p.GetCount(), sum))
		delays += sum
	}
	assert.Check(t, delays >= n)
	text := d.scrape()
	for name := range metrics {
		assert.Check(t, strings.Contains(text, "\n# TYPE "+name+" "), "a scrape has no %s", name)
	}
	assert.Check(t, strings.Contains(text, `tailcam_otlp_requests_total{result="refused",signal="logs"} 0`))
	assert.Check(t, strings.Contains(d.ok("status"), "OTLP "+c.URL+" ("+protocol+"), "))
}

// TestOTLPDown: a collector that refuses everything costs nothing but what it does
// not take, and that is counted.
func TestOTLPDown(t *testing.T) {
	needRoot(t)
	uid := newUID()
	c := collector.GRPC(t)
	c.Answer = func() error { return grpcstatus.Error(codes.Unauthenticated, "who are you") }
	d := start(t, rulesFile(napRule("naps", uid, "snapshot: false")), "--otlp-endpoint", c.URL, "--otlp-protocol", "grpc", "--metrics-listen", "127.0.0.1:0")
	naps(t, uid, 20, 10*time.Millisecond, 4)
	settled(t, d, "naps", 20)
	eventually(t, "the losses are counted", func() bool {
		return strings.Contains(d.scrape(), "\n"+`tailcam_lost_total{cause="otlp_rejected",rule="naps"} 20`+"\n")
	})
	assert.Check(t, strings.Contains(d.log.String(), "gRPC status 16: who are you"))
	assert.Check(t, is.Len(c.Records(), 0))
}

// TestOTLPSpool: outliers that wait for a collector which is down outlive kill -9 and restarts of
// the daemon; once it is there, each arrives, with the verdict it had.
func TestOTLPSpool(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "systemd starts a service again that was killed")
	c := &collector.Collector{}
	var down atomic.Bool
	down.Store(true)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		c.ServeHTTP(w, r)
	}))
	defer s.Close()
	uid := newUID()
	h := newHome(t, rulesFile(napRule("naps", uid, "snapshot: {after: 5ms, every: 10ms, burst: 50}"), napRule("bare", uid, "snapshot: false")))
	args := []string{"--otlp-endpoint", s.URL, "--otlp-signals", "logs", "--metrics-listen", "127.0.0.1:0"}
	want := map[string]string{} // ids of outliers, and their verdicts
	const rounds, n = 4, 8
	for round := range rounds {
		d := h.start(t, args...)
		naps(t, uid, n, 10*time.Millisecond, 2)
		settled(t, d, "naps", n)
		settled(t, d, "bare", n)
		eventually(t, "all wait on disk", func() bool {
			o := d.status().OTLP
			return o.Waiting >= 2*n*(round+1) && o.SpoolBytes > 0 && o.SpoolError == "" && spooled(t, filepath.Join(h.dir, "otlp")) >= 2*n*(round+1)
		})
		assert.Check(t, strings.Contains(d.scrape(), "\ntailcam_otlp_spool_bytes "))
		for _, rule := range []string{"naps", "bare"} {
			for _, o := range d.events(rule) {
				want[o.ID] = ""
				if o.Explained != nil {
					want[o.ID] = o.Explained.Verdict
				}
			}
		}
		if round%2 == 0 {
			d.kill()
		} else {
			d.stop(syscall.SIGTERM)
		}
	}
	down.Store(false)
	d := h.start(t, args...)
	eventually(t, "all have arrived", func() bool { return d.status().OTLP.Waiting == 0 && len(c.Records()) >= len(want) })
	arrived := map[string][]any{} // verdicts by id
	for _, r := range c.Records() {
		id := r.Attributes["log.record.uid"].(string)
		arrived[id] = append(arrived[id], r.Attributes["tailcam.explained.verdict"])
	}
	for id, verdict := range want {
		assert.Check(t, len(arrived[id]) > 0 && (verdict == "" || slices.Contains(arrived[id], any(verdict))), "%s: %q, want %q", id, arrived[id], verdict)
	}
	assert.Check(t, len(want) == 2*n*rounds && len(arrived) == len(want), "%d of %d arrived, %d records", len(arrived), len(want), len(c.Records()))
	for _, l := range d.status().Losses {
		assert.Check(t, !strings.HasPrefix(l.Cause, "otlp_") || l.Count == 0, "%+v", l)
	}
}

// spooled counts the outliers in the files of a spool, by their names.
func spooled(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*-*-*.otlp"))
	assert.NilError(t, err)
	for _, f := range files {
		count, err := strconv.Atoi(strings.Split(filepath.Base(f), "-")[1])
		assert.NilError(t, err)
		n += count
	}
	return n
}

// TestOTLPRefused: a daemon that cannot send as it was told does not start, says why,
// and shows no secret.
func TestOTLPRefused(t *testing.T) {
	needRoot(t)
	h := newHome(t, rulesFile(napRule("naps", newUID())))
	empty := writeFile(t, filepath.Join(h.dir, "empty.pem"), "", 0o600)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--otlp-endpoint", "collector:4317"}, `otlp.endpoint "collector:4317" does not begin with http:// or https://`},
		{[]string{"--otlp-endpoint", "http://c/x", "--otlp-protocol", "grpc"}, `otlp.endpoint "http://c/x" has a path, which gRPC does not have`},
		{[]string{"--otlp-endpoint", "https://c", "--otlp-tls-ca", empty}, "otlp.tls.ca: " + empty + " has no certificate in PEM"},
		{[]string{"--otlp-endpoint", "https://c", "--otlp-tls-cert", empty}, "set both otlp.tls.cert and otlp.tls.key, or neither"},
		{[]string{"--otlp-headers", "se cret=secret"}, `otlp.headers has the invalid name "se cret"`},
	} {
		a := tailcam(t, h.command(tt.args...)[1:]...)
		assert.Check(t, a.code != 0 && strings.Contains(a.err, tt.want) && !strings.Contains(a.err, "=secret"), "%q: exit status %d\n%s\nwant %s",
			tt.args, a.code, a.err, tt.want)
	}
}
