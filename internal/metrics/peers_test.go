package metrics

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"golang.org/x/crypto/bcrypt"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/peers"
)

// backend takes the reports of peers.
type backend chan string

func (b backend) PeerReport(r *api.PeerReport) *api.PeerAnswer {
	for i := range r.Outliers {
		b <- r.Outliers[i].TraceID
	}
	return &api.PeerAnswer{}
}

// TestPeers: what tells other machines and what they listen with understand each other, over TLS
// and with a password; without the right one nothing arrives.
func TestPeers(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir)
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	assert.NilError(t, err)
	web := filepath.Join(dir, "web.yaml")
	assert.NilError(t, os.WriteFile(web, fmt.Appendf(nil,
		"tls_server_config: {cert_file: t.crt, key_file: t.key}\nbasic_auth_users: {peer: '%s'}\n", hash), 0o600))
	s, err := Listen(&ListenOptions{Key: "peers", Address: "127.0.0.1:0", WebConfig: web, Conns: 4})
	assert.NilError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	took := make(backend, 10)
	served := make(chan error, 1)
	go func() { served <- s.ServeHandler(ctx, api.PeerHandler(took, xsync.NewCounter(), nil)) }()
	defer func() {
		stop()
		assert.NilError(t, <-served)
		assert.NilError(t, s.Close())
	}()
	for i, login := range []string{"peer:secret", "peer:wrong", ""} {
		counts, file := peers.Counts{}, ""
		if login != "" {
			file = filepath.Join(dir, "login")
			assert.NilError(t, os.WriteFile(file, []byte(login), 0o600))
		}
		sender, err := peers.New(&peers.Options{
			URLs: []string{"https://" + s.Address()}, Credentials: file, TLS: &tls.Config{RootCAs: pool}, Host: "a", Run: "r", Counts: &counts,
		})
		assert.NilError(t, err)
		sending, end := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			sender.Run(sending)
		}()
		const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
		sender.Tell(peers.Outlier{TraceID: trace, End: time.Now()})
		if i == 0 {
			assert.Equal(t, <-took, trace)
		} else {
			for until := time.Now().Add(time.Minute); counts.Failed.Load() == 0; time.Sleep(5 * time.Millisecond) {
				assert.Assert(t, time.Now().Before(until))
			}
			assert.Equal(t, len(took), 0)
		}
		end()
		<-ended
	}
}
