package outbox

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"
)

// httpTarget sends with PUT.
type httpTarget struct {
	url    *url.URL
	job    *job
	client *http.Client
}

func newHTTPTarget(u *url.URL, j *job) (*httpTarget, error) {
	transport, err := newTransport(j)
	if err != nil {
		return nil, err
	}
	return &httpTarget{url: u, job: j, client: &http.Client{
		Transport: transport,
		// A redirect could lead credentials elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// newTransport is for one connection, which waits for nothing for longer than j.Stall.
func newTransport(j *job) (*http.Transport, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if j.CA != "" {
		pem, err := os.ReadFile(j.CA)
		if err != nil {
			return nil, fmt.Errorf("upload.ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("upload.ca: %s has no certificate in PEM", j.CA)
		}
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: t, ForceAttemptHTTP2: true,
		DialContext:         (&net.Dialer{Timeout: j.Stall}).DialContext,
		TLSHandshakeTimeout: j.Stall, ResponseHeaderTimeout: j.Stall,
		IdleConnTimeout: time.Minute, MaxIdleConns: 2, MaxResponseHeaderBytes: 64 << 10,
	}, nil
}

func (t *httpTarget) close() { t.client.CloseIdleConnections() }

func (t *httpTarget) put(ctx context.Context, name string, o *object) (bool, error) {
	where := *t.url
	where.Path = below(t.url.Path, name, false)
	where.RawPath = ""
	size, err := t.head(ctx, where.String())
	if err != nil {
		return false, err
	}
	if size == o.bytes {
		return true, nil
	}
	request, err := t.request(ctx, http.MethodPut, where.String(), o.body(ctx, 0))
	if err != nil {
		return false, err
	}
	request.ContentLength = o.bytes
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(o.body(ctx, 0)), nil }
	request.Header.Set("Content-Type", "application/zstd")
	if sum, err := hex.DecodeString(o.sha256); err == nil { // RFC 9530
		request.Header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum)+":")
	}
	if size < 0 { // else it is the part that a server kept of a broken connection
		request.Header.Set("If-None-Match", "*")
	}
	answer, err := t.client.Do(request)
	if err != nil {
		return false, err
	}
	discard(answer)
	switch {
	case answer.StatusCode == http.StatusPreconditionFailed && size < 0:
		return true, nil
	case answer.StatusCode/100 != 2:
		return false, fmt.Errorf("PUT %s: the server answered %s", where.Path, status(answer))
	}
	return false, nil
}

// head returns the size of what the server has of this name; -1: nothing, or nobody knows.
func (t *httpTarget) head(ctx context.Context, where string) (int64, error) {
	request, err := t.request(ctx, http.MethodHead, where, nil)
	if err != nil {
		return 0, err
	}
	answer, err := t.client.Do(request)
	if err != nil {
		return 0, err
	}
	discard(answer)
	without := []int{http.StatusNotFound, http.StatusGone, http.StatusMethodNotAllowed, http.StatusNotImplemented}
	switch {
	case answer.StatusCode == http.StatusOK:
		return answer.ContentLength, nil
	case slices.Contains(without, answer.StatusCode):
		return -1, nil
	}
	return 0, fmt.Errorf("HEAD %s: the server answered %s", request.URL.Path, status(answer))
}

func (t *httpTarget) request(ctx context.Context, method, where string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, where, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "tailcam")
	if t.job.Credentials != "" {
		value, err := readCredentials(t.job.Credentials)
		if err != nil {
			return nil, err
		}
		value = bytes.TrimSpace(value)
		if len(value) == 0 || !httpguts.ValidHeaderFieldValue(string(value)) {
			return nil, fmt.Errorf("upload.credentials: %s is not one line with the value of an Authorization header, such as Bearer TOKEN", t.job.Credentials)
		}
		r.Header.Set("Authorization", string(value))
	}
	return r, nil
}

// status is a bounded text of a server's answer.
func status(r *http.Response) string {
	return fmt.Sprintf("%d %s", r.StatusCode, http.StatusText(r.StatusCode))
}

// discard reads a little, so that the connection can be used again.
func discard(r *http.Response) {
	_, _ = io.CopyN(io.Discard, r.Body, 64<<10)
	_ = r.Body.Close()
}

// withoutURL drops the URL from an error of net/http, which the status has anyway.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return fmt.Errorf("%s: %w", u.Op, u.Err)
	}
	return err
}
