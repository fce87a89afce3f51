package export

import (
	"bufio"
	"io"
	"strconv"
	"time"

	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// jsonSink writes one object a line.
type jsonSink struct {
	out    *bufio.Writer
	names  *fields.Names
	offset time.Duration
	line   []byte
	fields []fields.Field
}

func newJSONSink(w io.Writer, s *source) *jsonSink {
	return &jsonSink{out: bufio.NewWriterSize(w, 64<<10), names: &s.names.fields, offset: s.reader.ClockOffset()}
}

// Event implements sink.
func (j *jsonSink) Event(ev *trace.Event) error {
	b := j.line[:0]
	b = append(b, `{"time":"`...)
	b = time.Unix(0, int64(ev.Time)+int64(j.offset)).UTC().AppendFormat(b, "2006-01-02T15:04:05.000000000Z")
	b = append(b, `","mono_ns":`...)
	b = strconv.AppendUint(b, ev.Time, 10)
	b = append(b, `,"cpu":`...)
	b = strconv.AppendInt(b, int64(ev.CPU), 10)
	b = append(b, `,"tid":`...)
	b = strconv.AppendInt(b, int64(ev.TID), 10)
	b = append(b, `,"event":`...)
	b = appendJSONText(b, eventName(ev))
	b = append(b, `,"fields":{`...)
	j.fields = fields.Append(j.fields[:0], ev, j.names)
	for i := range j.fields {
		f := &j.fields[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), f.Name...), `":`...)
		switch f.Kind {
		case fields.Text:
			b = appendJSONText(b, f.Text)
		case fields.Int:
			b = strconv.AppendInt(b, int64(f.Num), 10)
		case fields.Uint:
			b = strconv.AppendUint(b, f.Num, 10)
		case fields.Bool:
			b = strconv.AppendBool(b, f.Num != 0)
		case fields.Hex: // a string: readers of JSON keep 53 bits of a number
			b = append(strconv.AppendUint(append(b, `"0x`...), f.Num, 16), '"')
		}
	}
	b = append(b, "}}\n"...)
	j.line = b
	_, err := j.out.Write(b)
	return err
}

// Close implements sink.
func (j *jsonSink) Close(func(int) uint64) error { return j.out.Flush() }

// appendJSONText appends a string, safe to print; what is not UTF-8 becomes U+FFFD.
func appendJSONText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			quoted, _ := text.Marshal(s) // strings can always be encoded
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// eventName is the event's name in the trace, that of a system call with its own.
func eventName(ev *trace.Event) string {
	if c, ok := ev.Body.(trace.Syscall); ok && c.Name != "" {
		if ev.Type == trace.SyscallEntry {
			return "syscall_entry_" + c.Name
		}
		return "syscall_exit_" + c.Name
	}
	return ev.Type.String()
}
