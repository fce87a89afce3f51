package text

import (
	"bytes"
	"encoding/json"
	"io"
	"unicode/utf8"
)

// EscapeJSON returns JSON in which every character that Clean would make
// visible is written as JSON's own \u escape; what is decoded from it is the
// same. encoding/json escapes only those below U+0020 and a few more: U+202E,
// DEL and the C1 controls come out raw. data must be valid JSON; it is returned
// as it is if nothing has to be escaped, and not changed.
func EscapeJSON(data []byte) []byte {
	i := firstUnsafe(data)
	if i < 0 {
		return data
	}
	out := append(make([]byte, 0, len(data)+64), data[:i]...)
	for i < len(data) {
		r, size := utf8.DecodeRune(data[i:])
		if unsafeJSON(r) {
			out = appendEscape(out, r)
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

// unsafeJSON: below U+0020 there are only the blanks between tokens.
func unsafeJSON(r rune) bool { return r >= 0x7f && r != utf8.RuneError && unsafeRune(r) }

func appendEscape(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	unit := func(u rune) {
		out = append(out, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	if r < 0x10000 {
		unit(r)
	} else { // a surrogate pair
		r -= 0x10000
		unit(0xd800 + r>>10)
		unit(0xdc00 + r&0x3ff)
	}
	return out
}

// Marshal is json.Marshal, but what comes back is safe to print, and < > & stay
// readable: vector<int>.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := NewEncoder(&b).Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// Encoder is json.Encoder, but what it writes is safe to print, and < > & stay
// readable. Each value is one Write, with a newline behind it.
type Encoder struct {
	w   io.Writer
	buf bytes.Buffer
	enc *json.Encoder
}

// NewEncoder returns an encoder that writes there.
func NewEncoder(w io.Writer) *Encoder {
	e := &Encoder{w: w}
	e.enc = json.NewEncoder(&e.buf)
	e.enc.SetEscapeHTML(false)
	return e
}

// SetIndent is as that of json.Encoder.
func (e *Encoder) SetIndent(prefix, indent string) { e.enc.SetIndent(prefix, indent) }

// Encode writes a value. Nothing is written of one that cannot be encoded.
func (e *Encoder) Encode(v any) error {
	e.buf.Reset()
	if err := e.enc.Encode(v); err != nil {
		return err
	}
	_, err := e.w.Write(EscapeJSON(e.buf.Bytes()))
	return err
}
