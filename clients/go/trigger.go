package tailcam

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"
)

// TriggerOptions are what TriggerThread asks for. Nil, or zeros, are the defaults.
type TriggerOptions struct {
	Last  time.Duration // of the thread's time, to explain; 1 s
	After time.Duration // recorded beyond now, at most 1 minute; nothing
}

// triggerRequest is the body of POST /v1/trigger.
type triggerRequest struct {
	Reason string `json:"reason"`
	NoWait bool   `json:"no_wait"`
	Self   bool   `json:"self,omitempty"` // TID is as this process knows it
	TID    int    `json:"tid,omitempty"`
	Last   string `json:"last,omitempty"`
	After  string `json:"after,omitempty"`
}

// Trigger has the daemon save the seconds before now, because of reason, and returns the
// snapshot's id. It does not wait until it is saved, and nothing is explained: see
// TriggerThread. "" is DefaultSocket.
func Trigger(path, reason string) (id string, err error) {
	return trigger(path, &triggerRequest{Reason: reason})
}

// TriggerThread is Trigger, and has the snapshot explain what the calling thread did and
// waited for in the time before. A goroutine that is not locked to its thread changes it, so
// that the thread's time is that of other goroutines, too: lock it (runtime.LockOSThread, or
// Handle.Thread) before the work that may be slow.
func TriggerThread(path, reason string, opts *TriggerOptions) (id string, err error) {
	req := &triggerRequest{Reason: reason, Self: true, TID: syscall.Gettid()}
	if opts != nil && opts.Last != 0 {
		req.Last = opts.Last.String()
	}
	if opts != nil && opts.After != 0 {
		req.After = opts.After.String()
	}
	return trigger(path, req)
}

// Trigger is the function Trigger, at the handle's socket.
func (h *Handle) Trigger(reason string) (id string, err error) { return Trigger(h.socket(), reason) }

// TriggerThread is the function TriggerThread, at the handle's socket.
func (h *Handle) TriggerThread(reason string, opts *TriggerOptions) (id string, err error) {
	return TriggerThread(h.socket(), reason, opts)
}

// socket is where the daemon listens.
func (h *Handle) socket() string {
	if h == nil {
		return ""
	}
	return h.path
}

func trigger(path string, req *triggerRequest) (id string, err error) {
	path, req.NoWait = cmp.Or(path, DefaultSocket), true
	conn, err := dial(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	body, err := json.Marshal(req)
	if err != nil {
		return "", fmt.Errorf("encode request: %w", err)
	}
	fmt.Fprintf(conn, "POST /v1/trigger HTTP/1.1\r\nHost: tailcam\r\nContent-Type: application/json\r\nConnection: close\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", fmt.Errorf("read reply from %s: %w", path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", refusal(resp)
	}
	var triggered struct{ ID string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&triggered); err != nil {
		return "", fmt.Errorf("read reply from %s: %w", path, err)
	}
	return triggered.ID, nil
}
