package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
)

const (
	hang     = 30 * time.Second
	anyTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
)

// other is another machine's daemon, as far as senders see it.
type other struct {
	*httptest.Server
	reports chan *api.PeerReport
	answer  func(w http.ResponseWriter) // nil: it took part
	logins  chan string
}

func newOther(t *testing.T, secure bool) *other {
	t.Helper()
	o := &other{reports: make(chan *api.PeerReport, 100), logins: make(chan string, 100)}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		o.logins <- user + " " + password
		report := &api.PeerReport{}
		assert.Check(t, r.URL.Path == api.PeersPath && json.NewDecoder(r.Body).Decode(report) == nil)
		o.reports <- report
		if o.answer != nil {
			o.answer(w)
			return
		}
		answer := api.PeerAnswer{Host: "b\x1b", Own: report.Run == "b's"}
		for i := range report.Outliers {
			answer.Outliers = append(answer.Outliers, api.PeerAnswerOutlier{TraceID: report.Outliers[i].TraceID, Seen: 1})
		}
		assert.Check(t, json.NewEncoder(w).Encode(&answer))
	})
	if secure {
		o.Server = httptest.NewTLSServer(handler)
	} else {
		o.Server = httptest.NewServer(handler)
	}
	t.Cleanup(o.Close)
	return o
}

// run runs a sender until the end of the test.
func run(t *testing.T, o *Options) *Sender {
	t.Helper()
	o.Host = "a"
	if o.Run == "" {
		o.Run = "a's"
	}
	s, err := New(o)
	assert.NilError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return s
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !is(); time.Sleep(5 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(end), what)
	}
}

// TestTell: all addresses of a name are told, over TLS, with the password; a trace once.
func TestTell(t *testing.T) {
	o := newOther(t, true)
	at, err := url.Parse(o.URL)
	assert.NilError(t, err)
	trusted := x509.NewCertPool()
	trusted.AddCert(o.Certificate())
	login := filepath.Join(t.TempDir(), "login")
	assert.NilError(t, os.WriteFile(login, []byte("peer:pass:word\n"), 0o600))
	s := run(t, &Options{
		URLs: []string{"https://example.com:" + at.Port()}, Credentials: login, TLS: &tls.Config{RootCAs: trusted},
		Resolve: func(_ context.Context, name string) ([]netip.Addr, error) {
			assert.Check(t, name == "example.com", name)
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::ffff:127.0.0.1"), netip.MustParseAddr("127.0.0.9")}, nil
		},
	})
	for range 3 {
		s.Tell(Outlier{TraceID: anyTrace, ID: "x-1", Rule: "slow", Delay: 5, End: time.Now(), Snapshot: "S"})
	}
	r := <-o.reports
	assert.Check(t, r.Host == "a" && len(r.Outliers) == 1 && r.Outliers[0].AgeNS >= 0, "%+v", r)
	r.Outliers[0].AgeNS = 0
	assert.Equal(t, r.Outliers[0], api.PeerReportOutlier{TraceID: anyTrace, ID: "x-1", Rule: "slow", DelayNS: 5, Snapshot: "S"})
	assert.Equal(t, <-o.logins, "peer pass:word")
	eventually(t, "the one that listens has answered, the other has failed", func() bool { return s.counts.Seen.Load() == 1 && s.counts.Failed.Load() == 1 })
	assert.Check(t, len(o.reports) == 0 && s.counts.Told.Load() == 1)
}

// TestOwn: a machine that is among its peers tells itself once.
func TestOwn(t *testing.T) {
	o := newOther(t, false)
	s := run(t, &Options{URLs: []string{o.URL}, Run: "b's"})
	s.Tell(Outlier{TraceID: "1", End: time.Now()})
	<-o.reports
	eventually(t, "it knows", func() bool { return s.Peers() == 0 })
	s.Tell(Outlier{TraceID: "2", End: time.Now()})
	eventually(t, "the second one is over", func() bool { return s.counts.Told.Load() == 2 })
	assert.Equal(t, len(o.reports), 0)
}

