package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/tailcam/tailcam/tracker/events"
)

// ErrStreamEnded is the end of an event stream that the daemon ended.
var ErrStreamEnded = errors.New("the daemon closed the stream: it was stopped or restarted")

// maxReply bounds what a client takes for one reply.
const maxReply = 64 << 20

// Client talks to a daemon. Its methods may be called from any goroutine. If the
// daemon cannot be reached, their errors say why and what to do.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client of the daemon at a socket; "" is DefaultSocket. It does not connect yet.
func NewClient(path string) *Client {
	path = cmp.Or(path, DefaultSocket)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
		DisableCompression: true,
	}
	return &Client{path: path, http: &http.Client{Transport: transport}}
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns the daemon's status.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return get[*Status](ctx, c, "/v1/status")
}

// Rules lists the rules that the daemon runs with.
func (c *Client) Rules(ctx context.Context) ([]RuleInfo, error) {
	return get[[]RuleInfo](ctx, c, "/v1/rules")
}

// Snapshots lists the snapshots on disk, oldest first.
func (c *Client) Snapshots(ctx context.Context) ([]SnapshotInfo, error) {
	return get[[]SnapshotInfo](ctx, c, "/v1/snapshots")
}

// Trigger takes a snapshot now.
func (c *Client) Trigger(ctx context.Context, req *TriggerRequest) (*Triggered, error) {
	return send[*Triggered](ctx, c, http.MethodPost, "/v1/trigger", req)
}

// EventsOptions select outliers. Nil means the remembered ones of every rule.
type EventsOptions struct {
	Rule   string // "": all
	Follow bool   // new ones, not the remembered ones
	// Verdicts: with Follow, also the verdicts of snapshots when they are complete.
	Verdicts bool
	// After: with Follow, also what came after this cursor, of Outlier.Cursor and
	// Verdict.Cursor, and is remembered; what is not comes as a loss. "": only new ones.
	After string
}

// Event is one line of an event stream: an outlier, a verdict, or a loss.
type Event struct {
	Outlier *events.Outlier // nil for a loss or a verdict
	// Lost counts outliers that this client was too slow for, or that are forgotten since
	// EventsOptions.After, and LostVerdicts the same for verdicts. Restarted: it is of an
	// earlier run of the daemon, whose outliers since then are not known.
	Lost, LostVerdicts uint64

	Restarted bool
	Verdict   *Verdict // of an earlier outlier, or of a snapshot that no rule asked for; else nil
}

// Events opens a stream of outliers. With Follow, no outlier after its return is missed.
// The caller closes the stream.
func (c *Client) Events(ctx context.Context, opts *EventsOptions) (*EventStream, error) {
	query := url.Values{}
	if opts != nil && opts.Rule != "" {
		query.Set("rule", opts.Rule)
	}
	if opts != nil && opts.Follow {
		query.Set("follow", "1")
		query.Set("cursor", "1")
		if opts.After != "" {
			query.Set("after", opts.After)
		}
		if opts.Verdicts {
			query.Set("verdicts", "1")
		}
	}
	resp, err := c.do(ctx, http.MethodGet, "/v1/events?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return &EventStream{body: resp.Body, dec: json.NewDecoder(resp.Body), follow: opts != nil && opts.Follow}, nil
}

// EventStream reads events one by one, in one goroutine.
type EventStream struct {
	body   io.Closer
	dec    *json.Decoder
	follow bool
	cursor string
}

// Cursor is the place after what Next has returned last, or before the first: who goes on from
// there misses nothing. "": not known, as the daemon has not answered, or is of an early release.
func (s *EventStream) Cursor() string { return s.cursor }

// Next waits for the next event. The end of the remembered ones is io.EOF, the
// end of the daemon ErrStreamEnded, and the end of the context its error.
func (s *EventStream) Next() (Event, error) {
	for {
		var line struct {
			*events.Outlier
			lostNotice
			Verdict *Verdict `json:"verdict"`
		}
		line.Outlier = &events.Outlier{}
		if err := s.dec.Decode(&line); err != nil {
			return Event{}, s.ended(err)
		}
		s.cursor = cmp.Or(line.Cursor, s.cursor)
		switch {
		case line.lostNotice != lostNotice{}:
			return Event{Lost: line.Lost, LostVerdicts: line.LostVerdicts, Restarted: line.Restarted}, nil
		case line.Verdict != nil:
			s.cursor = cmp.Or(line.Verdict.Cursor, s.cursor)
			return Event{Verdict: line.Verdict}, nil
		case line.Rule != "":
			return Event{Outlier: line.Outlier}, nil
		}
		// It tells where the stream begins.
	}
}

// ended is the error of a stream that cannot be read.
func (s *EventStream) ended(err error) error {
	switch {
	case errors.Is(err, io.EOF) && !s.follow:
		return io.EOF
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return ErrStreamEnded
	}
	return fmt.Errorf("read events: %w", err)
}

// Close ends the stream.
func (s *EventStream) Close() error { return s.body.Close() }

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	return send[T](ctx, c, http.MethodGet, path, nil)
}

// send sends a request with value as its body, nil for none, and returns the reply.
func send[T any](ctx context.Context, c *Client, method, path string, value any) (reply T, err error) {
	var body []byte
	if value != nil {
		if body, err = json.Marshal(value); err != nil {
			return reply, fmt.Errorf("encode request: %w", err)
		}
	}
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return reply, err
	}
	if err := decode(resp, &reply); err != nil {
		return *new(T), err
	}
	return reply, nil
}

// do sends a request and turns every answer but success into an error.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://tailcam"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	var f failure
	if err := decode(resp, &f); err != nil || f.Error == "" {
		return nil, fmt.Errorf("unexpected reply from %s: %s: is another program listening there?", c.path, resp.Status)
	}
	return nil, errors.New(f.Error)
}

// explain turns a connection error into a message with advice.
func (c *Client) explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("daemon not reachable at %s: start it with \"sudo tailcam run\"", c.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("permission denied: %s: use sudo, or join its group (sudo usermod -aG %s $USER) and log in again",
			c.path, DefaultGroup)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("daemon at %s stopped before it replied: see its log", c.path)
	}
	if urlErr, ok := errors.AsType[*url.Error](err); ok {
		err = urlErr.Err
	}
	return fmt.Errorf("connect to the daemon: %w", err)
}

func decode(resp *http.Response, into any) error {
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(into); err != nil {
		return fmt.Errorf("decode reply: %w", err)
	}
	return nil
}
