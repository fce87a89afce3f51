package api

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/puzpuzpuz/xsync/v3"
	"gotest.tools/v3/assert"
)

// took takes reports of peers.
type took chan *PeerReport

func (c took) PeerReport(r *PeerReport) *PeerAnswer {
	c <- r
	return &PeerAnswer{Host: "b", Outliers: []PeerAnswerOutlier{{TraceID: r.Outliers[0].TraceID, Seen: 2}}}
}

const anyTrace = "4bf92f3577b34da6a3ce929d0e0e4736"

// TestPeerHandler: a report reaches the backend; what is wrong is told, and what is too much or
// comes from a browser refused.
func TestPeerHandler(t *testing.T) {
	backend, refused := make(took, 1), xsync.NewCounter()
	server := httptest.NewServer(nil)
	defer server.Close()
	post := func(body string, header http.Header) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+PeersPath, strings.NewReader(body))
		assert.NilError(t, err)
		req.Header = header
		server.Config.Handler = PeerHandler(backend, refused, nil) // with its limits anew
		resp, err := http.DefaultClient.Do(req)
		assert.NilError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		assert.NilError(t, err)
		return resp.StatusCode, strings.TrimSpace(string(text))
	}
	asJSON := http.Header{"Content-Type": {"application/json"}}
	report := func(outlier string) string {
		return `{"version":1,"run":"r","host":"a","later":{},"outliers":[` + outlier + `]}`
	}
	code, text := post(report(`{"trace_id":"`+anyTrace+`","rule":"slow","delay_ns":5,"age_ns":6,"later":1}`), asJSON)
	assert.Check(t, code == http.StatusOK && text == `{"host":"b","outliers":[{"trace_id":"`+anyTrace+`","wanted":0,"seen":2,"fired":0}]}`, "%d %s", code, text)
	got := <-backend
	assert.Check(t, got.Host == "a" && got.Outliers[0] == PeerReportOutlier{TraceID: anyTrace, Rule: "slow", DelayNS: 5, AgeNS: 6}, "%+v", got)
	id := `{"trace_id":"` + anyTrace + `"`
	for _, c := range []struct {
		body string
		code int
		want string
	}{
		{"", http.StatusBadRequest, "read report"},
		{"[]", http.StatusBadRequest, "read report"},
		{`{"version":2}`, http.StatusBadRequest, "version 2 is not known: must be 1"},
		{`{"version":1,"run":"r"}`, http.StatusBadRequest, "run and host must have 1 to 255 bytes"},
		{report(strings.Repeat(id+"},", MaxPeerOutliers) + id + "}"), http.StatusBadRequest, "65 outliers are too many"},
		{report(`{"trace_id":"x"}`), http.StatusBadRequest, `outliers[0]: trace_id \"x\" is none`},
		{report(`{"trace_id":"` + strings.Repeat("0", 32) + `"}`), http.StatusBadRequest, "is none"},
		{report(`{"trace_id":"` + strings.ToUpper(anyTrace) + `"}`), http.StatusBadRequest, "lower-case"},
		{report(id + `,"rule":"` + strings.Repeat("x", 256) + `"}`), http.StatusBadRequest, "at most 255 bytes"},
		{report(id + `,"delay_ns":-1}`), http.StatusBadRequest, "delay_ns -1"},
		{report(id + `,"age_ns":60000000001}`), http.StatusBadRequest, "no history is older"},
		{strings.Repeat(" ", maxPeerBody) + "{}", http.StatusRequestEntityTooLarge, "too large"},
		{strings.Repeat(`{"outliers":`, 5000), http.StatusBadRequest, "read report"},
	} {
		code, text := post(c.body, asJSON)
		assert.Check(t, code == c.code && strings.Contains(text, c.want), "%.80q: %d %s", c.body, code, text)
	}
	code, _ = post(report(id+"}"), http.Header{"Content-Type": {"text/plain"}})
	assert.Equal(t, code, http.StatusUnsupportedMediaType)
	code, _ = post(report(id+"}"), http.Header{"Content-Type": {"application/json"}, "Origin": {"http://rebound.example"}})
	assert.Equal(t, code, http.StatusForbidden)
	assert.Check(t, len(backend) == 0 && refused.Value() == 0)
	for _, path := range []string{"/v1/status", "/v1/trigger", "/"} {
		resp, err := http.Get(server.URL + path)
		assert.NilError(t, err)
		resp.Body.Close()
		assert.Check(t, resp.StatusCode == http.StatusNotFound, "the listener has %s", path)
	}
}

// TestPeerLimits: one address uses up its own limit, many use up that of all, and what is
// remembered of them is bounded.
func TestPeerLimits(t *testing.T) {
	l := newPeerLimits()
	allowed := 0
	for range 10 * peerBurst {
		if l.allow("10.0.0.1:9") {
			allowed++
		}
	}
	assert.Check(t, allowed >= peerBurst && allowed < 5*peerBurst, "%d", allowed)
	for i := range 3 * maxLimiters {
		l.allow(fmt.Sprintf("[fd00::%x]:9", i))
	}
	assert.Check(t, l.by.Size() <= maxLimiters+1, "%d", l.by.Size())
	assert.Check(t, !l.allow("10.9.9.9:9"), "all together are too many")
}
