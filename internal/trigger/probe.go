package trigger

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/tailcam/tailcam/rules"
)

// probe is a health check. Each has a connection of its own, so that accepting it counts.
type probe struct {
	spec   rules.ProbeSource
	client *http.Client
}

func newProbe(s *rules.ProbeSource) *probe {
	return &probe{spec: *s, client: &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		},
		// The answer of what was asked for counts, and leads to no other host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (p *probe) close() { p.client.CloseIdleConnections() }

// watch checks at a steady pace; checks that fall into a slow one are left out.
func (p *probe) watch(ctx context.Context, fire func(*Event)) error {
	tick := time.NewTicker(p.spec.Every)
	defer tick.Stop()
	for {
		took, err := p.check(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if ev := p.judge(took, err); ev != nil {
			fire(ev)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// judge returns an event if a check failed or took too long.
func (p *probe) judge(took time.Duration, err error) *Event {
	what := p.spec.HTTP
	if what == "" {
		what = p.spec.TCP
	}
	ev := &Event{Time: max(took, time.Nanosecond), Limit: p.spec.Threshold}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		ev.Limit = p.spec.Timeout
		ev.Reason = fmt.Sprintf("no answer of %s within %s", what, p.spec.Timeout)
	case err != nil:
		ev.Reason = notice(fmt.Sprintf("the check of %s failed: %v", what, err))
	case p.spec.Threshold > 0 && took >= p.spec.Threshold:
		ev.Reason = fmt.Sprintf("%s answered after %s", what, took.Round(time.Microsecond))
	default:
		return nil
	}
	return ev
}

// check checks once, until the header of the answer or the connection is there.
func (p *probe) check(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, p.spec.Timeout)
	defer cancel()
	began := time.Now()
	if p.spec.HTTP == "" {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", p.spec.TCP)
		took := time.Since(began)
		if err == nil {
			_ = c.Close() // nothing was sent
		}
		return took, timedOut(ctx, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.spec.HTTP, http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", "tailcam")
	resp, err := p.client.Do(req)
	took := time.Since(began)
	if err != nil {
		return took, timedOut(ctx, err)
	}
	_ = resp.Body.Close() // not read: it may never end
	if resp.StatusCode >= http.StatusBadRequest {
		return took, fmt.Errorf("status %s", resp.Status)
	}
	return took, nil
}

// timedOut makes one error of those that a deadline causes.
func timedOut(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
