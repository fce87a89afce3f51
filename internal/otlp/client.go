package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
)

// Bounds of what a collector may cause.
const (
	sendTimeout  = 10 * time.Second // of one request, from connecting to the end of the answer
	dialTimeout  = 5 * time.Second
	maxAnswer    = 64 << 10 // bytes of the body; what is beyond is not read
	maxHeader    = 16 << 10 // bytes
	maxMessage   = 200      // bytes of its own words in an error
	maxWait      = time.Minute
	idleTimeout  = 2 * time.Minute
	grpcFrame    = 5 // bytes before a message: compressed, length
	grpcStatusOK = 0
)

// signal is a kind of telemetry, and where it goes.
type signal struct {
	name   string
	path   string // of OTLP/HTTP
	method string // of OTLP/gRPC
}

var (
	logsSignal    = signal{"logs", "/v1/logs", "/opentelemetry.proto.collector.logs.v1.LogsService/Export"}
	metricsSignal = signal{"metrics", "/v1/metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"}
)

// refusedError is why a collector did not take a request.
type refusedError struct {
	why    string
	retry  bool          // it may take it later
	after  time.Duration // not before that; 0: unknown
	absent bool          // it does not know the signal
}

func (e *refusedError) Error() string { return e.why }

// client sends requests to a collector. OTLP/HTTP and OTLP/gRPC are the same request
// but for its path, five bytes before the message and the place of the status, so
// that net/http serves for both.
type client struct {
	base    *url.URL
	grpc    bool
	headers map[string]string
	agent   string
	http    *http.Client
}

func newClient(o *Options) (*client, error) {
	base, err := ParseEndpoint(o.Endpoint, o.Protocol)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	protocols := new(http.Protocols)
	switch {
	case o.Protocol != GRPC:
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	case base.Scheme == "https":
		protocols.SetHTTP2(true)
	default:
		protocols.SetUnencryptedHTTP2(true)
	}
	config := o.TLS.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	config.MinVersion = tls.VersionTLS12
	return &client{
		base: base, grpc: o.Protocol == GRPC, headers: o.Headers, agent: "tailcam/" + o.Version,
		http: &http.Client{
			Timeout: sendTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { // headers may have secrets
				return http.ErrUseLastResponse
			},
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: config,
				TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: sendTimeout, MaxResponseHeaderBytes: maxHeader,
				MaxIdleConnsPerHost: 1, MaxConnsPerHost: 2, IdleConnTimeout: idleTimeout,
				DisableCompression: true, // an answer of a few bytes may become gigabytes
				Protocols:          protocols,
			},
		},
	}, nil
}

// send sends a request and decodes the answer. The error is a *refusedError, or why
// there was no answer.
func (c *client) send(ctx context.Context, s signal, request, answer proto.Message) error {
	message, err := proto.Marshal(request)
	if err != nil {
		return &refusedError{why: err.Error()}
	}
	body, err := compress(message, c.grpc)
	if err != nil {
		return &refusedError{why: err.Error()}
	}
	path := s.path
	if c.grpc {
		path = s.method
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return &refusedError{why: err.Error()}
	}
	for name, value := range c.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", c.agent)
	if c.grpc {
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		req.Header.Set("Grpc-Encoding", "gzip")
		req.Header.Set("Grpc-Accept-Encoding", "identity")
		req.Header.Set("Grpc-Timeout", strconv.Itoa(int(sendTimeout.Seconds()))+"S")
	} else {
		req.Header.Set("Content-Type", "application/x-protobuf")
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return &refusedError{why: clip(err.Error()), retry: true}
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &refusedError{why: clip("read the answer: " + err.Error()), retry: true}
	}
	if resp.StatusCode/100 != 2 {
		return refusedByHTTP(resp, got)
	}
	if c.grpc {
		if err := refusedByGRPC(resp); err != nil {
			return err
		}
		if len(got) < grpcFrame || got[0] != 0 { // compressed although that was not offered
			return nil
		}
		got = got[grpcFrame:]
	}
	if proto.Unmarshal(got, answer) != nil {
		proto.Reset(answer) // it took everything, whatever it says beside that
	}
	return nil
}

// compress returns a message with gzip, and for gRPC with the length before it.
func compress(message []byte, grpc bool) ([]byte, error) {
	var b bytes.Buffer
	if grpc {
		b.Write([]byte{1, 0, 0, 0, 0})
	}
	z := gzip.NewWriter(&b)
	_, err := z.Write(message)
	if err := errors.Join(err, z.Close()); err != nil {
		return nil, err
	}
	if grpc {
		binary.BigEndian.PutUint32(b.Bytes()[1:], uint32(b.Len()-grpcFrame))
	}
	return b.Bytes(), nil
}

// refusedByHTTP is an answer that is no success. Which ones to repeat, the
// specification of OTLP lists.
func refusedByHTTP(resp *http.Response, body []byte) error {
	e := &refusedError{why: "HTTP status " + resp.Status}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/") && len(body) > 0 {
		e.why += ": " + string(body)
	}
	e.why = clip(e.why)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.retry, e.after = true, retryAfter(resp.Header.Get("Retry-After"))
	case http.StatusNotFound:
		e.absent = true
	}
	return e
}

func retryAfter(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil {
		return min(max(time.Duration(min(n, 3600))*time.Second, 0), maxWait)
	}
	if t, err := http.ParseTime(s); err == nil {
		return min(max(time.Until(t), 0), maxWait)
	}
	return 0
}

// refusedByGRPC finds the status in the trailer, or in the header if there is nothing else.
func refusedByGRPC(resp *http.Response) error {
	from := resp.Trailer
	if from.Get("Grpc-Status") == "" {
		from = resp.Header
	}
	code, err := strconv.Atoi(from.Get("Grpc-Status"))
	switch {
	case err != nil:
		return &refusedError{why: "the answer is not one of gRPC; is otlp.protocol right?"}
	case code == grpcStatusOK:
		return nil
	}
	message := from.Get("Grpc-Message")
	if plain, err := url.PathUnescape(message); err == nil {
		message = plain
	}
	e := &refusedError{why: clip(fmt.Sprintf("gRPC status %d: %s", code, message))}
	switch code {
	case 1, 4, 10, 11, 14, 15: // cancelled, deadline exceeded, aborted, out of range, unavailable, data loss
		e.retry = true
	case 12: // unimplemented
		e.absent = true
	}
	return e
}

// clip makes a collector's words fit for a log.
func clip(s string) string { return clean(s[:min(len(s), maxMessage)]) }

// ParseEndpoint checks the URL of a collector.
func ParseEndpoint(s, protocol string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("does not begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	case u.User != nil:
		return nil, errors.New("has a user: set otlp.headers instead")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("has a query or fragment")
	case protocol == GRPC && strings.Trim(u.Path, "/") != "":
		return nil, errors.New("has a path, which gRPC does not have")
	}
	return u, nil
}
