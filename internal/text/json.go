package text

import (
	"bytes"
	"encoding/json"
	"io"
	"unicode/utf8"
)

// EscapeJSON escapes every character in data that Clean would replace; the decoded
// value stays the same. encoding/json leaves some of them as they are, such as U+202E,
// DEL and C1 controls. data must be valid JSON and is not changed; it is returned if
// there is nothing to escape.
func EscapeJSON(data []byte) []byte { return escape(data, appendEscape) }

// escape replaces the unsafe characters in data by what add appends for each.
func escape(data []byte, add func(out []byte, r rune) []byte) []byte {
	i := firstUnsafe(data)
	if i < 0 {
		return data
	}
	out := append(make([]byte, 0, len(data)+64), data[:i]...)
	for i < len(data) {
		r, size := utf8.DecodeRune(data[i:])
		if unsafeJSON(r) {
			out = add(out, r)
		} else {
			out = append(out, data[i:i+size]...)
		}
		i += size
	}
	return out
}

func firstUnsafe(data []byte) int {
	for i := 0; i < len(data); {
		if c := data[i]; c < utf8.RuneSelf {
			if c == 0x7f {
				return i
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		if unsafeJSON(r) {
			return i
		}
		i += size
	}
	return -1
}

// unsafeJSON ignores runes below U+0020, which in JSON are only whitespace between
// tokens.
func unsafeJSON(r rune) bool { return r >= 0x7f && r != utf8.RuneError && unsafeRune(r) }

func appendEscape(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	unit := func(u rune) {
		out = append(out, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	if r < 0x10000 {
		unit(r)
	} else { // surrogate pair
		r -= 0x10000
		unit(0xd800 + r>>10)
		unit(0xdc00 + r&0x3ff)
	}
	return out
}

// Marshal is json.Marshal with printable output and without escaping < > &.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := NewEncoder(&b).Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// Encoder is json.Encoder with printable output and without escaping < > &. Each value
// is written with a newline in one Write.
type Encoder struct {
	w   io.Writer
	buf bytes.Buffer
	enc *json.Encoder
}

// NewEncoder returns an encoder that writes to w.
func NewEncoder(w io.Writer) *Encoder {
	e := &Encoder{w: w}
	e.enc = json.NewEncoder(&e.buf)
	e.enc.SetEscapeHTML(false)
	return e
}

// SetIndent is like json.Encoder.SetIndent.
func (e *Encoder) SetIndent(prefix, indent string) { e.enc.SetIndent(prefix, indent) }

// Encode writes a value, or nothing if it cannot be encoded.
func (e *Encoder) Encode(v any) error {
	e.buf.Reset()
	if err := e.enc.Encode(v); err != nil {
		return err
	}
	_, err := e.w.Write(EscapeJSON(e.buf.Bytes()))
	return err
}
