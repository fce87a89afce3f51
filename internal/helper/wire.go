package helper

import (
	"encoding/binary"
	"errors"
	"unicode"
	"unicode/utf8"
)

// Limits of messages.
const (
	maxMessage = 96 << 10 // bytes
	maxAddrs   = 512      // per stack
	maxRefused = 64
	maxText    = 8192 // command line or error, bytes
	maxFrame   = 2048 // name of a frame, bytes
	maxNames   = 64 << 10
	maxPath    = 4096
	maxInlined = 64
	maxOpen    = 64 // files per request
)

// errMessage means that the peer is broken or compromised.
var errMessage = errors.New("malformed message")

// writer encodes a message.
type writer []byte

func (w *writer) number(n uint64) { *w = binary.AppendUvarint(*w, n) }

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	*w = append(*w, s...)
}

// reader decodes a message. After an error it returns zeros.
type reader struct {
	left []byte
	bad  bool
}

func (r *reader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.left)
	if size <= 0 || n > most {
		r.bad, r.left = true, nil
		return 0
	}
	r.left = r.left[size:]
	return n
}

// count reads the number of elements that follow, of at least one byte each.
func (r *reader) count(most int) int {
	n := int(r.number(uint64(most)))
	if n > len(r.left) {
		r.bad, r.left, n = true, nil, 0
	}
	return n
}

func (r *reader) text(most int) string {
	n := r.count(most)
	s := string(r.left[:n])
	r.left = r.left[n:]
	return s
}

// printable reads text and rejects unprintable characters.
func (r *reader) printable(most int) string {
	s := r.text(most)
	if !isPrintable(s) {
		r.bad, r.left = true, nil
		return ""
	}
	return s
}

// done returns an error if the message was malformed or has a rest.
func (r *reader) done() error {
	if r.bad || len(r.left) > 0 {
		return errMessage
	}
	return nil
}

func isPrintable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return false
		}
	}
	return true
}

// scrub makes text printable and limits it to most bytes.
func scrub(s string, most int) string {
	s = s[:min(len(s), most)]
	for len(s) > most || !isPrintable(s) {
		out := make([]rune, 0, len(s))
		size := 0
		for _, c := range s {
			if c == utf8.RuneError || !unicode.IsPrint(c) {
				c = '?'
			}
			if size += utf8.RuneLen(c); size > most {
				break
			}
			out = append(out, c)
		}
		s = string(out)
	}
	return s
}
