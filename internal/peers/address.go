package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
)

const (
	dialTime     = time.Second // for connecting, and for TLS
	idleTime     = 30 * time.Second
	resolveTime  = 2 * time.Second
	resolveEvery = 30 * time.Second
	maxAnswer    = 64 << 10 // bytes; what is beyond is not read
	maxHeader    = 16 << 10
	maxWords     = 200     // bytes of a refusal, in errors
	maxLogin     = 4 << 10 // bytes
)

// Resolver returns the addresses of a name.
type Resolver func(ctx context.Context, name string) ([]netip.Addr, error)

// login is what is in a file of credentials.
type login struct{ user, password string }

// readLogin reads it; nil: there is no file. Errors have nothing of its contents.
func readLogin(file string) (*login, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("peers.credentials: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLogin+1))
	if err != nil {
		return nil, fmt.Errorf("peers.credentials: %w", err)
	}
	user, password, ok := strings.Cut(string(bytes.TrimSpace(text)), ":")
	if !ok || user == "" || len(text) > maxLogin || strings.ContainsAny(user+password, "\r\n\x00") {
		return nil, fmt.Errorf("peers.credentials: %s is not one line USER:PASSWORD", file)
	}
	return &login{user, password}, nil
}

// name is one URL, with all of its addresses.
type name struct {
	host, port, scheme string
	client             *http.Client
	peers              []*peer // guarded by addresses.mu
}

// addresses are those of all names. Its methods may be called from any goroutine.
type addresses struct {
	resolver Resolver

	mu       sync.Mutex
	names    []*name
	resolved time.Time
}

func newAddresses(o *Options) (*addresses, error) {
	a := &addresses{resolver: o.Resolve}
	if a.resolver == nil {
		a.resolver = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	sessions := tls.NewLRUClientSessionCache(maxPeers)
	for _, text := range o.URLs {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("peers.send: %w", err)
		}
		n := &name{host: u.Hostname(), port: u.Port(), scheme: u.Scheme}
		n.client = newClient(o.TLS, n.host, sessions)
		a.names = append(a.names, n)
	}
	return a, nil
}

// newClient returns a client of all addresses of one name.
func newClient(config *tls.Config, host string, sessions tls.ClientSessionCache) *http.Client {
	if config = config.Clone(); config == nil {
		config = &tls.Config{}
	}
	config.MinVersion, config.ServerName, config.ClientSessionCache = tls.VersionTLS12, host, sessions
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTime}).DialContext, TLSClientConfig: config, TLSHandshakeTimeout: dialTime,
			MaxResponseHeaderBytes: maxHeader, MaxConnsPerHost: 1, IdleConnTimeout: idleTime, DisableCompression: true,
		},
	}
}

func (a *addresses) close() {
	for _, n := range a.names {
		n.client.CloseIdleConnections()
	}
}

// resolve asks for the addresses of all names, if that was not done lately. A name that
// cannot be asked for keeps those it had.
func (a *addresses) resolve(ctx context.Context, warn func(string, ...zap.Field)) {
	a.mu.Lock()
	due := time.Since(a.resolved) >= resolveEvery
	a.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	found := make([][]netip.Addr, len(a.names))
	slots := make(chan struct{}, together)
	var all sync.WaitGroup
	for i, n := range a.names {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			list, err := a.resolver(ctx, n.host)
			if err != nil {
				warn("the addresses of a peer are not known", zap.String("peer", n.host), zap.Error(err))
			}
			found[i] = list
		})
	}
	all.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resolved = time.Now()
	left := maxPeers
	for i, n := range a.names {
		if found[i] != nil {
			n.use(found[i])
		}
		n.peers = n.peers[:min(len(n.peers), left)]
		left -= len(n.peers)
	}
}

// use takes the addresses of now. What is known of those that stay is kept, but not that one
// is this machine: addresses move. Requires addresses.mu.
func (n *name) use(list []netip.Addr) {
	before := map[string]*peer{}
	for _, p := range n.peers {
		before[p.url] = p
	}
	n.peers = nil
	for _, ip := range list {
		to := url.URL{Scheme: n.scheme, Host: net.JoinHostPort(ip.Unmap().String(), n.port), Path: api.PeersPath}
		p := before[to.String()]
		if p == nil {
			p = &peer{of: n, url: to.String()}
		}
		before[p.url] = p
		p.own.Store(false)
		n.peers = append(n.peers, p)
	}
}

// count is how many there are, without this machine.
func (a *addresses) count() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.names {
		for _, p := range name.peers {
			if !p.own.Load() {
				n++
			}
		}
	}
	return n
}

// due are the peers that have not failed just now, without this machine.
func (a *addresses) due(now time.Time) (list []*peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := map[string]bool{}
	for _, n := range a.names {
		for _, p := range n.peers {
			if !seen[p.url] && !p.own.Load() && p.isDue(now) {
				list = append(list, p)
			}
			seen[p.url] = true
		}
	}
	return list
}

// peer is one address.
type peer struct {
	of  *name
	url string
	own atomic.Bool // it is this machine

	mu    sync.Mutex
	pause time.Duration // after the next failure
	after time.Time     // it is told again
}

func (p *peer) isDue(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !now.Before(p.after)
}

// ended notes how a request ended: a peer that fails is left alone for longer each time.
func (p *peer) ended(now time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.pause, p.after = 0, time.Time{}
		return
	}
	p.pause = min(max(2*p.pause, firstPause), lastPause)
	p.after = now.Add(p.pause)
}

// post sends a report and returns the answer.
func (p *peer) post(ctx context.Context, body io.Reader, login *login, agent string) (*api.PeerAnswer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, body)
	if err != nil {
		return nil, err
	}
	r.Host = net.JoinHostPort(p.of.host, p.of.port)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", agent)
	if login != nil {
		r.SetBasicAuth(login.user, login.password)
	}
	resp, err := p.of.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp.StatusCode, term.Clean(strings.ToValidUTF8(string(text[:min(len(text), maxWords)]), "")))
	}
	answer := &api.PeerAnswer{}
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return answer, nil
}
