package helper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
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
	maxOpen    = 64       // files per request
	maxData    = 64 << 10 // of a stack, bytes
)

// errMessage means that the peer is broken or compromised.
var errMessage = errors.New("malformed message")

// codec writes a message, or reads one that may be malformed: then what it reads is zero.
type codec struct {
	b     []byte // written, or left to read
	reads bool
	bad   bool
}

func encode(kind byte, fields func(*codec)) []byte {
	c := &codec{b: []byte{kind}}
	fields(c)
	return c.b
}

// decode returns an error if the message is malformed or has a rest.
func decode(b []byte, kind *byte, fields func(*codec)) error {
	if len(b) == 0 {
		return errMessage
	}
	*kind = b[0]
	c := &codec{b: b[1:], reads: true}
	fields(c)
	if c.bad || len(c.b) > 0 {
		return errMessage
	}
	return nil
}

func (c *codec) fail() { c.bad, c.b = true, nil }

func number[T byte | int | int64 | uint64](c *codec, n *T, most uint64) {
	if !c.reads {
		c.b = binary.AppendUvarint(c.b, uint64(max(*n, 0)))
		return
	}
	v, size := binary.Uvarint(c.b)
	if size <= 0 || v > most {
		c.fail()
		v, size = 0, 0
	}
	c.b, *n = c.b[size:], T(v)
}

// count is the number of elements that follow, of at least one byte each.
func (c *codec) count(n, most int) int {
	n = min(n, most)
	number(c, &n, uint64(most))
	if c.reads && n > len(c.b) {
		c.fail()
		return 0
	}
	return n
}

// list has up to most elements; others are not written.
func list[T any](c *codec, l *[]T, most int, each func(*T)) {
	n := c.count(len(*l), most)
	if c.reads && n > 0 {
		*l = make([]T, n)
	}
	for i := range (*l)[:n] {
		each(&(*l)[i])
	}
}

func (c *codec) text(s *string, most int) {
	n := c.count(len(*s), most)
	if c.reads {
		*s, c.b = string(c.b[:n]), c.b[n:]
	} else {
		c.b = append(c.b, (*s)[:n]...)
	}
}

// bytes are raw, and copied.
func (c *codec) bytes(b *[]byte, most int) {
	n := c.count(len(*b), most)
	if !c.reads {
		c.b = append(c.b, (*b)[:n]...)
		return
	}
	if n > 0 {
		*b = bytes.Clone(c.b[:n])
	}
	c.b = c.b[n:]
}

// printable is text without unprintable characters: they are replaced, and not accepted.
func (c *codec) printable(s *string, most int) {
	if !c.reads {
		clean := scrub(*s, most)
		s = &clean
	}
	if c.text(s, most); c.reads && !isPrintable(*s) {
		c.fail()
		*s = ""
	}
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) })
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
