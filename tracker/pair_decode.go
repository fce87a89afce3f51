package tracker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
)

// addPair fills in what only declared pairs know. Any bytes will do.
func (o *Outlier) addPair(raw *bpf.TailcamOutlier, labels []pairLabel) {
	var x bpf.PairPairExtra
	b := make([]byte, 0, len(raw.Extra)*8)
	for _, w := range raw.Extra {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	_, _ = binary.Decode(b, binary.LittleEndian, &x) // it is smaller than extra
	if o.From == nil || o.From.Pair == nil {
		return
	}
	for i, k := range o.From.Pair.Key {
		if i < len(x.Part) {
			o.Key[k.Name] = x.Part[i]
		}
	}
	for i, l := range labels {
		if i >= len(x.Label) || l.atExit && x.NoExit != 0 {
			continue
		}
		if o.Labels == nil {
			o.Labels = map[string]any{}
		}
		o.Labels[l.name] = l.show(x.Label[i][:])
	}
	if comm := text(x.EntryComm[:]); x.EntryTid != raw.Tid && comm != "" {
		o.EntryTask = &Peer{PID: int(x.EntryPid), TID: int(x.EntryTid), Comm: comm}
	}
}

// show is a label as JSON carries it: a number, or text.
func (l *pairLabel) show(raw []byte) any {
	n := binary.LittleEndian.Uint64(raw)
	switch l.as {
	case rules.AsHex:
		return fmt.Sprintf("%#x", n)
	case rules.AsIPv4:
		return netip.AddrFrom4([4]byte(raw[:4])).String()
	case rules.AsIPv6:
		return netip.AddrFrom16([16]byte(raw[:16])).Unmap().String()
	case rules.AsPort:
		return uint64(binary.BigEndian.Uint16(raw))
	case rules.AsDev:
		return linux.Disk(uint32(n))
	case rules.AsString:
		return cString(raw)
	case rules.AsSymbol:
		return fmt.Sprintf("%#x", n) // named by whoever knows symbols
	}
	switch {
	case l.text:
		return cString(raw)
	case l.pointer:
		return fmt.Sprintf("%#x", n) // as a number it would lose digits in many readers of JSON
	case l.signed:
		return int64(n)
	}
	return n
}

// cString is text up to its NUL.
func cString(raw []byte) string {
	if i := bytes.IndexByte(raw, 0); i >= 0 {
		raw = raw[:i]
	}
	if utf8.Valid(raw) {
		return string(raw)
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}
