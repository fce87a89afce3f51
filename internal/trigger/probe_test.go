package trigger

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// checked is what a check of an HTTP server, or of an address, has fired.
func checked(t *testing.T, on, limits string) *Firing {
	t.Helper()
	r := run(t, "", fmt.Sprintf("rules: [{name: p, track: trigger, on: {probe: {%s, every: 1s}}, %s}]", on, limits))
	return r.next(t, func(*Firing) bool { return true })
}

// TestProbe: a server that is slow, hangs, fails or is gone, over HTTP and TCP.
func TestProbe(t *testing.T) {
	const slow = 300 * time.Millisecond
	ended := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/slow", func(http.ResponseWriter, *http.Request) { time.Sleep(slow) })
	mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/hung", func(http.ResponseWriter, *http.Request) { <-ended })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/hung", http.StatusFound) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 64<<10))
		}
	})
	mux.HandleFunc("/wide", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 100<<10)) })
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(ended)
	url := "http: '" + server.URL

	f := checked(t, url+"/slow'", "threshold: 50ms, timeout: 20s")
	assert.Check(t, f.Time >= slow && f.Limit == 50*time.Millisecond && strings.Contains(f.Reason, "/slow answered after "), "%+v", f.Event)
	f = checked(t, url+"/hung'", "timeout: 100ms")
	assert.Check(t, f.Time >= 100*time.Millisecond && f.Limit == 100*time.Millisecond && strings.HasPrefix(f.Reason, "no answer of "), "%+v", f.Event)
	f = checked(t, url+"/broken'", "timeout: 20s")
	assert.Check(t, strings.HasSuffix(f.Reason, "failed: status 503 Service Unavailable"), "%+v", f.Event)
	f = checked(t, url+"/wide'", "timeout: 20s")
	assert.Check(t, strings.Contains(f.Reason, "failed: ") && len(f.Reason) < maxNotice+5, "%+v", f.Event)

	r := run(t, "", "rules: [{name: ok, track: trigger, on: {probe: {"+url+"/ok', every: 1s}}}, {name: away, track: trigger, on: {probe: {"+
		url+"/away', every: 1s}}}, {name: endless, track: trigger, on: {probe: {"+url+"/endless', every: 1s}}}]")
	time.Sleep(2 * time.Second)
	assert.Equal(t, len(r.fired), 0)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	address := l.Addr().String()
	f = checked(t, "tcp: '"+address+"'", "threshold: 1us")
	assert.Check(t, strings.HasPrefix(f.Reason, address+" answered after "), "%+v", f.Event)
	assert.NilError(t, l.Close())
	f = checked(t, "tcp: '"+address+"'", "timeout: 20s")
	assert.Check(t, strings.Contains(f.Reason, "connection refused"), "%+v", f.Event)
}
