package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// message is what parent and child tell each other, one JSON object a line.
// Times are CLOCK_MONOTONIC in nanoseconds.
type message struct {
	Error string `json:"error,omitempty"`

	// Orders.
	CPU    int    `json:"cpu,omitempty"`    // pin to it
	From   uint64 `json:"from,omitempty"`   // hog: start to spin
	At     uint64 `json:"at,omitempty"`     // victim: timer; hog: stop spinning
	Path   string `json:"path,omitempty"`   // reader: file or device; from slowfs: its file
	Direct bool   `json:"direct,omitempty"` // reader: O_DIRECT
	Comm   string `json:"comm,omitempty"`   // reader: name to do it under
	File   uint64 `json:"file,omitempty"`   // slowfs: inode to be slow
	Offset int64  `json:"offset,omitempty"` // where
	Hold   uint64 `json:"hold,omitempty"`   // slowfs: how long

	// Answers.
	PID       int    `json:"pid,omitempty"`
	TID       int    `json:"tid,omitempty"`
	Start     uint64 `json:"start,omitempty"`
	End       uint64 `json:"end,omitempty"`
	Disturbed bool   `json:"disturbed,omitempty"` // the thread did not sleep exactly once
	Device    string `json:"device,omitempty"`    // slowfs: loop0
}

// wire is one end of the conversation. It is for one goroutine at a time.
type wire struct {
	dec *json.Decoder
	enc *json.Encoder
}

func newWire(r io.Reader, w io.Writer) *wire {
	return &wire{dec: json.NewDecoder(r), enc: json.NewEncoder(w)}
}

func (w *wire) send(m message) error {
	if err := w.enc.Encode(m); err != nil {
		return fmt.Errorf("write to the other process: %w", err)
	}
	return nil
}

// receive returns io.EOF when the other side is gone.
func (w *wire) receive() (message, error) {
	var m message
	if err := w.dec.Decode(&m); err != nil {
		if errors.Is(err, io.EOF) {
			return m, io.EOF
		}
		return m, fmt.Errorf("read from the other process: %w", err)
	}
	if m.Error != "" {
		return m, errors.New(m.Error)
	}
	return m, nil
}

// serve answers every order until the parent is gone.
func (w *wire) serve(do func(message) (message, error)) error {
	for {
		order, err := w.receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := do(order)
		if err != nil {
			return err
		}
		if err := w.send(answer); err != nil {
			return err
		}
	}
}