// TestHostilePeers: what refuses, redirects, says nonsense or too much, or nothing, costs its own
// requests alone; it is left alone for a while.
func TestHostilePeers(t *testing.T) {
	elsewhere := newOther(t, false)
	hanging := make(chan struct{})
	defer close(hanging)
	answers := map[string]func(w http.ResponseWriter){
		"refuses": func(w http.ResponseWriter) {
			http.Error(w, strings.Repeat("\x1b[2Jno", 1<<16), http.StatusUnauthorized)
		},
		"leads away": func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL+api.PeersPath)
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		"nonsense": func(w http.ResponseWriter) { fmt.Fprint(w, "{{{") },
		"no end":   func(w http.ResponseWriter) { fmt.Fprint(w, `{"host":"`+strings.Repeat("x", 1<<20)) },
		"hangs":    func(http.ResponseWriter) { <-hanging },
	}
	var urls []string
	for _, answer := range answers {
		o := newOther(t, false)
		o.answer = answer
		urls = append(urls, o.URL)
	}
	good := newOther(t, false)
	s := run(t, &Options{URLs: append(urls, good.URL)})
	s.Tell(Outlier{TraceID: "1", End: time.Now()})
	<-good.reports
	eventually(t, "all have failed", func() bool { return s.counts.Failed.Load() == uint64(len(answers)) })
	assert.Check(t, len(elsewhere.reports) == 0 && s.counts.Seen.Load() == 1)
	due := len(s.book.due(time.Now().Add(-time.Hour)))
	assert.Check(t, due == 1, "%d are due", due)
	assert.Equal(t, len(s.book.due(time.Now().Add(time.Hour))), len(answers)+1)
}

// TestTooMany: what waits, what is remembered and how many addresses there are is bounded.
func TestTooMany(t *testing.T) {
	var asked atomic.Int64
	s, err := New(&Options{URLs: []string{"http://a:1", "http://b:1"}, Resolve: func(_ context.Context, name string) ([]netip.Addr, error) {
		asked.Add(1)
		list := make([]netip.Addr, maxPeers)
		for i := range list {
			list[i] = netip.AddrFrom4([4]byte{10, name[0], byte(i >> 8), byte(i)})
		}
		return list, nil
	}})
	assert.NilError(t, err)
	now := time.Now()
	for i := range 10 * remembered {
		s.Tell(Outlier{TraceID: fmt.Sprint(i), End: now})
	}
	assert.Equal(t, s.counts.Dropped.Load(), uint64(10*remembered-api.MaxPeerOutliers))
	assert.Equal(t, len(s.take(now)), api.MaxPeerOutliers)
	var r recent
	for i := range 10 * remembered {
		r.add(fmt.Sprint(i))
		assert.Assert(t, r.has(fmt.Sprint(i)) && len(r.now)+len(r.before) <= remembered)
	}
	s.Tell(Outlier{TraceID: "old", End: now.Add(-time.Hour)})
	assert.Equal(t, len(s.take(now)), 0)
	s.book.resolve(t.Context(), s.warn)
	assert.Check(t, len(s.book.due(now)) == maxPeers && s.Peers() == maxPeers)
	s.book.resolve(t.Context(), s.warn)
	assert.Equal(t, asked.Load(), int64(2), "not again so soon")
}

// TestBadLogin: errors of a file of credentials have nothing of its contents.
func TestBadLogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "login")
	for _, text := range []string{"", "secret", ":secret", "a:secret\nb", strings.Repeat("secret:", maxLogin)} {
		assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := readLogin(file)
		assert.Error(t, err, "peers.credentials: "+file+" is not one line USER:PASSWORD")
	}
	_, err := readLogin(file + "x")
	assert.Check(t, errors.Is(err, os.ErrNotExist))
	none, err := readLogin("")
	assert.Check(t, none == nil && err == nil)
}
